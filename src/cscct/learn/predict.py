"""What a trained network says: features, class means, and accuracies of all predictors in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.augment import NMEAugmentation, View
from ..data.batches import plain_batches
from ..memory import Payload, class_mean, nearest_mean
from ..nets import Network, for_inference
from ..predictors import ClassStatistics, LinearPredictor
from ..structs import Output, Task
from .distributed import SINGLE_PROCESS, ProcessGroup
from .precision import FULL, Precision

LINEAR = ("lda", "ridge")  # predictors that are fitted to features
HEADLINES = ("classifier", "nme", *LINEAR)
NONE: Mapping[str, LinearPredictor] = MappingProxyType({})


class Evaluation(NamedTuple):
    """What a pass over test images gives."""

    confusion: dict[str, Tensor]  # for each predictor (true class, predicted class) counts
    features: Tensor  # (images, d), in the order of the images


class Evaluator:
    """Runs a network over test-transformed images, without gradients.

    prepare: gives the form of the network that a pass uses.
    """

    def __init__(
        self,
        network: Network,
        batch_size: int,
        device: torch.device,
        group: ProcessGroup = SINGLE_PROCESS,
        precision: Precision = FULL,
        prepare: Callable[[Network], Network] = for_inference,
    ):
        self.network, self.batch_size, self.device, self.group = network, batch_size, device, group
        self.precision, self.prepare = precision, prepare

    def read(self, view: View, indices: Tensor, variant: NMEAugmentation = "none") -> Iterator[Output]:
        """What the network says of this process's share, a batch at a time, in 32 bits and without the maps."""
        network = self.prepare(self.network)
        own = indices[self.group.shard(len(indices))]
        for images in plain_batches(view, own, self.batch_size, self.device, variant):
            with torch.no_grad(), self.precision():
                output = network(images)
            features, scores, scale = (one.float().cpu() for one in (output.features, output.scores, output.scale))
            yield Output((), features, scores, scale)

    def _joined(self, found: list[Tensor], count: int, width: int) -> Tensor:
        """Each process has read its share; all get all."""
        return self.group.gather_rows(torch.cat(found) if found else torch.empty(0, width), count)

    def features(self, view: View, indices: Tensor, variant: NMEAugmentation = "none") -> Tensor:
        """(images, d), in the order of the indices."""
        found = [output.features for output in self.read(view, indices, variant)]
        return self._joined(found, len(indices), self.network.head.features)

    def payload(self, view: View, indices: Tensor, payload: Payload) -> Tensor:
        """(images, n): what a function takes from the network's output, in the order of the indices."""
        head = self.network.head
        nothing = Output((), torch.empty(0, head.features), torch.empty(0, head.classes), torch.ones(()))
        found = [payload(output) for output in self.read(view, indices)]
        return self._joined(found, len(indices), payload(nothing).shape[1])

    def class_means(
        self, view: View, exemplars: Mapping[int, list[int]], variant: NMEAugmentation
    ) -> tuple[Tensor, list[ClassStatistics]]:
        """Means (classes, d) and statistics of the features, for each class in the order of their labels. The second
        view of the exemplars counts in the means only."""
        labels = sorted(exemplars)
        sizes = [len(exemplars[label]) for label in labels]
        indices = torch.tensor([index for label in labels for index in exemplars[label]])
        plain = self.features(view, indices).split(sizes)
        varied = self.features(view, indices, variant).split(sizes) if variant != "none" else [None] * len(labels)
        means = torch.stack([class_mean(one, other) for one, other in zip(plain, varied, strict=True)])
        return means, [ClassStatistics.of(one) for one in plain]

    def test(
        self, view: View, indices: Tensor, labels: Tensor, means: Tensor, linear: Mapping[str, LinearPredictor] = NONE
    ) -> Evaluation:
        """All predictors, from one pass over the images. linear: those that were fitted, by name."""
        classes = len(means)
        counts = {name: torch.zeros(classes * classes, dtype=torch.int64) for name in ("classifier", "nme", *linear)}
        kept = []
        own = labels[self.group.shard(len(indices))]
        truths = own.split(self.batch_size) if len(own) else ()
        for output, truth in zip(self.read(view, indices), truths, strict=True):
            guesses = {"classifier": output.scores.argmax(dim=1), "nme": nearest_mean(output.features, means)}
            guesses |= {name: one.scores(output.features).argmax(dim=1) for name, one in linear.items()}
            for name, guess in guesses.items():
                counts[name] += torch.bincount(truth * classes + guess, minlength=classes * classes)
            kept.append(output.features)
        confusion = {name: self.group.sum(flat).view(classes, classes) for name, flat in counts.items()}
        return Evaluation(confusion, self._joined(kept, len(indices), self.network.head.features))


def matrix_row(confusion: Tensor, tasks: tuple[Task, ...]) -> list[float]:
    """Accuracy in percent on each task learned so far."""
    right, all_ = confusion.diagonal(), confusion.sum(dim=1)
    row = []
    for task in tasks:
        members = slice(task.n_old, task.n_seen)
        row.append(100 * int(right[members].sum()) / int(all_[members].sum()))
    return row
