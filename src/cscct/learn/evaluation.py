"""Inference and evaluation: network outputs, class means, and the predictions of all predictors in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.augment import NMEAugmentation, View
from ..data.batches import plain_batches
from ..features import ClassStatistics, FittedPredictor, class_mean
from ..memory import StoredTarget
from ..nets import Network, for_inference
from ..structs import Output, Task
from .device import FULL_PRECISION, Precision
from .distributed import SINGLE_PROCESS, ProcessGroup


def infer(network: Network, images: Tensor, precision: Precision = FULL_PRECISION) -> Output:
    """Run a forward pass without gradients.

    Args:
        network: Network in evaluation mode, see `cscct.nets.for_inference`.
        images: Normalised images, shape (k, c, h, w), on the device of the network.
        precision: Context manager of the forward pass, see `precision_context`.

    Returns:
        Features, scores and scale as float32 tensors on the CPU. `maps` is empty.
    """
    with torch.no_grad(), precision():
        output = network(images)
    return Output((), *(tensor.detach().float().cpu() for tensor in (output.features, output.scores, output.scale)))


class Evaluation(NamedTuple):
    """Result of `Evaluator.test`."""

    confusion: dict[str, Tensor]  # counts of (true class, predicted class) for each predictor, (classes, classes)
    features: Tensor  # (images, d), in the order of the images
    within_task: dict[str, Tensor]  # the same counts if only classes of the true class's task can be predicted


class Evaluator:
    """Runs a network over images with the test transform, without gradients.

    Args:
        network: Network to evaluate. Its current weights are used in every pass.
        batch_size: Images per forward pass.
        device: Device of the network.
        group: Processes that share the work.
        precision: Context manager of the forward passes.
        prepare: Function that returns the inference form of the network. It is called once per pass.
    """

    def __init__(
        self,
        network: Network,
        batch_size: int,
        device: torch.device,
        group: ProcessGroup = SINGLE_PROCESS,
        precision: Precision = FULL_PRECISION,
        prepare: Callable[[Network], Network] = for_inference,
    ):
        self.network, self.batch_size, self.device, self.group = network, batch_size, device, group
        self.precision, self.prepare = precision, prepare

    def read(self, view: View, indices: Tensor, variant: NMEAugmentation = "none") -> Iterator[Output]:
        """Yield the outputs for the images of this process, one batch at a time.

        Args:
            view: Images as network inputs.
            indices: Indices of the images of all processes, shape (n,).
            variant: Variant of the images, see `View.plain`.

        Yields:
            Outputs of `infer`.
        """
        network = self.prepare(self.network)
        shard = indices[self.group.shard(len(indices))]
        for images in plain_batches(view, shard, self.batch_size, self.device, variant):
            yield infer(network, images, self.precision)

    def _gather(self, batches: list[Tensor], count: int, width: int) -> Tensor:
        """Return the rows of all processes, (count, width), in every process."""
        return self.group.gather_rows(torch.cat(batches) if batches else torch.empty(0, width), count)

    def features(self, view: View, indices: Tensor, variant: NMEAugmentation = "none") -> Tensor:
        """Return the features of images.

        Args:
            view: Images as network inputs.
            indices: Indices of the images, shape (n,).
            variant: Variant of the images, see `View.plain`.

        Returns:
            Features, shape (n, d), in the order of the indices.
        """
        batches = [output.features for output in self.read(view, indices, variant)]
        return self._gather(batches, len(indices), self.network.head.features)

    def stored_targets(self, view: View, indices: Tensor, target: StoredTarget) -> Tensor:
        """Return the targets to store with images.

        Args:
            view: Images as network inputs.
            indices: Indices of the images, shape (n,).
            target: Function from the output of the network to the targets.

        Returns:
            Targets, shape (n, width of the target), in the order of the indices.
        """
        head = self.network.head
        empty = Output((), torch.empty(0, head.features), torch.empty(0, head.classes), torch.ones(()))
        batches = [target(output) for output in self.read(view, indices)]
        return self._gather(batches, len(indices), target(empty).shape[1])

    def class_means(
        self, view: View, exemplars: Mapping[int, list[int]], variant: NMEAugmentation, keep_samples: bool = False
    ) -> tuple[Tensor, list[ClassStatistics]]:
        """Return the means and statistics of the features of the exemplars.

        Args:
            view: Images as network inputs.
            exemplars: Indices of the exemplars of each class.
            variant: Second view that is averaged into the means. It is not part of the statistics.
            keep_samples: See `ClassStatistics.of`.

        Returns:
            Unit class means, shape (classes, d), and the statistics of each class, in the order of the labels.
        """
        labels = sorted(exemplars)
        sizes = [len(exemplars[label]) for label in labels]
        indices = torch.tensor([index for label in labels for index in exemplars[label]])
        plain = self.features(view, indices).split(sizes)
        second = self.features(view, indices, variant).split(sizes) if variant != "none" else [None] * len(labels)
        means = torch.stack([class_mean(features, varied) for features, varied in zip(plain, second, strict=True)])
        return means, [ClassStatistics.of(features, keep_samples=keep_samples) for features in plain]

    def test(
        self,
        view: View,
        indices: Tensor,
        labels: Tensor,
        predictors: Mapping[str, FittedPredictor],
        tasks: Tensor | None = None,
    ) -> Evaluation:
        """Evaluate the head and the predictors on features in one pass.

        Args:
            view: Images as network inputs.
            indices: Indices of the images, shape (n,).
            labels: Their labels, shape (n,), int64.
            predictors: Predictors on features, by name.
            tasks: Task of each class, shape (classes,); by default all classes belong to the same task.

        Returns:
            Confusion matrices of `classifier` (the head) and of each predictor, and the features of the images.
        """
        classes = self.network.head.classes
        tasks = torch.zeros(classes, dtype=torch.int64) if tasks is None else tasks
        names = ("classifier", *predictors)
        counts, within = ({name: torch.zeros(classes * classes, dtype=torch.int64) for name in names} for _ in range(2))
        features = []
        shard = labels[self.group.shard(len(indices))]
        truths = shard.split(self.batch_size) if len(shard) else ()
        for output, truth in zip(self.read(view, indices), truths, strict=True):
            rankings = {"classifier": output.scores}
            rankings |= {name: predictor.ranking(output.features) for name, predictor in predictors.items()}
            other_task = tasks[truth][:, None] != tasks  # (k, classes)
            for name, ranking in rankings.items():
                counts[name] += _count(truth, ranking.argmax(dim=1), classes)
                known = ranking.masked_fill(other_task, -torch.inf).argmax(dim=1)
                within[name] += _count(truth, known, classes)
            features.append(output.features)
        confusion, within_task = (
            {name: self.group.sum(flat).view(classes, classes) for name, flat in each.items()}
            for each in (counts, within)
        )
        return Evaluation(confusion, self._gather(features, len(indices), self.network.head.features), within_task)


def _count(truth: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Return how often each pair of true and predicted class occurs, (classes * classes,)."""
    return torch.bincount(truth * classes + predicted, minlength=classes * classes)


def matrix_row(confusion: Tensor, tasks: tuple[Task, ...]) -> list[float]:
    """Return the accuracy on each task in percent.

    Args:
        confusion: Counts of (true class, predicted class), shape (classes, classes).
        tasks: Tasks learned so far.

    Returns:
        One accuracy per task.
    """
    correct, total = confusion.diagonal(), confusion.sum(dim=1)
    row = []
    for task in tasks:
        members = slice(task.n_old, task.n_seen)
        row.append(100 * int(correct[members].sum()) / int(total[members].sum()))
    return row
