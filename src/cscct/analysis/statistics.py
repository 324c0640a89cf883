"""Means and standard deviations over seeds, and paired differences between groups. All values are percent."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..methods import ADDONS, split_method
from ..structs import Part
from .groups import Group
from .load import StoredRun
from .settings import Flat

METRICS = ("average_incremental_accuracy", "last_accuracy", "harmonic_mean", "apt", "act", "forgetting")
AVERAGE = METRICS[0]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; the deviation is None for one seed."""

    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Difference:
    """Mean of the paired differences over seeds, with its 95 % confidence interval (Student's t).

    Attributes:
        against: Method of the reference group.
        mean: Mean difference in percentage points.
        low: Lower end of the interval; None for one pair.
        high: Upper end of the interval; None for one pair.
    """

    against: str
    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SummaryRow:
    """Results of a group.

    Attributes:
        group: The group.
        metrics: Spread of each metric; None if it is not defined or no run is finished.
        gain: Difference in average incremental accuracy; None without a reference group.
        pairs: Number of seeds that the group shares with the reference group.
        validation: Spread of each metric on validation images; empty if the runs have none.
    """

    group: Group
    metrics: dict[str, Spread | None]
    gain: Difference | None
    pairs: int
    validation: dict[str, Spread | None] = field(default_factory=dict)


def spread(values: Sequence[float]) -> Spread:
    """Return the mean and the sample standard deviation."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def paired(values: Sequence[float], reference: Sequence[float], against: str) -> Difference:
    """Return the difference between two series of paired values."""
    difference = spread([a - b for a, b in zip(values, reference, strict=True)])
    mean, half = difference.mean, half_interval(difference.deviation, len(values))
    return (
        Difference(against, mean, None, None) if half is None else Difference(against, mean, mean - half, mean + half)
    )


def half_interval(deviation: float | None, count: int) -> float | None:
    """Return half the width of the 95 % confidence interval of a mean (Student's t), or None for one value.

    Args:
        deviation: Sample standard deviation of the values; None for one value.
        count: Number of values.
    """
    if deviation is None:
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)


def summarise(groups: Sequence[Group], *, against_first: bool = False) -> list[SummaryRow]:
    """Return a row for each group, compared with its counterpart.

    Args:
        groups: The groups.
        against_first: Compare groups without a counterpart with the first group.
    """
    rows = []
    for group in groups:
        reference = counterpart(group, groups)
        if reference is None and against_first and group is not groups[0]:
            reference = groups[0]
        gain, pairs = _gain(group, reference) if reference else (None, 0)
        metrics = {name: spread_over_seeds(group, name, group.headline) for name in METRICS}
        rows.append(SummaryRow(group, metrics, gain, pairs, validation_metrics(group)))
    return rows


def validation_metrics(group: Group) -> dict[str, Spread | None]:
    """Return the spread of each metric on validation images, or nothing if a run has none."""
    if not group.runs or not all(run.metrics(group.headline, "validation") for run in group.runs):
        return {}
    return {name: spread_over_seeds(group, name, group.headline, "validation") for name in METRICS}


def counterpart(group: Group, groups: Sequence[Group]) -> Group | None:
    """Return the group with the same settings and the base method, or None.

    An add-on may change the predictor of a method. A counterpart with the same predictor is preferred.
    """
    if group.method == group.base:
        return None
    settings = _common_settings(group)
    candidates = [
        candidate
        for candidate in groups
        if candidate.method == group.base
        and (candidate.sizes == group.sizes or not candidate.runs or not group.runs)
        and _common_settings(candidate) == settings
    ]
    return min(candidates, key=lambda candidate: candidate.headline != group.headline, default=None)


def _common_settings(group: Group) -> Flat:
    """The settings that a method with add-ons shares with its base."""
    terms = [term for addon in split_method(group.method)[1] for term in ADDONS[addon]]
    added = ("predict.predictor", *(f"loss.{term}." for term in terms))
    return {name: value for name, value in group.effective.items() if name != "method" and not name.startswith(added)}


def spread_over_seeds(group: Group, metric: str, head: str, part: Part = "test") -> Spread | None:
    """Return the spread of a metric for the predictor `head`, or None if a run has no finite value."""
    values = [run.metrics(head, part).get(metric) for run in group.runs]
    known = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return spread(known) if known and len(known) == len(values) else None


def _gain(group: Group, reference: Group) -> tuple[Difference | None, int]:
    by_seed = {run.seed: run for run in reference.runs}
    pairs = [(_average(run), _average(by_seed[run.seed])) for run in group.runs if run.seed in by_seed]
    if not pairs or not all(math.isfinite(value) for pair in pairs for value in pair):
        return None, 0
    values, references = zip(*pairs, strict=True)
    return paired(values, references, reference.method), len(pairs)


def _average(run: StoredRun) -> float:
    value = run.summary[AVERAGE]
    return math.nan if value is None else value
