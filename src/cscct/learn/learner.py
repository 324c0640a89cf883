"""Learner: the sequence of steps that learns a task."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from ..data import Stream
from ..data.batches import Pool, training_batches
from ..errors import RunFailed
from ..features import ClassStatistics, FittedPredictor, class_mean, fit_predictors, ncm, nearest_mean
from ..losses import WeightedSum
from ..memory import STORED_TARGETS, Memory
from ..methods import AFTER_TASK, Extension, TaskContext
from ..nets import IMPRINTS, FrozenStages, Network, for_inference
from ..nets.frozen import join as join_backbone
from ..seeding import derive, generator
from ..specs import Finetune, Stage
from ..structs import Batch, Part, SeenClasses, Task
from .device import loss_scaler, precision_context
from .distributed import SINGLE_PROCESS, ProcessGroup
from .evaluation import Evaluation, Evaluator
from .loop import StageInputs, StepHook, TrainingListener, run_stage
from .plan import LearnerConfig, Pools, Resume
from .state import load_first_task


class Learner:
    """Network with exemplar memory and teacher that learns the tasks of a stream one after another.

    Args:
        network: Network to train. It is moved to the device.
        memory: Exemplar memory.
        config: How tasks are learned.
        stream: Tasks.
        device: Device of the computation.
        group: Processes that share the work.
        frozen: Frozen stages whose outputs the stream contains. The network then has only the trained stages.

    Attributes:
        teacher: Frozen copy of the network of the previous task, while a task is learned.
        extension: State and events of the method.
        means: Unit class means for the `nme` predictor, shape (classes seen, d).
        linear: Fitted predictors on features, by name.
        statistics: Statistics of all images of each class, if the backbone is not trained.
        similarity: Cosine similarities of class means in the previous feature space, shape (new classes, old classes).
        previous_means: Class means in the previous feature space, shape (classes seen, d), while a task is learned.
    """

    def __init__(
        self,
        network: Network,
        memory: Memory,
        config: LearnerConfig,
        stream: Stream,
        device: torch.device,
        group: ProcessGroup = SINGLE_PROCESS,
        frozen: FrozenStages | None = None,
    ):
        self.frozen = frozen
        self.network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.memory, self.config, self.stream, self.device = memory, config, stream, device
        self.group, self.pools = group, Pools(stream, memory)
        self.precision = precision_context(config.precision, device)
        self.prepare = partial(for_inference, fold=config.fold, compiled=config.compile != "none")
        self.evaluator = Evaluator(self.network, config.eval_batch_size, device, group, self.precision, self.prepare)
        if config.compile in ("all", "cuda-graphs"):
            self.network.backbone.compile(mode="reduce-overhead" if config.compile == "cuda-graphs" else None)
        self.extension = replace(config.extension) if config.extension is not None else Extension()
        self.teacher: Network | None = None
        self.means = torch.empty(0)
        self.linear: dict[str, FittedPredictor] = {}
        self.statistics: dict[int, ClassStatistics] = {}
        self.class_statistics: list[ClassStatistics] = []  # of the features that the predictors were fitted to
        self.similarity = torch.empty(0)
        self.previous_means = torch.empty(0)
        resets = any(stage.reset == "network" for stage in (config.train, *config.stages.values()))
        self.initial = copy.deepcopy((network.backbone.state_dict(), network.head.scale.data)) if resets else None

    def learn(
        self,
        task: Task,
        listener: TrainingListener,
        ready: Mapping[str, Tensor] | None = None,
        on_step: StepHook | None = None,
        resume: Resume | None = None,
    ) -> None:
        """Learn the classes of a task.

        Args:
            task: Task to learn.
            listener: Notified of steps and epochs.
            ready: Result of `first_task_tensors` of a run with identical training. Training is skipped.
            on_step: Called after every step, for example to write a checkpoint.
            resume: Position to continue from. `restore_state` must be called first.

        Raises:
            RunFailed: If weights or class means are not finite.
        """
        if not self.config.network.train_backbone:
            self._collect(task, listener)
            return
        context = self.context(task)
        if resume is None:
            self._begin_task(context, ready)
        stages = list(self.config.stages_of(task).items()) if ready is None else []
        names = [name for name, _ in stages]
        for name, stage in stages[names.index(resume.stage) if resume else 0 :]:
            self._run_stage(name, stage, context, (listener, on_step, resume))
            if self._changes_features(stage):
                self._herd(task)
        if ready is not None:
            self._herd(task)
        self._end_task(context, trained=ready is None)
        self.teacher = None
        self.previous_means = torch.empty(0)
        _check_finite(self.network.state_dict(), task)
        self._update_predictors(task)

    def _begin_task(self, context: TaskContext, ready: Mapping[str, Tensor] | None) -> None:
        """Set the teacher and extend the network by the classes of the task."""
        task = context.task
        self.teacher = None if task.is_first else self.network.frozen_copy()
        imprint = not task.is_first or self.config.network.imprint_first
        features = self._class_features(task) if imprint else ()
        self._compare_classes(task, features)
        if not task.is_first:
            self.network.grow(context.generator("grow"))
        self.network.head.grow(self._initial_weights(task, features))
        if ready is None:
            self.extension.begin_task(replace(context, teacher=self.teacher))
            self.extension.state_dict()  # reports state that cannot be saved before the task is trained
        else:
            load_first_task(self, ready)

    def context(self, task: Task) -> TaskContext:
        """Return a task as extensions see it, without a teacher."""
        return TaskContext(
            network=self.network,
            task=task,
            held_back=lambda: self._held_back(task),
            teacher=self.teacher,
            device=self.device,
            batches=partial(self.pools.batches, self.device, task),
            generator=lambda key: generator(self.config.seed, task.index, "extension", key),
        )

    def _update_predictors(self, task: Task) -> None:
        """Compute class means and predictors from the exemplars or, without a memory, from statistics."""
        if self.memory.quota(task.n_seen):
            view, variant, keep = self.stream.train_view, self.config.predict.nme_aug, self.config.keep_samples
            self.means, self.class_statistics = self.evaluator.class_means(view, self.memory.exemplars, variant, keep)
        else:
            self._add_statistics(task, self._class_features(task))
        _check_finite({"of the class means": self.means}, task)  # large weights give infinite features
        self.linear = fit_predictors(self.config.predictors, self.class_statistics, self.config.seed)

    def _add_statistics(self, task: Task, features: tuple[Tensor, ...]) -> None:
        """Add statistics of the new classes; those of earlier classes stay as they are."""
        new = [ClassStatistics.of(rows, keep_samples=self.config.keep_samples) for rows in features]
        self.statistics |= dict(zip(task.classes, new, strict=True))
        self.class_statistics = list(self.statistics.values())
        self.means = ncm(self.class_statistics).weight

    def _collect(self, task: Task, listener: TrainingListener) -> None:
        """Learn a task without training, in one pass over its images: statistics of the features are kept, and nothing
        that is known of other classes changes."""
        features = self._class_features(task)
        listener.step(task, "features", 0, 1, sum(map(len, features)), {})
        self._compare_classes(task, features)
        self._herd(task, features)
        self._add_statistics(task, features)
        _check_finite({"of the class means": self.means}, task)
        self.network.head.grow(self.means[task.n_old :])
        self.linear = fit_predictors(self.config.predictors, self.class_statistics, self.config.seed)

    def whole_network(self) -> Network:
        """Return the network from images to scores, including frozen stages."""
        if self.frozen is None:
            return self.network
        net = self.network
        backbone = join_backbone(self.frozen, net.backbone)
        return Network(backbone, net.head, relu_head=net.relu_head, frozen_norms=net.frozen_norms)

    def planned_images(self, task: Task) -> int:
        """Return the number of training images of a task over all epochs, the total of its progress.

        Args:
            task: Task.
        """
        return sum(epochs * images for epochs, images in self.pools.plan(self.config, task).values())

    def images_until(self, task: Task, resume: Resume) -> int:
        """Return the number of these images before a position in a checkpoint.

        Args:
            task: Task.
            resume: Position in the task.
        """
        plan = self.pools.plan(self.config, task)
        before = list(plan)[: list(plan).index(resume.stage)]
        images = sum(plan[stage][0] * plan[stage][1] for stage in before)
        return images + resume.position.epoch * plan[resume.stage][1] + resume.position.images

    def evaluate(self, task: Task, part: Part = "test") -> Evaluation:
        """Evaluate all predictors on the test or validation images of the classes seen so far.

        Args:
            task: Last task that has been learned.
            part: `test` or `validation`.
        """
        indices, labels = self.stream.seen_images(task.n_seen, part)
        view = self.stream.test_view if part == "test" else self.stream.train_view
        predictors = {"nme": nearest_mean(self.means), **self.linear}
        return self.evaluator.test(view, indices, labels, predictors, self.stream.task_of_classes(task.n_seen))

    def _compare_classes(self, task: Task, features: tuple[Tensor, ...]) -> None:
        """Compute class means in the previous feature space, and the cosines between new and old classes."""
        self.similarity = self.previous_means = torch.empty(0)
        if not task.is_first:
            new = torch.stack([class_mean(rows) for rows in features])
            self.similarity, self.previous_means = new @ self.means.T, torch.cat([self.means, new])

    def _initial_weights(self, task: Task, features: tuple[Tensor, ...]) -> Tensor:
        """Return the initial weights of the new classes, (new classes * proxies_per_class, d)."""
        head, spec = self.network.head, self.config.network
        random = head.init_weights(task.n_new, generator(self.config.seed, task.index, "head"))
        if not features or spec.imprint == "none":
            return random
        seed = derive(self.config.seed, task.index, spec.imprint) % 2**32
        rows = random if task.is_first else head.weight.detach().cpu()  # define the norm of the new weights
        return IMPRINTS[spec.imprint](features, rows, head.proxies_per_class, seed)

    def _held_back(self, task: Task) -> tuple[Tensor, Tensor]:
        """Return logits and labels of held-back images of all classes seen, the same number for each class."""
        indices, labels = self.pools.held_back(task)
        return self.evaluator.stored_targets(self.stream.train_view, indices, STORED_TARGETS["logits"]), labels

    def _end_task(self, context: TaskContext, *, trained: bool) -> None:
        """Correct the head as `network.after_task` specifies, and store targets with the new exemplars."""
        correction, task = self.config.network.after_task, context.task
        if correction != "none" and not task.is_first:
            AFTER_TASK[correction](context)
        if trained:  # else weights and state are those at the end of the task
            self.extension.end_task(replace(context, teacher=self.teacher))
        if self.memory.spec.store != "none":
            target, view = STORED_TARGETS[self.memory.spec.store], self.stream.train_view
            for label in task.classes:
                indices = torch.tensor(self.memory.exemplars[label])
                self.memory.stored[label] = self.evaluator.stored_targets(view, indices, target)

    def _class_features(self, task: Task) -> tuple[Tensor, ...]:
        """Return the features of the training images of each new class, (n_i, d)."""
        members = [self.pools.images(label, task) for label in task.classes]
        indices = torch.tensor([index for images in members for index in images])
        return self.evaluator.features(self.stream.train_view, indices).split([len(images) for images in members])

    def _run_stage(
        self,
        name: str,
        stage: Stage,
        context: TaskContext,
        events: tuple[TrainingListener, StepHook | None, Resume | None],
    ) -> None:
        """Run one stage, from its start or from the position in a checkpoint."""
        listener, on_step, resume = events
        task = context.task
        start = (resume.position, resume.optimizer) if resume is not None and resume.stage == name else None
        if start is None:
            self._prepare_stage(name, stage, task)
        pool = self.pools.pool(task, stage.pool)
        terms = self.config.terms if stage.loss is None else tuple(stage.loss.values())
        loss = WeightedSum(terms, task, head_only=stage.part == "head")
        inputs = StageInputs(
            name=name,
            task=task,
            network=self.network,
            teacher=self._inference_teacher(loss),
            loss=loss,
            parameters=self._trained_parameters(stage),
            batches=lambda epoch, first: self._batches(pool, stage, task, name, epoch, first),
            train_mode=not isinstance(stage, Finetune) or stage.batch_norm == "update",
            classes=self._seen_classes(pool),
            group=self.group,
            precision=self.precision,
            scaler=loss_scaler(self.config.precision, self.device),
            extension=self.extension,
            context=replace(context, teacher=self.teacher),
            generator=lambda epoch, step: generator(self.config.seed, task.index, name, epoch, "extension", step),
        )
        run_stage(inputs, stage, listener, on_step, start)

    def _prepare_stage(self, name: str, stage: Stage, task: Task) -> None:
        """Set the teacher, reset weights and select exemplars before a stage starts."""
        source = generator(self.config.seed, task.index, name, "reset")
        if stage.teacher == "current":
            self.teacher = self.network.frozen_copy()
        if stage.reset == "compress":
            self.network.compress(source)
        elif stage.reset in ("head", "network"):
            self.network.head.reset(source)
        if stage.reset == "network" and self.initial is not None:
            weights, scale = self.initial
            self.network.backbone.load_state_dict(weights)
            self.network.head.scale.data.copy_(scale)
        if stage.pool == "balanced" and name == "train":
            self._herd(task)

    def _trained_parameters(self, stage: Stage) -> list[nn.Parameter]:
        """Return the parameters that a stage trains. The others require no gradients."""
        finetune = isinstance(stage, Finetune) and stage.part == "head"
        old = finetune or not self.config.network.freeze_old
        head = self.network.head.trainable(old=old, scale=not finetune)
        if stage.part == "head":
            self.network.backbone.requires_grad_(False)
            backbone = []
        else:
            backbone = self.network.trained_backbone(newest=stage.part == "newest")
        return [*backbone, *head, *cast(Sequence[nn.Parameter], self.extension.parameters())]

    def _changes_features(self, stage: Stage) -> bool:
        """Return whether features may differ after a stage."""
        updates = not isinstance(stage, Finetune) or stage.batch_norm == "update"
        return stage is self.config.train or stage.part != "head" or (updates and not self.network.frozen_norms)

    def _seen_classes(self, pool: Pool) -> SeenClasses | None:
        """Return the class information for losses, or None in the first task."""
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
        """Reduce the exemplars of old classes, and select exemplars of new classes by their current features."""
        self.memory.shrink(task.n_seen)
        for label, rows in zip(task.classes, features or self._class_features(task), strict=True):
            self.memory.keep(label, list(self.pools.images(label, task)), rows, task.n_seen)


def _check_finite(tensors: Mapping[str, Tensor], task: Task) -> None:
    """Raise an error for tensors with infinite or NaN values: the last step can cause them without a visible loss."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise RunFailed(
                f"The weights {name} are not finite after task {task.index + 1}. Try a smaller learning rate "
                "(train.lr) or train.clip_grad_value."
            )
