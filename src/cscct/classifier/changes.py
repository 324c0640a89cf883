"""Changes of a model folder that need no images: forgetting classes and renaming them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from .labels import Label, nearest
from .teaching import existing


@dataclass(frozen=True)
class Forgotten:
    """What `forget_classes` did."""

    path: Path
    version: int
    classes: int  # that are left
    forgotten: tuple[str, ...]
    older: tuple[int, ...]  # versions that are still there
    finetuned: bool  # whether the network's weights were trained on images

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "path": str(self.path)}

    def sentences(self) -> list[str]:
        """For a person."""
        names = ", ".join(self.forgotten)
        found = [f"Removed {names}: version {self.version} of {self.path} has {self.classes} classes."]
        if self.older:
            found.append(
                "Older versions keep what was removed, and `cscct undo` brings it back; "
                f"`cscct forget {self.path} {' '.join(self.forgotten)} --everywhere` removes these versions."
            )
        else:
            found.append("No older version is left.")
        if self.finetuned:
            found.append("The network was fine-tuned with images of these classes: that stays in its weights.")
        return found


def forget_classes(path: Path, names: Sequence[str], *, everywhere: bool = False) -> Forgotten:
    """Remove classes from the model in a folder. everywhere: remove all older versions with them, also those of classes
    that were removed before."""
    folder = existing(path)
    model = folder.load()
    wanted = list(dict.fromkeys(names))
    present = {str(label): label for label in model.classes_.tolist()}
    past = {str(label) for version in folder.versions() for label in version.classes} if everywhere else set()
    for name in wanted:
        if name not in present and name not in past:
            raise UserError(f"There is no class {name!r} in this model. {nearest(name, list(present))}")
    gone = [present[name] for name in wanted if name in present]
    if gone:
        model.forget(gone)
        folder.commit(model, f"{len(gone)} {'class' if len(gone) == 1 else 'classes'} forgotten")
    if everywhere:
        folder.discard_history()
    versions = folder.versions()
    number = next(one.number for one in versions if one.current)
    older = tuple(one.number for one in versions if not one.current)
    return Forgotten(path, number, len(model.classes_), tuple(wanted), older, is_finetuned(model))


def rename_class(path: Path, old: str, new: str) -> int:
    """Give a class another name; the number of the version that has it."""
    folder = existing(path)
    model = folder.load()
    labels = {str(label): label for label in model.classes_.tolist()}
    model.rename({labels.get(old, old): _like(labels.get(old, old), new)})
    return folder.commit(model, f"{old} renamed to {new}")


def _like(label: Label, name: str) -> Label:
    """A name as a label of the same kind."""
    if isinstance(label, str):
        return name
    try:
        return int(name)
    except ValueError:
        raise UserError(f"The classes of this model are whole numbers, and {name!r} is none.") from None


def is_finetuned(model: Any) -> bool:
    """Whether the weights of a model's network were changed by its images."""
    return any(step.get("finetuned") for step in model.history_)
