"""Data passed between modules: a task, a batch, the output of a network, and one step of training."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["test", "validation"]  # images that a network is evaluated on


@dataclass(frozen=True)
class Task:
    """One task. Labels are positions in the class order, so a task's classes are consecutive."""

    index: int
    n_old: int  # classes seen before this task
    n_new: int  # classes of this task
    earlier: tuple[int, ...] = ()  # numbers of classes of the earlier tasks; empty if unknown

    @property
    def n_seen(self) -> int:
        """Number of classes after this task."""
        return self.n_old + self.n_new

    @property
    def classes(self) -> range:
        """Labels of the classes of this task."""
        return range(self.n_old, self.n_seen)

    @property
    def is_first(self) -> bool:
        """Whether this is the first task, which has no teacher and no exemplars."""
        return self.index == 0

    @property
    def task_classes(self) -> tuple[range, ...]:
        """Labels of the classes of each task up to this one. Earlier tasks of unknown sizes count as one task."""
        ends = list(accumulate(self.earlier or (() if self.is_first else (self.n_old,)), initial=0))
        return (*(range(start, end) for start, end in pairwise(ends)), self.classes)


class Mixed(NamedTuple):
    """How the images of a batch are mixed with each other (mixup).

    Attributes:
        labels: Shape (k,), int64: label of the image that each image is mixed with.
        weight: Weight of the image itself and its label; the other one has 1 - weight.
    """

    labels: Tensor
    weight: float


class Batch(NamedTuple):
    """The samples of a step.

    Attributes:
        images: Shape (k, c, h, w), float.
        labels: Shape (k,), int64: positions in the class order.
        is_new: Shape (k,), bool: False for exemplars.
        stored: Shape (k, n): stored targets of exemplars, NaN where nothing is stored. None if no exemplar has any.
        second: Shape (k, c, h, w): a second augmented view of the same images. None unless `train.views` is 2.
        mixed: Labels of the images that `images` are mixed with. None without mixup.
    """

    images: Tensor
    labels: Tensor
    is_new: Tensor
    stored: Tensor | None = None
    second: Tensor | None = None
    mixed: Mixed | None = None


class Output(NamedTuple):
    """Output of a network. A loss reads either `scores` or `logits`.

    Attributes:
        maps: One map (k, c, h, w) per stage, before the last ReLU.
        features: Shape (k, d): pooled vectors, which may be negative.
        scores: Shape (k, classes): cosines, class similarities, or logits of a linear head.
        scale: Learned scalar of the head; 1 for a head without one.
    """

    maps: tuple[Tensor, ...]
    features: Tensor
    scores: Tensor
    scale: Tensor

    @property
    def logits(self) -> Tensor:
        """Scores times scale, shape (k, classes)."""
        return self.scores * self.scale

    def first(self, count: int) -> Output:
        """Return the output for the first `count` samples."""
        return self if len(self.features) == count else self.rows(slice(0, count))

    def rows(self, part: slice) -> Output:
        """Return the output for the samples in `part`."""
        return Output(tuple(stage[part] for stage in self.maps), self.features[part], self.scores[part], self.scale)


class SeenClasses(NamedTuple):
    """Statistics of the classes seen, old ones first, at the start of a task.

    Attributes:
        means: Shape (classes, d): unit class means in the feature space of the previous network.
        counts: Shape (classes,), int64: training images; for an old class its exemplars.
    """

    means: Tensor
    counts: Tensor


class Step(NamedTuple):
    """Input of a loss term.

    Attributes:
        batch: Images and labels.
        student: Output of the network that is trained.
        teacher: Output of the previous network. None in the first task, and if no active term reads it.
        task: The current task.
        classes: Statistics of the classes seen. None in the first task.
        extension: The method's `cscct.methods.Extension`, which holds its state. None for a method without one.
        context: `cscct.methods.TaskContext` with the network, its parameters and the images of the task.
        second: Output of the network for the second view of the images. None unless `train.views` is 2.
        second_teacher: Output of the previous network for the second view. None if `teacher` or `second` is None.
    """

    batch: Batch
    student: Output
    teacher: Output | None
    task: Task
    classes: SeenClasses | None = None
    extension: Any = None
    context: Any = None
    second: Output | None = None
    second_teacher: Output | None = None
