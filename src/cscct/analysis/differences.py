"""Settings that differ between groups, and whether the groups are comparable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .groups import Group
from .load import StoredRun
from .settings import EXPERIMENT, differing, protocol, show

MAX_LISTED = 6  # groups; of more, the number replaces the labels
CLASSES_SHOWN = 3


@dataclass(frozen=True)
class SettingDifference:
    """A setting whose value differs between groups.

    Attributes:
        name: Dotted name of the setting, or a description of it.
        groups: Labels of the groups with each value. Labels may contain commas.
    """

    name: str
    groups: dict[str, list[str]]

    @property
    def listed(self) -> bool:
        """Whether there are few enough groups to list their labels."""
        return sum(map(len, self.groups.values())) <= MAX_LISTED

    def __str__(self) -> str:
        """Return one line, as in `memory per class: 5 for "lucir, B=4"; 9 for "lucir, B=6"`."""
        parts = []
        for value, labels in self.groups.items():
            names = ", ".join(f'"{label}"' for label in labels) if self.listed else f"{len(labels)} groups"
            parts.append(f"{value} for {names}")
        return f"{self.name}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Differences:
    """Differences between groups.

    Attributes:
        experiments: Differences that make the groups different experiments, which deserve a warning.
        training: Differences in how methods of different families are trained.
    """

    experiments: list[SettingDifference]
    training: list[SettingDifference]


def find_differences(groups: Sequence[Group]) -> Differences:
    """Compare the settings of groups, except the method, its losses and its progress.

    Each family of methods has its own network, schedule and so on, so such differences are only noted. Within a family
    (`lucir` and `lucir+cscct` on one dataset) only the losses should differ, so any other difference is a warning.
    """
    names = [name for name in differing([group.effective for group in groups]) if name in EXPERIMENT]
    experiments = [_difference(name, groups) for name in names]
    experiments += _seeds(groups) + _classes(groups)
    training = []
    explained = {*EXPERIMENT, "method"}
    for key in dict.fromkeys(map(_family, groups)):
        family = [group for group in groups if _family(group) == key]
        for name in differing([group.effective for group in family]):
            if name in explained:
                continue
            if not name.startswith("loss."):
                experiments.append(_difference(name, family))
                explained.add(name)
            elif all(name in group.effective for group in family) and len({group.method for group in family}) > 1:
                training.append(_difference(name, family))
    training += [_difference(name, groups) for name in _training_names(groups) if name not in explained]
    return Differences(experiments, training)


def _family(group: Group) -> tuple[str, str]:
    return group.base, str(group.effective.get("dataset"))


def _training_names(groups: Sequence[Group]) -> list[str]:
    """Return training settings that differ. If some groups have no fine-tuning, only its epochs are listed."""
    names = [name for name in differing([group.effective for group in groups]) if not name.startswith("loss.")]
    if any("finetune.epochs" not in group.effective for group in groups):
        names = [name for name in names if not name.startswith("finetune.") or name == "finetune.epochs"]
    return names


def _difference(name: str, groups: Sequence[Group]) -> SettingDifference:
    return _by_value(EXPERIMENT.get(name, name), groups, lambda group: show(group.effective.get(name)))


def _by_value(name: str, groups: Sequence[Group], value: Callable[[Group], str]) -> SettingDifference:
    labels: dict[str, list[str]] = {}
    for group in groups:
        labels.setdefault(value(group), []).append(group.label)
    return SettingDifference(name, labels)


def _seeds(groups: Sequence[Group]) -> list[SettingDifference]:
    """Return the seeds if complete groups have different ones."""
    complete = [group for group in groups if group.complete]
    if len({group.seeds for group in complete}) <= 1:
        return []
    return [_by_value("seeds", complete, lambda group: show(group.seeds))]


def _classes(groups: Sequence[Group]) -> list[SettingDifference]:
    """Return the classes from the first difference on, if the settings are the same, as for two image folders."""
    first: dict[tuple[object, ...], StoredRun] = {}
    for group in groups:
        experiment = tuple(show(group.effective.get(name)) for name in EXPERIMENT)
        for run in group.runs:
            reference = first.setdefault((*experiment, run.seed), run)
            pairs = enumerate(zip(run.classes, reference.classes, strict=False))
            start = next((i for i, (name, expected) in pairs if name != expected), None)
            if start is not None:
                shown = slice(start, start + CLASSES_SHOWN)
                folders = {", ".join(each.classes[shown]): [str(each.path)] for each in (reference, run)}
                return [SettingDifference("classes", folders)]
    return []


def protocols(groups: Sequence[Group]) -> list[dict[str, str]]:
    """Return the protocol of each group, with seeds and versions."""
    descriptions = []
    for group in groups:
        versions = {_versions(run) for run in group.runs}
        description = protocol(group.runs[0].settings, group.runs[0].planned)
        descriptions.append({**description, "Seeds": show(group.seeds), "Made with": "; ".join(sorted(versions))})
    return descriptions


def _versions(run: StoredRun) -> str:
    environment = run.result.get("environment") or {}
    parts = [f"{name} {environment[name]}" for name in ("cscct", "torch", "python") if name in environment]
    threads = environment.get("threads")
    parts += [str(environment.get("device", "")), f"{threads} thread{'s' if threads != 1 else ''}" if threads else ""]
    return ", ".join(filter(None, parts))
