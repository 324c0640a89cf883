"""Selection of unlabelled images whose labels are most useful: images with uncertain predictions that differ from each
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data.inputs import Item
from ..data.registry import Progress, no_progress
from ..errors import UserError

if TYPE_CHECKING:
    from .model import Model


@dataclass(frozen=True)
class Suggestion:
    """An unlabelled image, or one that could not be read.

    Attributes:
        image: Name of the image.
        rank: Position in the list, from 1.
        label: The most probable class.
        probability: Its probability.
        second: The second most probable class.
        score: Uncertainty times distance to the images ranked before, from 0 to 1.
        error: Why the image could not be read; then the rest is empty.
    """

    image: str
    rank: int | None = None
    label: str | None = None
    probability: float | None = None
    second: str | None = None
    score: float | None = None
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, as `cscct suggest --json` prints it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def rank_images(uncertainty: Tensor, features: Tensor, count: int) -> tuple[list[int], list[float]]:
    """Select images one after another, each with the largest product of uncertainty and distance to those before.

    The distance is half of one minus the cosine of the features, so that copies of a selected image come last.

    Args:
        uncertainty: (n,) from 0 to 1.
        features: (n, d).
        count: Number of images to select.

    Returns:
        Indices in order, and the product of each when it was selected.
    """
    directions = F.normalize(features.double(), dim=1)
    distance = torch.ones(len(features), dtype=torch.float64)
    left = torch.ones(len(features), dtype=torch.bool)
    order: list[int] = []
    scores: list[float] = []
    for _ in range(min(count, len(features))):
        gain = torch.where(left, uncertainty.double() * distance, -1.0)
        index = int(gain.argmax())
        order.append(index)
        scores.append(float(gain[index]))
        left[index] = False
        distance = torch.minimum(distance, ((1 - directions @ directions[index]) / 2).clamp(min=0))
    return order, scores


def suggest_items(
    model: Model, items: Sequence[Item], names: Sequence[str], count: int, progress: Progress = no_progress
) -> list[Suggestion]:
    """Rank unlabelled images by how useful their labels are.

    Args:
        model: The model. Its uncertainty is one minus the difference of the two largest probabilities.
        items: The images.
        names: Name of each image.
        count: Number of images to suggest.
        progress: Called with a description, the number of images done and the total.

    Returns:
        Suggestions, best first, followed by the images that cannot be read.

    Raises:
        UserError: The model reads features, or knows fewer than two classes.
    """
    if len(model.class_names) < 2:
        raise UserError("A model with a single class is never unsure: learn a second class first.")
    outputs = model.reader_.read(items, progress)
    probabilities = model.log_probabilities(outputs).exp()
    best = probabilities.topk(2, dim=1)
    order, scores = rank_images(1 - (best.values[:, 0] - best.values[:, 1]), outputs.features, count)
    suggestions = [
        Suggestion(
            names[outputs.readable[index]],
            rank,
            model.class_names[int(best.indices[index, 0])],
            float(best.values[index, 0]),
            model.class_names[int(best.indices[index, 1])],
            score,
        )
        for rank, (index, score) in enumerate(zip(order, scores, strict=True), start=1)
    ]
    return suggestions + [Suggestion(names[index], error=str(error)) for index, error in outputs.errors.items()]
