"""What is given to `learn`: features and labels of the images that can be read, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.registry import Progress
from ..errors import UserError
from ..predictors import ClassStatistics
from .features import FeatureExtractor
from .images import FEW, Item, Problem, as_items, read_folder, shown
from .labels import Label, as_labels

ROUNDING = 1e-4  # by how much of their length features of the same pixels may differ


@dataclass(frozen=True)
class Given:
    """In the order of the images that can be read."""

    features: Tensor
    labels: list[Label]
    items: list[Item] = field(default_factory=list)  # empty where the input is features
    problems: list[Problem] = field(default_factory=list)


def read_given(
    extractor: FeatureExtractor, images: Any, labels: Any, known: Mapping[Label, ClassStatistics], progress: Progress
) -> Given:
    """Reads a folder of class folders (labels: None) or images with labels. known: classes learned before."""
    problems: list[Problem] = []
    if labels is None:
        if not isinstance(images, str | PathLike):
            raise UserError("Images need labels, unless they are a folder with a folder of images for each class.")
        listing = read_folder(images)
        items: list[Item] = list(listing.paths)
        labels = listing.labels
        problems += listing.problems
    else:
        items = as_items(images)
    names = as_labels(labels, len(items))
    found = extractor.extract(items, progress)
    for index, error in found.errors.items():
        reason = str(error).partition(" cannot be read: ")[2].rstrip(".") or str(error)
        problems.append(Problem("unreadable", _place(items, index), reason))
    problems += _duplicates(found.digests, found.readable, items, names)
    kept = [names[i] for i in found.readable]
    problems += _learned_before(found.features, kept, [_place(items, i) for i in found.readable], known)
    if not kept:
        faults = [f"{one.path}: {one.text.rstrip('.')}" for one in problems if one.kind == "unreadable"]
        raise UserError(f"No image can be read: {faults[0]}." if faults else "There are no images to learn.")
    for name in sorted(set(names) - set(known)):
        count = kept.count(name)
        if count < FEW:
            text = f"only {count} {'image' if count == 1 else 'images'}" if count else "no image that can be read"
            problems.append(Problem("few", str(name), text))
    return Given(found.features, kept, [items[i] for i in found.readable], problems)


def _place(items: Sequence[Item], index: int) -> str:
    item = items[index]
    return shown(item) if isinstance(item, Path) else f"image {index + 1}"


def _duplicates(
    digests: Sequence[bytes], indices: Sequence[int], items: Sequence[Item], names: Sequence[Label]
) -> list[Problem]:
    """The same pixels twice in a class, or in two classes."""
    first: dict[bytes, int] = {}
    problems = []
    for digest, index in zip(digests, indices, strict=True):
        other = first.setdefault(digest, index)
        if other != index:
            where = "in the same class" if names[other] == names[index] else f"in the class {names[other]}"
            text = f"the same picture as {_place(items, other)} {where}"
            problems.append(Problem("duplicate", _place(items, index), text))
    return problems


def _learned_before(
    features: Tensor, labels: Sequence[Label], places: Sequence[str], known: Mapping[Label, ClassStatistics]
) -> list[Problem]:
    """Pictures whose features are those of one that was learned, where these are kept; a problem for each pair of
    classes."""
    found: dict[tuple[Label, Label], list[str]] = {}
    rows = features.double()
    for old, one in known.items():
        if one.samples is not None:
            same = torch.cdist(rows, one.samples.double()).amin(dim=1) <= ROUNDING * rows.norm(dim=1)
            for index in torch.nonzero(same)[:, 0].tolist():
                found.setdefault((labels[index], old), []).append(places[index])
    return [
        Problem("duplicate", str(new), _counted(len(same), old if old != new else None, same[0]))
        for (new, old), same in found.items()
    ]


def _counted(count: int, label: Label | None, first: str) -> str:
    where = "" if label is None else f" in the class {label}"
    if count == 1:
        return f"{first} was learned before{where}"
    return f"{count} of its images were learned before{where}, the first of them {first}"
