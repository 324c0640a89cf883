"""Labels as users give them: texts or whole numbers, all of one kind in a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import UserError

Label = str | int  # bool counts as a whole number


def as_label(label: Any) -> Label:
    """A label as it is kept: a Python str, int or bool."""
    value = label.item() if isinstance(label, np.generic) or hasattr(label, "item") else label
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int) or value == "":
        raise UserError(f"A label is a text or a whole number, not {label!r}.")
    if isinstance(value, str):
        check_is_text(value)
    return value


def check_is_text(text: str) -> None:
    """Refuse what a model cannot store: bytes that are not UTF-8, and zero bytes, at which NumPy cuts texts off."""
    if "\0" in text or text != text.encode(errors="replace").decode():
        raise UserError(f"{text!r} is not valid text (UTF-8 without zero bytes), so it cannot be stored: change it.")


def as_labels(labels: Any, images: int) -> list[Label]:
    """One label for each image; a single one is that of all."""
    if isinstance(labels, str | int | np.generic):
        return [as_label(labels)] * images
    found = [as_label(one) for one in labels]
    if len(found) != images:
        raise UserError(f"There are {images} images and {len(found)} labels: each image needs its label.")
    return found


def check_one_kind(known: Collection[Label], labels: Iterable[Label]) -> None:
    """Texts and numbers in one model would be mistaken for each other: 1 and "1" look alike wherever they are shown."""
    kinds = {type(label) for label in (*known, *labels)}
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise UserError(f"The labels of a model are all texts or all whole numbers; these are {names}.")


def chosen(labels: Any, known: Sequence[Label]) -> list[Label]:
    """Labels that must be known: one or several."""
    single = isinstance(labels, str | int | np.generic)
    found = list(dict.fromkeys(as_label(one) for one in ([labels] if single else labels)))
    for label in found:
        if label not in known:
            raise UserError(f"There is no class {label!r} in this model. {nearest(label, known)}")
    return found


def nearest(label: Label, known: Sequence[Label]) -> str:
    """A hint for a label that is not known."""
    import difflib

    near = difflib.get_close_matches(str(label), [str(one) for one in known], n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    few = ", ".join(repr(one) for one in known[:10])
    return f"The classes are: {few}{', ...' if len(known) > 10 else ''}." if few else "It has no classes."
