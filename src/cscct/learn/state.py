"""State of a learner as named tensors: what checkpoints and shared first tasks contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from ..features import ClassStatistics

if TYPE_CHECKING:
    from .learner import Learner


def first_task_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return the weights and the state of the extension after the first task.

    Args:
        learner: Learner that has learned the first task.
    """
    return {**learner.network.state_dict(), **_prefixed("extension.", learner.extension.state_dict())}


def load_first_task(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Load the first task of another run.

    Args:
        learner: Learner whose network has the classes of the first task.
        tensors: Result of `first_task_tensors`.
    """
    learner.network.load({name: tensor for name, tensor in tensors.items() if not name.startswith("extension.")})
    _load_extension(learner, tensors)


def state_tensors(learner: Learner) -> dict[str, Tensor]:
    """Return the complete state except the exemplars and the position in a stage.

    Args:
        learner: Learner at any step of a task, or between tasks.
    """
    state = {"means": learner.means, "similarity": learner.similarity, "previous_means": learner.previous_means}
    state |= _prefixed("stored.", {str(label): rows for label, rows in learner.memory.stored.items()})
    state |= _prefixed("network.", learner.network.state_dict())
    for label, statistics in learner.statistics.items():
        state |= _prefixed(f"statistics.{label}.", statistics.tensors())
    state |= _prefixed("extension.", learner.extension.state_dict())
    return state | _prefixed("teacher.", learner.teacher.state_dict() if learner.teacher is not None else {})


def restore_state(learner: Learner, tensors: Mapping[str, Tensor], exemplars: Mapping[int, list[int]]) -> None:
    """Restore the state of a checkpoint.

    Args:
        learner: Learner with the settings of the run that wrote the checkpoint.
        tensors: Result of `state_tensors`.
        exemplars: Exemplars of each class.
    """
    learner.memory.exemplars = {label: list(ranked) for label, ranked in exemplars.items()}
    stored = _unprefixed("stored.", tensors)
    learner.memory.stored = {label: stored[str(label)] for label in exemplars if str(label) in stored}
    learner.means, learner.similarity = tensors["means"], tensors["similarity"]
    learner.previous_means = tensors["previous_means"]
    statistics = _unprefixed("statistics.", tensors)
    labels = sorted({int(name.partition(".")[0]) for name in statistics})
    learner.statistics = {label: ClassStatistics.from_tensors(_unprefixed(f"{label}.", statistics)) for label in labels}
    learner.network.load(_unprefixed("network.", tensors))
    _load_extension(learner, tensors)
    teacher = _unprefixed("teacher.", tensors)
    learner.teacher = None
    if teacher:
        learner.teacher = learner.network.frozen_copy()
        learner.teacher.load(teacher)
        learner.teacher.requires_grad_(False)


def _load_extension(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    state = _unprefixed("extension.", tensors)
    learner.extension.load_state_dict({name: tensor.to(learner.device) for name, tensor in state.items()})


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
