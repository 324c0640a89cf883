"""Stored images that resemble an image most, as an explanation of a prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.inputs import Item
from .labels import Label
from .photos import ClassPhotos
from .step import read_by_class

if TYPE_CHECKING:
    from .model import Model

LIKELY = 5  # classes whose stored images are read if the features of their photos are not stored


@dataclass(frozen=True)
class Neighbour:
    """A stored image.

    Attributes:
        label: Its class.
        class_index: Position of the class in the list of classes.
        number: Position of the image in the stored images of the class.
        similarity: Cosine of its features and those of the query.
    """

    label: str
    class_index: int
    number: int
    similarity: float


@dataclass(frozen=True)
class Explanation:
    """The stored images that resemble an image most.

    Attributes:
        label: The most probable class.
        probability: Its probability.
        same: Images of this class, most similar first.
        others: Images of other classes, most similar first.
    """

    label: str
    probability: float
    same: tuple[Neighbour, ...]
    others: tuple[Neighbour, ...]


def explain(model: Model, item: Item, count: int = 6) -> Explanation:
    """Return the stored images that resemble an image most, of the most probable class and of other classes.

    Args:
        model: The model.
        item: The image.
        count: Number of images of each kind.

    Raises:
        UserError: The image cannot be read.
    """
    outputs = model.reader_.read([item])
    outputs.raise_first_error()
    probabilities = model.log_probabilities(outputs).exp()[0]
    labels = list(model.statistics_)
    ranked = probabilities.argsort(descending=True).tolist()
    features = _exemplar_features(model, [labels[index] for index in ranked[:LIKELY]])
    query = F.normalize(outputs.features.double(), dim=1)[0]
    neighbours = [
        Neighbour(str(label), index, number, similarity)
        for index, label in enumerate(labels)
        if label in features
        for number, similarity in enumerate((F.normalize(features[label].double(), dim=1) @ query).tolist())
    ]
    neighbours.sort(key=lambda neighbour: -neighbour.similarity)
    same = [neighbour for neighbour in neighbours if neighbour.class_index == ranked[0]]
    others = [neighbour for neighbour in neighbours if neighbour.class_index != ranked[0]]
    best = float(probabilities[ranked[0]])
    return Explanation(str(labels[ranked[0]]), best, tuple(same[:count]), tuple(others[:count]))


def _exemplar_features(model: Model, likely: Sequence[Label]) -> dict[Label, Tensor]:
    """Return the features of the stored images of each class. Where those of the photos are not stored, the images of
    likely classes are read."""
    features: dict[Label, Tensor] = {}
    unread: dict[Label, Sequence[Item]] = {}
    for label, images in model.exemplars_.items():
        stats = model.statistics_[label]
        members = model.state_.photos.get(label, ClassPhotos()).padded(stats.count)
        positions = {photo.id: position for position, photo in enumerate(members.photos) if photo.id}
        ids = members.exemplar_ids(len(images))
        if stats.samples is not None and all(id in positions for id in ids):
            features[label] = stats.samples[torch.tensor([positions[id] for id in ids], dtype=torch.int64)]
        elif label in likely:
            unread[label] = images
    read = read_by_class(model.reader_, unread) if unread else {}
    return {**features, **{label: outputs.features for label, outputs in read.items()}}
