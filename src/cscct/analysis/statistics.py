"""Means and deviations over seeds, and paired differences between groups. Percent throughout."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..methods import EXTRAS, split_method
from .groups import Group
from .load import Run
from .settings import Flat

METRICS = ("average_incremental_accuracy", "last_accuracy", "apt", "act", "forgetting")
AVERAGE = METRICS[0]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float | None  # None with one seed


@dataclass(frozen=True)
class Difference:
    """Mean of the differences seed by seed, with its 95 % confidence interval (Student's t)."""

    against: str  # the method of the other group
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SummaryRow:
    """What a group comes to."""

    group: Group
    metrics: dict[str, Spread | None]  # None where it is not defined, or no run is finished
    gain: Difference | None  # in average incremental accuracy
    pairs: int  # seeds that both groups have


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (of a sample)."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def paired(values: Sequence[float], reference: Sequence[float], against: str) -> Difference:
    """The difference of two series whose entries belong together one by one."""
    differences = [a - b for a, b in zip(values, reference, strict=True)]
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return Difference(against, mean, None, None)
    from scipy.stats import t

    half = float(t.ppf(0.975, len(differences) - 1)) * statistics.stdev(differences) / math.sqrt(len(differences))
    return Difference(against, mean, mean - half, mean + half)


def summarise(groups: Sequence[Group], *, against_first: bool = False) -> list[SummaryRow]:
    """A row for each group, compared with its counterpart.

    against_first: a group without a counterpart is compared with the first group.
    """
    rows = []
    for group in groups:
        other = counterpart(group, groups)
        if other is None and against_first and group is not groups[0]:
            other = groups[0]
        gain, pairs = _gain(group, other) if other else (None, 0)
        metrics = {name: spread_over_seeds(group, name, group.headline) for name in METRICS}
        rows.append(SummaryRow(group, metrics, gain, pairs))
    return rows


def counterpart(group: Group, groups: Sequence[Group]) -> Group | None:
    """The same method and settings without its additions, such as CSC and CT. A method may be tested by another
    prediction with an addition; each is then compared by its own."""
    if group.method == group.base:
        return None
    own, found = _rest(group), []
    for other in groups:
        equally_far = other.sizes == group.sizes or not other.runs or not group.runs
        if equally_far and other.method == group.base and _rest(other) == own:
            found.append(other)
    return min(found, key=lambda other: other.headline != group.headline, default=None)


def _rest(group: Group) -> Flat:
    """The settings without that in which a method with additions differs from its base."""
    terms = [term for addition in split_method(group.method)[1] for term in EXTRAS[addition]]
    added = ("predict.headline", *(f"loss.{term}." for term in terms))
    return {name: value for name, value in group.effective.items() if name != "method" and not name.startswith(added)}


def spread_over_seeds(group: Group, metric: str, head: str) -> Spread | None:
    """Of a metric with one prediction (`classifier` or `nme`); None where some run has no finite value."""
    values = [run.result["summary"].get(head, {}).get(metric) for run in group.runs]
    known = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return spread(known) if known and len(known) == len(values) else None


def _gain(group: Group, base: Group) -> tuple[Difference | None, int]:
    by_seed = {run.seed: run for run in base.runs}
    pairs = [(_average(run), _average(by_seed[run.seed])) for run in group.runs if run.seed in by_seed]
    if not pairs or not all(math.isfinite(value) for pair in pairs for value in pair):
        return None, 0
    ours, theirs = zip(*pairs, strict=True)
    return paired(ours, theirs, base.method), len(pairs)


def _average(run: Run) -> float:
    value = run.summary[AVERAGE]
    return math.nan if value is None else value
