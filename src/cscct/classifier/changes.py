"""Changes of a model folder that need no images: forgetting classes and renaming them."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .labels import Label, nearest
from .teaching import count_classes, existing


@dataclass(frozen=True)
class Forgotten:
    """What `forget_classes` did."""

    path: Path
    version: int
    classes: int  # that are left
    forgotten: tuple[str, ...]
    older: tuple[int, ...]  # versions that are still there
    notes: tuple[str, ...]  # on what cannot be removed

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "path": str(self.path)}

    def sentences(self) -> list[str]:
        """For a person."""
        names = ", ".join(self.forgotten)
        found = [f"Removed {names}: version {self.version} of {self.path} has {count_classes(self.classes)}."]
        if self.older:
            found.append(
                "Older versions keep what was removed, and `cscct undo` brings it back; "
                f"`cscct forget {shlex.join([str(self.path), *self.forgotten])} --everywhere` removes these versions."
            )
        else:
            found.append("No older version is left.")
        return [*found, *self.notes]


def forget_classes(path: Path, names: Sequence[str], *, everywhere: bool = False) -> Forgotten:
    """Remove classes from the model in a folder. everywhere: remove all older versions with them, also those of classes
    that were removed before."""
    folder = existing(path)
    before = folder.current()
    model = folder.load(before)
    wanted = list(dict.fromkeys(names))
    present = {str(label): label for label in model.classes_.tolist()}
    past = {str(label) for version in folder.versions() for label in version.classes} if everywhere else set()
    for name in wanted:
        if name not in present and name not in past:
            raise UserError(f"There is no class {name!r} in this model. {nearest(name, list(present))}")
    gone = [present[name] for name in wanted if name in present]
    notes: tuple[str, ...] = ()
    if gone:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the same sentences as the notes
            model.forget(gone)
        notes = tuple(model.report_.notes)
        folder.commit(model, f"{count_classes(len(gone))} forgotten", based_on=before)
    if everywhere:
        folder.discard_history()
    versions = folder.versions()
    number = next(one.number for one in versions if one.current)
    older = tuple(one.number for one in versions if not one.current)
    return Forgotten(path, number, len(model.classes_), tuple(wanted), older, notes)


def rename_class(path: Path, old: str, new: str) -> int:
    """Give a class another name; the number of the version that has it."""
    folder = existing(path)
    before = folder.current()
    model = folder.load(before)
    labels = {str(label): label for label in model.classes_.tolist()}
    if old == new and old in labels:
        raise UserError(f"The class {old!r} is called so already: choose another name.")
    model.rename({labels.get(old, old): _like(labels.get(old, old), new)})
    return folder.commit(model, f"{old} renamed to {new}", based_on=before)


def _like(label: Label, name: str) -> Label:
    """A name as a label of the same kind."""
    if isinstance(label, str):
        return name
    try:
        return int(name)
    except ValueError:
        raise UserError(f"The classes of this model are whole numbers, and {name!r} is none.") from None
