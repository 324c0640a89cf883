"""Groups: runs that differ by seed alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..methods import EXTRAS, split_method
from ..studies.plan import PlannedRun
from .load import Run
from .settings import EXPERIMENT, Flat, effective, label_groups, with_prediction


@dataclass(frozen=True)
class Group:
    """Runs that differ by seed alone, and have come equally far. A group of a plan may have no finished run yet."""

    label: str
    settings: dict[str, Any] = field(repr=False)  # of the first run, as in config.yaml
    runs: tuple[Run, ...]  # by seed

    @cached_property
    def effective(self) -> Flat:
        """The settings that have an effect, by their dotted names."""
        return effective(self.settings)

    @property
    def method(self) -> str:
        return str(self.settings["method"])

    @property
    def base(self) -> str:
        return split_method(self.method)[0]

    @property
    def headline(self) -> str:
        """The prediction that the method stands for: a name in `PREDICTIONS`."""
        return str(self.settings["predict"]["headline"])

    @property
    def label_with_prediction(self) -> str:
        """The label, and by what the method predicts where it is not the classifier."""
        return with_prediction(self.label, self.method, self.headline)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Classes of each task that is done."""
        return self.runs[0].sizes if self.runs else ()

    @property
    def complete(self) -> bool:
        """All tasks are done."""
        return bool(self.runs) and len(self.sizes) == self.runs[0].planned

    @cached_property
    def comparable(self) -> tuple[Run, ...]:
        """The runs whose classes can be averaged one by one: all if they share the class order, else the first."""
        same = all(run.classes == self.runs[0].classes for run in self.runs)
        return self.runs if same else self.runs[:1]

    @property
    def averaging(self) -> str:
        """What a figure with classes in it shows, for its caption."""
        if len(self.runs) == 1:
            return f"Seed {self.seeds[0]}."
        if len(self.comparable) == 1:
            return f"Seed {self.seeds[0]} only: the class order differs between the seeds."
        return f"Mean over {len(self.runs)} seeds."


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order in which they were given, but those of one experiment together and additions after their
    base; within a group, by seed."""
    found: dict[str, list[Run]] = {}
    experiments, families = (list(dict.fromkeys(map(of, runs))) for of in (_experiment, lambda run: run.base))

    def place(run: Run) -> tuple[int, ...]:
        order = experiments.index(_experiment(run)), families.index(run.base)
        return (*order, _rank(run.method), bool(_state(run)))

    for run in sorted(runs, key=place):
        # Datasets in memory have one name for all.
        data = run.result.get("data_sha256") if run.settings["dataset"] == "arrays" else None
        found.setdefault(json.dumps([effective(run.settings), run.sizes, data], sort_keys=True), []).append(run)
    return _labelled([(members[0].settings, members) for members in found.values()])


def group_plan(plan: Sequence[PlannedRun]) -> dict[str, Group]:
    """The groups of a plan by their names, in its order, with the runs that are finished."""
    found: dict[str, tuple[dict[str, Any], dict[int, Run]]] = {}
    for planned in plan:
        settings = planned.settings.dump()
        _, runs = found.setdefault(planned.group, (settings, {}))
        result = planned.result()
        if result.get("status") == "finished" and planned.damage() is None:
            runs[planned.settings.seed] = Run(planned.folder.path, settings, result)
    groups = _labelled([(settings, list(runs.values())) for settings, runs in found.values()])
    return dict(zip(found, groups, strict=True))


def _labelled(found: Sequence[tuple[dict[str, Any], Sequence[Run]]]) -> list[Group]:
    """Groups with labels that tell them apart, from the settings and runs of each."""
    states = [_state(runs[0]) if runs else "" for _, runs in found]
    labels = label_groups([effective(settings) for settings, _ in found], states)
    return [
        Group(label, settings, tuple(sorted(runs, key=lambda run: run.seed)))
        for label, (settings, runs) in zip(labels, found, strict=True)
    ]


def _experiment(run: Run) -> str:
    flat = effective(run.settings)
    return json.dumps([flat.get(name) for name in EXPERIMENT])


def _rank(method: str) -> int:
    """The base first, then its additions in the order of the paper."""
    added = "+".join(split_method(method)[1])
    return ["", *EXTRAS].index(added) if added in EXTRAS else 0


def _state(run: Run) -> str:
    return "" if len(run.sizes) == run.planned else f"{len(run.sizes)} of {run.planned} tasks"
