"""The order of events in a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from ..data import Stream
from ..data.batches import Pool, join, training_batches
from ..errors import RunFailed
from ..losses import Term, WeightedSum
from ..memory import PAYLOADS, Memory, class_mean, pad_carried
from ..methods import AFTER_TASK, TaskEnd
from ..nets import IMPRINTS, Network, Top, Trunk, for_inference
from ..nets.trunk import join as join_backbone
from ..predictors import PREDICTORS, ClassStatistics, LinearPredictor
from ..seeding import derive, generator
from ..specs import Finetune, NetworkSpec, PredictSpec, Stage
from ..structs import Batch, SeenClasses, Task
from .distributed import SINGLE_PROCESS, ProcessGroup
from .loop import Listener, MomentumBuffers, StageInputs, StagePosition, StepHook, run_stage
from .precision import precision_of
from .predict import LINEAR, Evaluation, Evaluator


@dataclass(frozen=True)
class LearnerConfig:
    """How to learn a task, in plain values."""

    terms: tuple[Term, ...]
    network: NetworkSpec
    train: Stage
    finetune: Finetune | None
    predict: PredictSpec
    seed: int
    eval_batch_size: int
    precision: str = "32-true"
    fold: bool = True
    compile: str = "none"


@dataclass(frozen=True)
class Resume:
    """The position within a task that a checkpoint holds."""

    stage: str  # "train" or "finetune"
    position: StagePosition
    buffers: MomentumBuffers


class Learner:
    """A network, its memory and its teacher, taken through the tasks of a stream one by one."""

    def __init__(
        self,
        network: Network,
        memory: Memory,
        config: LearnerConfig,
        stream: Stream,
        device: torch.device,
        group: ProcessGroup = SINGLE_PROCESS,
        trunk: Trunk | None = None,
    ):
        """trunk: frozen stages that the images of the stream have been through; the network has those after them."""
        self.trunk = trunk
        self.network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.memory, self.config, self.stream, self.device = memory, config, stream, device
        self.group = group
        self.precision = precision_of(config.precision, device)
        self.prepare = partial(for_inference, fold=config.fold, compiled=config.compile != "none")
        self.evaluator = Evaluator(self.network, config.eval_batch_size, device, group, self.precision, self.prepare)
        if config.compile == "all":
            self.network.backbone.compile()
        self.teacher: Network | None = None  # the previous network, while a task is learned
        self.means = torch.empty(0)  # (classes seen, d), for the nearest-mean predictor
        self.linear: dict[str, LinearPredictor] = {}  # the other predictors on features
        self.statistics: dict[int, ClassStatistics] = {}  # of all images of each class, where nothing is trained
        self.similarity = torch.empty(0)  # (new classes, old classes): cosines in the previous feature space
        self.previous_means = torch.empty(0)  # (classes seen, d): mean directions there, while a task is learned

    def learn(
        self,
        task: Task,
        listener: Listener,
        ready: Mapping[str, Tensor] | None = None,
        on_step: StepHook | None = None,
        resume: Resume | None = None,
    ) -> None:
        """Learn the classes of a task.

        ready: weights that identical training gave in an earlier run. on_step: called after every step; may
        write a checkpoint. resume: the position in a checkpoint of this task; `restore` comes first.
        """
        if not self.config.network.trained:
            self._collect(task, listener)
            return
        if resume is None:
            self.teacher = None if task.is_first else self.network.frozen_copy()
            guessed = not task.is_first or self.config.network.imprint_first  # rows of new classes, from features
            features = self._class_features(task) if guessed else ()
            self._locate_classes(task, features)
            self.network.head.grow(self._first_rows(task, features))
        if ready is not None:
            self.network.load(ready)
        elif resume is None or resume.stage == "train":
            self._train(task, listener, on_step, resume)
        if resume is None or resume.stage == "train":
            self._herd(task)
        if self.config.finetune is not None and not task.is_first:
            self._finetune(task, self.config.finetune, listener, on_step, resume)
            if self.config.finetune.batch_norm == "drift" and not self.network.frozen_norms:  # features have changed
                self._herd(task)
        self._end_task(task)
        self.teacher = None
        self.previous_means = torch.empty(0)
        _check_finite(self.network.state_dict(), task)
        self.means, statistics = self.evaluator.class_means(
            self.stream.train_view, self.memory.exemplars, self.config.predict.nme_aug
        )
        _check_finite({"of the class means": self.means}, task)  # large weights give infinite features
        self.linear = {name: PREDICTORS[name](statistics) for name in LINEAR}

    def _collect(self, task: Task, listener: Listener) -> None:
        """Learn a task without training, in one pass over its images: statistics of the features are kept, and nothing
        that is known of other classes changes."""
        features = self._class_features(task)
        listener.step(task, "features", 0, 1, sum(map(len, features)), {})
        self._locate_classes(task, features)
        self.statistics |= dict(zip(task.classes, map(ClassStatistics.of, features), strict=True))
        self._herd(task, features)
        known = list(self.statistics.values())
        self.means = PREDICTORS["ncm"](known).weight
        _check_finite({"of the class means": self.means}, task)
        self.network.head.grow(self.means[task.n_old :])
        self.linear = {name: PREDICTORS[name](known) for name in LINEAR}

    def whole_network(self) -> Network:
        """The network from images to scores, frozen stages included."""
        if self.trunk is None:
            return self.network
        net = self.network
        backbone = join_backbone(self.trunk, cast(Top, net.backbone))
        return Network(backbone, net.head, relu_head=net.relu_head, frozen_norms=net.frozen_norms)

    def tensors(self) -> dict[str, Tensor]:
        """All weights that training may change, for a checkpoint; with `memory.exemplars` and the position in a stage,
        all there is to know."""
        teacher = self.teacher.state_dict() if self.teacher is not None else {}
        found = {"means": self.means, "similarity": self.similarity, "previous_means": self.previous_means}
        carried = {str(label): rows for label, rows in self.memory.carried.items()}
        found |= _prefixed("carried.", carried) | _prefixed("network.", self.network.state_dict())
        for label, one in self.statistics.items():
            found |= _prefixed(f"statistics.{label}.", one.tensors())
        return found | _prefixed("teacher.", teacher)

    def restore(self, tensors: Mapping[str, Tensor], exemplars: Mapping[int, list[int]]) -> None:
        """Restore the state of a checkpoint."""
        self.memory.exemplars = {label: list(ranked) for label, ranked in exemplars.items()}
        carried = _unprefixed("carried.", tensors)
        self.memory.carried = {label: carried[str(label)] for label in exemplars if str(label) in carried}
        self.means, self.similarity = tensors["means"], tensors["similarity"]
        self.previous_means = tensors.get("previous_means", torch.empty(0))  # none in checkpoints of 0.2
        statistics = _unprefixed("statistics.", tensors)
        labels = sorted(exemplars) if statistics else ()
        self.statistics = {
            label: ClassStatistics.from_tensors(_unprefixed(f"{label}.", statistics)) for label in labels
        }
        self.network.load(_unprefixed("network.", tensors))
        teacher = _unprefixed("teacher.", tensors)
        self.teacher = None
        if teacher:
            self.teacher = self.network.frozen_copy()
            self.teacher.load(teacher)
            self.teacher.requires_grad_(False)

    def planned_images(self, task: Task) -> int:
        """Training images over all epochs of a task: what progress is measured against."""
        return sum(epochs * images for epochs, images in self._plan(task).values())

    def images_until(self, task: Task, resume: Resume) -> int:
        """Those of them that an earlier process has done."""
        plan = self._plan(task)
        before = plan["train"][0] * plan["train"][1] if resume.stage == "finetune" else 0
        return before + resume.position.epoch * plan[resume.stage][1] + resume.position.images

    def _plan(self, task: Task) -> dict[str, tuple[int, int]]:
        """Epochs, and images in each, of the stages of a task."""
        quota = self.memory.quota(task.n_old) if task.n_old else 0
        new = sum(len(self._images(label, task)) for label in task.classes)
        if not self.config.network.trained:
            return {"train": (1, new)}
        train, finetune = self.config.train, self.config.finetune
        plan = {"train": (train.epochs, train.images(new + quota * task.n_old))}
        if finetune is not None and not task.is_first:
            plan["finetune"] = (finetune.epochs, finetune.images(self.memory.quota(task.n_seen) * task.n_seen))
        return plan

    def evaluate(self, task: Task) -> Evaluation:
        """On the test images of all classes seen, class by class."""
        indices, labels = self.stream.seen_test(task.n_seen)
        return self.evaluator.test(self.stream.test_view, indices, labels, self.means, self.linear)

    def _locate_classes(self, task: Task, features: tuple[Tensor, ...]) -> None:
        """Mean directions of old and new classes in the previous feature space, and what controlled transfer keeps of
        them, class by class: the cosines between new and old ones."""
        self.similarity = self.previous_means = torch.empty(0)
        if not task.is_first:
            new = torch.stack([class_mean(one) for one in features])
            self.similarity, self.previous_means = new @ self.means.T, torch.cat([self.means, new])

    def _first_rows(self, task: Task, features: tuple[Tensor, ...]) -> Tensor:
        head, spec = self.network.head, self.config.network
        fresh = head.fresh_rows(task.n_new, generator(self.config.seed, task.index, "head"))
        if not features or spec.imprint == "none":
            return fresh
        seed = derive(self.config.seed, task.index, spec.imprint) % 2**32
        rows = fresh if task.is_first else head.weight.detach().cpu()  # those that the new ones are to be as long as
        return IMPRINTS[spec.imprint](features, rows, head.rows_per_class, seed)

    def _images(self, label: int, task: Task) -> tuple[int, ...]:
        """The images of a new class that are trained on: all but the last ones, if some are held back."""
        members = self.stream.train[label]
        return members[: max(1, len(members) - self.memory.spec.held_back_of(task.n_seen))]

    def _held_back(self, task: Task) -> tuple[Tensor, Tensor]:
        """Logits and labels of images of all classes seen that no task was trained on, equally many of each class. A
        class that came earlier held back as many or more, of which the last are used."""
        count = self.memory.spec.held_back_of(task.n_seen)
        members = [self.stream.train[label][1:][-count:] if count else () for label in range(task.n_seen)]
        labels = torch.tensor([label for label, one in enumerate(members) for _ in one], dtype=torch.int64)
        indices = torch.tensor([index for one in members for index in one], dtype=torch.int64)
        return self.evaluator.payload(self.stream.train_view, indices, PAYLOADS["logits"]), labels

    def _end_task(self, task: Task) -> None:
        """What the settings ask for once the network has been trained: the head changed, exemplars given what they
        carry. Those of old classes keep what they have."""
        act = self.config.network.after_task
        if act != "none" and not task.is_first:
            AFTER_TASK[act](TaskEnd(self.network, task, lambda: self._held_back(task)))
        if self.memory.spec.carry != "none":
            payload, view = PAYLOADS[self.memory.spec.carry], self.stream.train_view
            for label in task.classes:
                indices = torch.tensor(self.memory.exemplars[label])
                self.memory.carried[label] = self.evaluator.payload(view, indices, payload)

    def _class_features(self, task: Task) -> tuple[Tensor, ...]:
        """Features of all training images of the new classes, a matrix for each, in one pass."""
        members = [self._images(label, task) for label in task.classes]
        indices = torch.tensor([index for one in members for index in one])
        return self.evaluator.features(self.stream.train_view, indices).split([len(one) for one in members])

    def _train(self, task: Task, listener: Listener, on_step: StepHook | None, resume: Resume | None) -> None:
        self.network.requires_grad_(True)
        head = self.network.head.trainable(old=not self.config.network.freeze_old, scale=True)
        new = [(label, self._images(label, task)) for label in task.classes]
        exemplars = list(self.memory.exemplars.items())
        pool = join(new, exemplars, pad_carried(self.memory.carried, exemplars))
        loss = WeightedSum(self.config.terms, task)
        inputs = StageInputs(
            name="train",
            task=task,
            network=self.network,
            teacher=self._inference_teacher(loss),
            loss=loss,
            parameters=[*self.network.backbone.parameters(), *head],
            batches=lambda epoch, start: self._batches(pool, self.config.train, task, "train", epoch, start),
            train_mode=True,
            classes=self._seen_classes(pool),
            group=self.group,
            precision=self.precision,
        )
        run_stage(inputs, self.config.train, listener, on_step, _start(resume, "train"))

    def _finetune(
        self, task: Task, stage: Finetune, listener: Listener, on_step: StepHook | None, resume: Resume | None
    ) -> None:
        self.network.requires_grad_(False)
        exemplars = list(self.memory.exemplars.items())
        new, old = exemplars[task.n_old :], exemplars[: task.n_old]
        pool = join(new, old, pad_carried(self.memory.carried, old))
        loss = WeightedSum(self.config.terms, task, head_only=True)
        inputs = StageInputs(
            name="finetune",
            task=task,
            network=self.network,
            teacher=self._inference_teacher(loss),
            loss=loss,
            parameters=self.network.head.trainable(old=True, scale=False),
            batches=lambda epoch, start: self._batches(pool, stage, task, "finetune", epoch, start),
            train_mode=stage.batch_norm == "drift",
            classes=self._seen_classes(pool),
            group=self.group,
            precision=self.precision,
        )
        run_stage(inputs, stage, listener, on_step, _start(resume, "finetune"))

    def _seen_classes(self, pool: Pool) -> SeenClasses | None:
        """For the losses that look at classes; None in the first task."""
        if not len(self.previous_means):
            return None
        counts = torch.bincount(pool.labels, minlength=len(self.previous_means))
        return SeenClasses(self.previous_means.to(self.device), counts.to(self.device))

    def _inference_teacher(self, loss: WeightedSum) -> Network | None:
        return self.prepare(self.teacher) if self.teacher is not None and loss.needs_teacher else None

    def _batches(self, pool: Pool, stage: Stage, task: Task, name: str, epoch: int, start: int) -> Iterator[Batch]:
        key = (task.index, name, epoch)
        view, seed = self.stream.train_view, self.config.seed
        return training_batches(view, pool, stage, seed, key, self.device, start, self.group.shard)

    def _herd(self, task: Task, features: tuple[Tensor, ...] | None = None) -> None:
        """Shrink what is kept of old classes, choose exemplars of the new ones by the features of all their images, as
        the network gives them now."""
        self.memory.shrink(task.n_seen)
        for label, one in zip(task.classes, features or self._class_features(task), strict=True):
            self.memory.keep(label, list(self._images(label, task)), one, task.n_seen)


def _start(resume: Resume | None, stage: str) -> tuple[StagePosition, MomentumBuffers] | None:
    return (resume.position, resume.buffers) if resume is not None and resume.stage == stage else None


def _check_finite(tensors: Mapping[str, Tensor], task: Task) -> None:
    """A last step can spoil the weights without any loss to show it."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise RunFailed(
                f"The weights {name} are not finite after task {task.index + 1}. Try a smaller learning rate "
                "(train.lr) or train.clamp_gradients."
            )


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
