"""What a trained network says: features, class means, and accuracies of both predictors in one pass."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..data.augment import Variant, View
from ..data.batches import plain_batches
from ..memory import class_mean, nearest_mean
from ..nets import Network
from ..structs import Task
from .precision import FULL, Precision
from .team import ALONE, Team

HEADLINES = ("classifier", "nme")


class Reader:
    """Runs a network over test-transformed images, in large batches and without gradients."""

    def __init__(
        self, network: Network, batch_size: int, device: torch.device, team: Team = ALONE, precision: Precision = FULL
    ):
        self.network, self.batch_size, self.device, self.team = network, batch_size, device, team
        self.precision = precision

    def _read(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features and scores, in 32 bits."""
        with self.precision():
            output = self.network(images)
        return output.features.float().cpu(), output.scores.float().cpu()

    @torch.no_grad()
    def features(self, view: View, indices: Tensor, variant: Variant = "none") -> Tensor:
        """Each process reads its share; all get all."""
        self.network.eval()
        own = indices[self.team.part(len(indices))]
        batches = plain_batches(view, own, self.batch_size, self.device, variant)
        found = [self._read(images)[0] for images in batches]
        rows = torch.cat(found) if found else torch.empty(0, self.network.head.features)
        return self.team.rows(rows, len(indices))

    def class_means(self, view: View, exemplars: Mapping[int, list[int]], variant: Variant) -> Tensor:
        """(classes, d), one row for each class in the order of their labels."""
        labels = sorted(exemplars)
        sizes = [len(exemplars[label]) for label in labels]
        indices = torch.tensor([index for label in labels for index in exemplars[label]])
        plain = self.features(view, indices).split(sizes)
        varied = self.features(view, indices, variant).split(sizes) if variant != "none" else [None] * len(labels)
        return torch.stack([class_mean(one, other) for one, other in zip(plain, varied, strict=True)])

    @torch.no_grad()
    def confusion(self, view: View, indices: Tensor, labels: Tensor, means: Tensor) -> dict[str, Tensor]:
        """(true class, predicted class) counts of both predictors, from one pass over the images."""
        self.network.eval()
        classes = len(means)
        counts = {name: torch.zeros(classes * classes, dtype=torch.int64) for name in HEADLINES}
        own = self.team.part(len(indices))
        batches = plain_batches(view, indices[own], self.batch_size, self.device)
        for images, truth in zip(batches, labels[own].split(self.batch_size), strict=True):
            features, scores = self._read(images)
            guesses = (scores.argmax(dim=1), nearest_mean(features, means))
            for name, guess in zip(HEADLINES, guesses, strict=True):
                counts[name] += torch.bincount(truth * classes + guess, minlength=classes * classes)
        return {name: self.team.sum(flat).view(classes, classes) for name, flat in counts.items()}


def matrix_row(confusion: Tensor, tasks: tuple[Task, ...]) -> list[float]:
    """Accuracy in percent on each task learned so far."""
    right, all_ = confusion.diagonal(), confusion.sum(dim=1)
    row = []
    for task in tasks:
        members = slice(task.n_old, task.n_seen)
        row.append(100 * int(right[members].sum()) / int(all_[members].sum()))
    return row
