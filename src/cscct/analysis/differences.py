"""Whether the groups of a report may be set beside each other at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .groups import Group
from .load import Run
from .settings import EXPERIMENT, differing, protocol, show

NAMED = 6  # of more groups than this only the number is told


@dataclass(frozen=True)
class Differences:
    experiments: list[str]  # the groups did not do the same thing: a warning
    training: list[str]  # the methods are trained each in its own way: a note


def find_differences(groups: Sequence[Group]) -> Differences:
    """Between groups; the method, its losses and how far a run has come do not count.

    Methods of different families have training settings of their own, so network, schedule and the like are only
    noted. Within a family (lucir and lucir+cscct on one dataset) nothing but the losses should differ, so there the
    same difference is a warning.
    """
    flats = [group.effective for group in groups]
    loud = [_tell(name, groups) for name in differing(flats) if name in EXPERIMENT]
    loud += _seeds(groups) + _classes(groups)
    quiet = []
    families = [[group for group in groups if _family(group) == one] for one in dict.fromkeys(map(_family, groups))]
    explained = set(EXPERIMENT) | {"method"}
    for family in families:
        for name in differing([group.effective for group in family]):
            if name in explained:
                continue
            in_all = all(name in group.effective for group in family)
            if not name.startswith("loss."):
                loud.append(_tell(name, family))
                explained.add(name)
            elif in_all and len({group.method for group in family}) > 1:
                quiet.append(_tell(name, family))
    quiet += [_tell(name, groups) for name in _training_names(groups) if name not in explained]
    return Differences(loud, quiet)


def _family(group: Group) -> tuple[str, str]:
    return group.base, str(group.effective.get("dataset"))


def _training_names(groups: Sequence[Group]) -> list[str]:
    """Training settings that differ. A whole section that some groups lack counts once, by its epochs."""
    names = [name for name in differing([group.effective for group in groups]) if not name.startswith("loss.")]
    if any("finetune.epochs" not in group.effective for group in groups):
        names = [name for name in names if not name.startswith("finetune.") or name == "finetune.epochs"]
    return names


def _tell(name: str, groups: Sequence[Group]) -> str:
    return _by_value(EXPERIMENT.get(name, name), groups, lambda group: show(group.effective.get(name)))


def _by_value(what: str, groups: Sequence[Group], value: Callable[[Group], str]) -> str:
    holders: dict[str, list[str]] = {}
    for group in groups:
        holders.setdefault(value(group), []).append(group.label)
    if len(groups) > NAMED:  # their labels tell it too
        return f"{what}: " + ", ".join(f"{found} for {len(labels)} groups" for found, labels in holders.items())
    return f"{what}: " + "; ".join(f"{found} for {', '.join(labels)}" for found, labels in holders.items())


def _seeds(groups: Sequence[Group]) -> list[str]:
    """Unfinished groups may lack seeds."""
    whole = [group for group in groups if group.complete]
    if len({group.seeds for group in whole}) <= 1:
        return []
    return [_by_value("seeds", whole, lambda group: show(group.seeds))]


def _classes(groups: Sequence[Group]) -> list[str]:
    """Folders of images have no name of their own in the settings: their classes tell them apart."""
    first: dict[tuple[object, ...], Run] = {}
    for group in groups:
        experiment = tuple(show(group.effective.get(name)) for name in EXPERIMENT)
        for run in group.runs:
            other = first.setdefault((*experiment, run.seed), run)
            if any(a != b for a, b in zip(run.classes, other.classes, strict=False)):
                return [f"the classes themselves: {other.path} and {run.path} learned others in the same protocol"]
    return []


def protocols(groups: Sequence[Group]) -> list[dict[str, str]]:
    """For each group its protocol in words, with seeds and versions."""
    found = []
    for group in groups:
        made_by = {_versions(run) for run in group.runs}
        words = protocol(group.runs[0].settings, group.runs[0].planned)
        found.append({**words, "Seeds": show(group.seeds), "Made with": "; ".join(sorted(made_by))})
    return found


def _versions(run: Run) -> str:
    about = run.result.get("environment") or {}
    words = [f"{name} {about[name]}" for name in ("cscct", "torch", "python") if name in about]
    threads = f"{about['threads']} thread{'s' if about['threads'] != 1 else ''}" if about.get("threads") else ""
    return ", ".join(filter(None, [*words, str(about.get("device", "")), threads]))
