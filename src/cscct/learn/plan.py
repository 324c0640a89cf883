"""Plan of a run: how tasks are learned, and the images of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..data import Stream
from ..data.batches import Pool, join, plain_batches
from ..data.samplers import epoch_images
from ..features import Predictor
from ..losses import Term
from ..memory import Memory, pad_stored
from ..methods import Extension
from ..specs import Finetune, NetworkSpec, PredictSpec, Stage
from ..structs import Batch, Task
from .loop import OptimizerState, StagePosition

Classes = list[tuple[int, Sequence[int]]]  # labels and dataset indices


@dataclass(frozen=True)
class LearnerConfig:
    """Plain values that describe how tasks are learned.

    Attributes:
        terms: Loss terms with their weights.
        network: Network settings.
        train: Training stage.
        finetune: Balanced finetuning stage after each task but the first; None for no such stage.
        stages: Further stages by name, in order.
        extension: State and events of the method, with its settings. The learner uses a copy.
        predict: Prediction settings.
        predictors: Predictors that are fitted to class statistics, by name.
        seed: Seed of the run.
        eval_batch_size: Images per forward pass in evaluation.
        precision: `32-true`, `bf16-mixed` or `fp16-mixed`.
        fold: Whether batch norms are folded into convolutions for inference.
        compile: `none`, or the networks that are compiled.
    """

    terms: tuple[Term, ...]
    network: NetworkSpec
    train: Stage
    finetune: Finetune | None
    predict: PredictSpec
    predictors: Mapping[str, Predictor]
    seed: int
    eval_batch_size: int
    precision: str = "32-true"
    fold: bool = True
    compile: str = "none"
    stages: Mapping[str, Finetune] = field(default_factory=dict)
    extension: Extension | None = None

    @property
    def keep_samples(self) -> bool:
        """Whether class statistics keep the features of all samples."""
        return any(predictor.reads_samples for predictor in self.predictors.values())

    def stages_of(self, task: Task) -> dict[str, Stage]:
        """Return the stages of a task by name, in order."""
        later = {**({"finetune": self.finetune} if self.finetune else {}), **self.stages}
        return {"train": self.train} | {
            name: stage for name, stage in later.items() if stage.first_task or not task.is_first
        }


@dataclass(frozen=True)
class Resume:
    """Position within a task, restored from a checkpoint."""

    stage: str  # name of the stage
    position: StagePosition
    optimizer: OptimizerState


@dataclass(frozen=True)
class Pools:
    """Training images of the tasks of a stream.

    Attributes:
        stream: Tasks.
        memory: Exemplar memory.
    """

    stream: Stream
    memory: Memory

    def images(self, label: int, task: Task) -> tuple[int, ...]:
        """Return the training images of a new class: all but the last ones, which may be held back."""
        members = self.stream.train[label]
        return members[: max(1, len(members) - self.memory.spec.held_back_of(task.n_seen))]

    def held_back(self, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
        """Return indices and labels of held-back images of all classes seen, the same number for each class.

        Earlier classes have held back at least as many images, of which the last ones are used.
        """
        count = self.memory.spec.held_back_of(task.n_seen)
        members = [self.stream.train[label][1:][-count:] if count else () for label in range(task.n_seen)]
        labels = torch.tensor([label for label, held in enumerate(members) for _ in held], dtype=torch.int64)
        return torch.tensor([index for held in members for index in held], dtype=torch.int64), labels

    def pool(self, task: Task, name: str) -> Pool:
        """Return the images of a stage.

        Args:
            task: The task.
            name: Value of `Stage.pool`.
        """
        exemplars = list(self.memory.exemplars.items())
        old = [(label, ranked) for label, ranked in exemplars if label < task.n_old] if name != "new" else []
        new = [(label, self.images(label, task)) for label in task.classes] if name in ("new", "all") else []
        if name == "balanced":
            new = [(label, tuple(ranked)) for label, ranked in exemplars if label >= task.n_old]
        return join(new, old, pad_stored(self.memory.stored, old))

    def batches(
        self, device: torch.device, task: Task, name: str, batch_size: int, count: int | None = None
    ) -> Iterator[Batch]:
        """Yield the images of a pool without augmentation.

        Args:
            device: Device of the batches.
            task: The task.
            name: Value of `Stage.pool`.
            batch_size: Images per batch.
            count: Largest number of images. They are evenly spaced in the pool, which is ordered by class.
        """
        samples = self.pool(task, name)
        number = min(len(samples), count or len(samples))
        chosen = torch.arange(number) * len(samples) // max(1, number)
        images = plain_batches(self.stream.train_view, samples.indices[chosen], batch_size, device)
        for members, pixels in zip(chosen.split(batch_size) if number else (), images, strict=True):
            yield Batch(pixels, samples.labels[members].to(device), samples.is_new[members].to(device))

    def plan(self, config: LearnerConfig, task: Task) -> dict[str, tuple[int, int]]:
        """Return the epochs, and the images in each, of the stages of a task."""
        new: Classes = [(label, self.images(label, task)) for label in task.classes]
        if not config.network.train_backbone:
            return {"train": (1, sum(len(images) for _, images in new))}
        old: Classes = self._exemplars(task.n_old) if task.n_old else []
        balanced = self._exemplars(task.n_seen)
        pools: dict[str, tuple[Classes, Classes]] = {
            "new": (new, []),
            "memory": ([], old),
            "all": (new, old),
            "balanced": (balanced[task.n_old :], balanced[: task.n_old]),
        }
        stages = config.stages_of(task).items()
        return {name: (stage.epochs, epoch_images(join(*pools[stage.pool]), stage)) for name, stage in stages}

    def _exemplars(self, seen: int) -> Classes:
        """Return each label with as many positions as the class has exemplars after `seen` classes."""
        quota = self.memory.quota(seen)
        return [(label, range(min(quota, len(self.stream.train[label])))) for label in range(seen)]
