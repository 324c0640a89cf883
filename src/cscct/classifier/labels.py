"""Validation of labels. The labels of a model are either all strings or all integers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import UserError
from ..text import closest

Label = str | int  # bool is a subclass of int


def as_label(label: Any) -> Label:
    """Convert a label to a Python str, int or bool.

    Args:
        label: A string, an integer, or a NumPy or PyTorch scalar.

    Returns:
        The converted label.

    Raises:
        UserError: If the label is neither a nonempty string nor an integer.
    """
    value = label.item() if isinstance(label, np.generic) or hasattr(label, "item") else label
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int) or value == "":
        raise UserError(f"Labels must be nonempty strings or integers, not {label!r}.")
    if isinstance(value, str):
        check_is_text(value)
    return value


def check_is_text(text: str) -> None:
    """Check that a string can be stored: NumPy truncates strings at null characters, and JSON needs valid UTF-8.

    Raises:
        UserError: If it cannot.
    """
    if "\0" in text or text != text.encode(errors="replace").decode():
        raise UserError(f"{text!r} is not valid text (UTF-8 without null characters) and cannot be stored: change it.")


def as_labels(labels: Any, images: int) -> list[Label]:
    """Return the label of each image.

    Args:
        labels: A sequence with one label per image, or a single label for all images.
        images: Number of images.

    Returns:
        One label per image.

    Raises:
        UserError: If a label is invalid or the number of labels is wrong.
    """
    if isinstance(labels, str | int | np.generic):
        return [as_label(labels)] * images
    converted = [as_label(label) for label in labels]
    if len(converted) != images:
        raise UserError(f"Got {images} images but {len(converted)} labels: pass one label per image.")
    return converted


def check_one_kind(known: Collection[Label], labels: Iterable[Label]) -> None:
    """Check that all labels have the same type, because 1 and "1" are indistinguishable in output.

    Args:
        known: Labels of the model.
        labels: New labels.

    Raises:
        UserError: If the types differ.
    """
    types = {type(label) for label in (*known, *labels)}
    if len(types) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in types))
        raise UserError(f"The labels of a model must be all strings or all integers, not {names}.")


def select_labels(labels: Any, known: Sequence[Label]) -> list[Label]:
    """Return distinct labels that must exist in a model.

    Args:
        labels: A label or a sequence of labels.
        known: Labels of the model.

    Returns:
        The labels without duplicates.

    Raises:
        UserError: If a label is unknown.
    """
    single = isinstance(labels, str | int | np.generic)
    selected = list(dict.fromkeys(as_label(label) for label in ([labels] if single else labels)))
    for label in selected:
        if label not in known:
            raise UserError(f"The model has no class {label!r}. {nearest(label, known)}")
    return selected


def nearest(label: Label, known: Sequence[Label]) -> str:
    """Return a hint for an unknown label: the most similar label, or the first labels of the model."""
    near = closest(str(label), map(str, known))
    if near:
        return f"Did you mean {near!r}?"
    first = ", ".join(repr(label) for label in known[:10])
    return f"Its classes are: {first}{', ...' if len(known) > 10 else ''}." if first else "It has no classes."
