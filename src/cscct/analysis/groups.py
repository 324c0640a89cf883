"""Groups of runs that differ only in the seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..methods import ADDONS, split_method
from ..studies.plan import PlannedRun
from .load import StoredRun
from .settings import EXPERIMENT, Flat, effective, label_groups, with_prediction


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed and have finished the same tasks.

    Attributes:
        label: Distinct name of the group.
        settings: Settings of the first run, as in config.yaml.
        runs: Runs ordered by seed; empty if no run of a planned group is finished.
    """

    label: str
    settings: dict[str, Any] = field(repr=False)
    runs: tuple[StoredRun, ...]

    @cached_property
    def effective(self) -> Flat:
        """The settings that affect the result, by dotted name."""
        return effective(self.settings)

    @property
    def method(self) -> str:
        """Name of the method, such as `lucir+cscct`."""
        return str(self.settings["method"])

    @property
    def base(self) -> str:
        """Name of the method without add-ons."""
        return split_method(self.method)[0]

    @property
    def headline(self) -> str:
        """Name of the predictor that the method is evaluated with."""
        return str(self.settings["predict"]["predictor"])

    @property
    def label_with_prediction(self) -> str:
        """The label, with the predictor if it is not the classifier."""
        return with_prediction(self.label, self.method, self.headline)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs."""
        return tuple(run.seed for run in self.runs)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of classes of each finished task."""
        return self.runs[0].sizes if self.runs else ()

    @property
    def complete(self) -> bool:
        """Whether all tasks are finished."""
        return bool(self.runs) and len(self.sizes) == self.runs[0].planned

    @cached_property
    def comparable(self) -> tuple[StoredRun, ...]:
        """Runs that values per class can be averaged over: all if they share the class order, else the first."""
        same = all(run.classes == self.runs[0].classes for run in self.runs)
        return self.runs if same else self.runs[:1]

    @property
    def averaging(self) -> str:
        """Sentence for the caption of a figure with values per class."""
        if len(self.runs) == 1:
            return f"Seed {self.seeds[0]}."
        if len(self.comparable) == 1:
            return f"Seed {self.seeds[0]} only: the class order differs between the seeds."
        return f"Mean over {len(self.runs)} seeds."


def group_runs(runs: Sequence[StoredRun]) -> list[Group]:
    """Group runs that differ only in the seed.

    Groups of one experiment are adjacent, and a base method precedes its variants; otherwise the order of `runs` is
    kept.
    """
    members: dict[str, list[StoredRun]] = {}
    experiments, families = (list(dict.fromkeys(map(of, runs))) for of in (_experiment, lambda run: run.base))

    def rank(run: StoredRun) -> tuple[int, ...]:
        order = experiments.index(_experiment(run)), families.index(run.base)
        return (*order, _variant_rank(run.method), bool(_state(run)))

    for run in sorted(runs, key=rank):
        # All datasets in memory have the same name.
        data = run.result.get("data_sha256") if run.settings["dataset"] == "arrays" else None
        members.setdefault(json.dumps([effective(run.settings), run.sizes, data], sort_keys=True), []).append(run)
    return _labelled([(same[0].settings, same) for same in members.values()])


def group_plan(plan: Sequence[PlannedRun]) -> dict[str, Group]:
    """Return the groups of a plan by name, in its order, with their finished runs."""
    members: dict[str, tuple[dict[str, Any], dict[int, StoredRun]]] = {}
    for planned in plan:
        settings = planned.settings.dump()
        _, runs = members.setdefault(planned.group, (settings, {}))
        result = planned.result()
        if result.get("status") == "finished" and planned.damage() is None:
            runs[planned.settings.seed] = StoredRun(planned.folder.path, settings, result)
    groups = _labelled([(settings, list(runs.values())) for settings, runs in members.values()])
    return dict(zip(members, groups, strict=True))


def _labelled(members: Sequence[tuple[dict[str, Any], Sequence[StoredRun]]]) -> list[Group]:
    """Return groups with distinct labels, from the settings and runs of each."""
    states = [_state(runs[0]) if runs else "" for _, runs in members]
    labels = label_groups([effective(settings) for settings, _ in members], states)
    return [
        Group(label, settings, tuple(sorted(runs, key=lambda run: run.seed)))
        for label, (settings, runs) in zip(labels, members, strict=True)
    ]


def _experiment(run: StoredRun) -> str:
    flat = effective(run.settings)
    return json.dumps([flat.get(name) for name in EXPERIMENT])


def _variant_rank(method: str) -> int:
    """Return 0 for a base method, and the position in the order of the paper for its variants."""
    added = "+".join(split_method(method)[1])
    return ["", *ADDONS].index(added) if added in ADDONS else 0


def _state(run: StoredRun) -> str:
    return "" if len(run.sizes) == run.planned else f"{len(run.sizes)} of {run.planned} tasks"
