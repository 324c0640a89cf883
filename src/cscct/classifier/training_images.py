"""Input of `learn`: labelled images with features, and problems of the images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from ..data.inputs import Item, as_items, is_dataset, item_name, split_dataset
from ..data.labelled import LabelledFiles, scan_labelled, similar_names
from ..data.registry import Progress
from ..data.scanning import InputProblem
from ..errors import UnreadableImage, UserError
from ..features import ClassStatistics
from .labels import Label, as_labels
from .photos import ClassPhotos, Photo, known_ids
from .reader import ImageOutputs, NetworkReader

FEW_IMAGES = 5  # a class with fewer images is learned with a warning
ROUNDING = 1e-4  # relative difference up to which two feature vectors are those of the same pixels


@dataclass(frozen=True)
class TrainingImages:
    """The readable images of a learning step, in order, without copies.

    Attributes:
        features: (n, d) float32, from the current network.
        labels: Label of each image.
        items: The images; empty if the model reads features.
        photos: Identity and name of each image; empty if the model reads features.
        known: Number of images that the model has already, by class; they are left out.
        problems: What is wrong with images, including those left out.
    """

    features: Tensor
    labels: list[Label]
    items: list[Item] = field(default_factory=list)
    photos: list[Photo] = field(default_factory=list)
    known: dict[Label, int] = field(default_factory=dict)
    problems: list[InputProblem] = field(default_factory=list)

    def by_class(self) -> dict[Label, list[int]]:
        """Return the indices of the images of each class; classes are sorted."""
        members: dict[Label, list[int]] = {label: [] for label in sorted(set(self.labels))}
        for index, label in enumerate(self.labels):
            members[label].append(index)
        return members

    def items_of(self, indices: Sequence[int]) -> list[Item]:
        """Return some of the images."""
        return [self.items[index] for index in indices] if self.items else []


def read_training_images(
    reader: NetworkReader,
    images: Any,
    labels: Any,
    statistics: Mapping[Label, ClassStatistics],
    photos: Mapping[Label, ClassPhotos],
    progress: Progress,
) -> TrainingImages:
    """Read labelled images and compute their features in one pass. Copies of images are left out and reported; images
    that the model knows are only decoded.

    Args:
        reader: The current network.
        images: Images as `as_items` accepts them, a folder with one folder per class, or a CSV file.
        labels: One label per image, one for all, or None for class folders, CSV files and labelled datasets.
        statistics: Statistics of the classes that the model knows.
        photos: Photos that the model knows.
        progress: Called with a description, the number of images done and the total.

    Raises:
        UserError: Labels are missing or do not match, or no image can be read.
    """
    items, labels, problems = _labelled_items(images, labels, reader.format.channels)
    names = as_labels(labels, len(items))
    problems += similar_names(names, statistics)
    outputs = reader.read(items, progress, {bytes.fromhex(id) for id in known_ids(photos)})
    for index, error in outputs.errors.items():
        reason = error.reason if isinstance(error, UnreadableImage) else str(error)
        problems.append(InputProblem("unreadable", _place(items, index), reason))
    if not outputs.readable:
        faults = [f"{p.path}: {p.text.rstrip('.')}" for p in problems if p.kind == "unreadable"]
        raise UserError(f"No image can be read: {faults[0]}." if faults else "There are no images to learn.")
    candidates = [
        Photo(digest.hex(), _place(items, i)) for digest, i in zip(outputs.digests, outputs.readable, strict=True)
    ]
    kept_labels = [names[index] for index in outputs.readable]
    new, known, copies = _without_copies(
        candidates, kept_labels, _known_classes(outputs, candidates, statistics, photos)
    )
    problems += copies
    for name in sorted(set(names) - set(statistics)):
        count = sum(kept_labels[index] == name for index in new)
        if count < FEW_IMAGES:
            text = f"only {count} {'image' if count == 1 else 'images'}" if count else "no image to learn"
            problems.append(InputProblem("few", str(name), text))
    return TrainingImages(
        outputs.features[new],
        [kept_labels[index] for index in new],
        [items[outputs.readable[index]] for index in new],
        [candidates[index] for index in new],
        known,
        problems,
    )


def _labelled_items(images: Any, labels: Any, channels: int) -> tuple[list[Item], Any, list[InputProblem]]:
    if labels is not None:
        return as_items(images, channels), labels, []
    if isinstance(images, str | PathLike | LabelledFiles):
        files = images if isinstance(images, LabelledFiles) else scan_labelled(images)
        return list(files.items), files.labels, list(files.problems)
    if is_dataset(images):
        items, labels_found = split_dataset(images)
        if labels_found is not None:
            return items, labels_found, []
    raise UserError("Images need labels, unless they are a folder of class folders, a CSV file or a labelled dataset.")


def _place(items: Sequence[Item], index: int) -> str:
    return item_name(items, index)


def _known_classes(
    outputs: ImageOutputs,
    candidates: Sequence[Photo],
    statistics: Mapping[Label, ClassStatistics],
    photos: Mapping[Label, ClassPhotos],
) -> dict[str, Label]:
    """Return the class of each image that the model knows, by identity; in models of earlier versions by features."""
    known = known_ids(photos)
    rows = outputs.features.double()
    for label, stats in statistics.items():
        if stats.samples is None or (label in photos and all(photo.id for photo in photos[label].photos)):
            continue
        distances = torch.cdist(rows, stats.samples.double()).amin(dim=1)
        for index in torch.nonzero(distances <= ROUNDING * rows.norm(dim=1))[:, 0].tolist():
            known.setdefault(candidates[index].id, label)
    return known


def _without_copies(
    photos: Sequence[Photo], labels: Sequence[Label], known: Mapping[str, Label]
) -> tuple[list[int], dict[Label, int], list[InputProblem]]:
    """Return the indices of the new images, the number of known images of each class, and a problem for each copy
    within this step and each image that is known under another label."""
    first: dict[str, int] = {}
    counts: Counter[Label] = Counter()
    problems = []
    for index, (photo, label) in enumerate(zip(photos, labels, strict=True)):
        if photo.id in known:
            if known[photo.id] == label:
                counts[label] += 1
            else:
                text = f"already learned as {known[photo.id]}; its label was not changed"
                problems.append(InputProblem("conflict", photo.name, text))
        elif first.setdefault(photo.id, index) != index:
            original = labels[first[photo.id]]
            where = "in the same class" if original == label else f"in the class {original}"
            kind = "duplicate" if original == label else "conflict"
            problems.append(
                InputProblem(kind, photo.name, f"the same picture as {photos[first[photo.id]].name} {where}")
            )
    return list(first.values()), dict(counts), problems
