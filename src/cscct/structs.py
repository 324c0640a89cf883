"""Data passed between modules: a task, a batch, the output of a network, and one step of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Task:
    """One task. Labels are positions in the class order, so a task's classes are consecutive."""

    index: int
    n_old: int  # classes seen before this task
    n_new: int  # classes that arrive with it

    @property
    def n_seen(self) -> int:
        return self.n_old + self.n_new

    @property
    def classes(self) -> range:
        return range(self.n_old, self.n_seen)

    @property
    def is_first(self) -> bool:
        return self.index == 0


class Batch(NamedTuple):
    """The samples of a step."""

    images: Tensor  # (k, c, h, w) float
    labels: Tensor  # (k,) int64, positions in the class order
    is_new: Tensor  # (k,) bool, False for samples that come from the memory
    carried: Tensor | None = None  # (k, n) what exemplars carry, NaN where nothing is; None: no exemplar carries any


class Output(NamedTuple):
    """What a network returns. `logits` are `scores * scale`; which of the two a loss takes is the loss's choice."""

    maps: tuple[Tensor, ...]  # one (k, c, h, w) map per stage, before any last ReLU
    features: Tensor  # (k, d) signed pooled vector
    scores: Tensor  # (k, classes): cosines, class similarities, or plain logits of a linear head
    scale: Tensor  # the head's learned scalar; one where the head has none

    @property
    def logits(self) -> Tensor:
        return self.scores * self.scale

    def first(self, count: int) -> Output:
        """Of the first so many samples."""
        if len(self.features) == count:
            return self
        maps = tuple(one[:count] for one in self.maps)
        return Output(maps, self.features[:count], self.scores[:count], self.scale)


class SeenClasses(NamedTuple):
    """What is known of the classes seen, the old ones first, when the training of a task begins."""

    means: Tensor  # (classes, d) mean direction of each in the previous network's feature space, of unit length
    counts: Tensor  # (classes,) int64, the training images of each: for an old class its exemplars


class Step(NamedTuple):
    """Everything a loss term may look at."""

    batch: Batch
    student: Output
    teacher: Output | None  # absent in the first task, and where no active term asks for it
    task: Task
    classes: SeenClasses | None = None  # absent in the first task
