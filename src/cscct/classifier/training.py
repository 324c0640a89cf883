"""Training of the network of a model on new classes with a class-incremental method."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..config import Settings, resolve
from ..config.layers import load_preset
from ..data import Stream
from ..data.inputs import ImageFormat, Item, ItemReader
from ..data.registry import Progress
from ..features import class_mean
from ..learn.build import learner_with
from ..learn.learner import Learner
from ..nets import IMPRINTS, Network, StagedBackbone
from ..seeding import derive, generator
from ..structs import Task
from ..yamltext import Raw
from .exemplars import HELD_OUT_EVERY
from .labels import Label
from .networks import default_depth, network_with_head
from .reader import NetworkReader

if TYPE_CHECKING:
    from .estimator import IncrementalClassifier

INITIAL_SCALE = 10.0  # scale of a cosine head that is trained after a training-free model
Images = Mapping[Label, Sequence[Item]]


@dataclass(frozen=True)
class TrainingState:
    """What a model whose network comes from training keeps besides its network and exemplars.

    Attributes:
        config: The settings of the training, as `config.yaml` of a run has them.
        means: (classes, d) class means of the `nme` predictor.
        tasks: Number of tasks that the network was trained on.
        stored: Stored targets of the exemplars, by label; see `memory.store`.
        labels: Classes whose images the network was trained on.
        held_out: Whether every fifth exemplar is held out from training.
        task_sizes: Number of classes of each task; empty if unknown.
        extension: State of the method's extension, by name.
    """

    config: Raw
    means: Tensor
    tasks: int
    stored: Mapping[Label, Tensor] = field(default_factory=dict)
    labels: Sequence[Label] = ()
    held_out: bool = True
    task_sizes: Sequence[int] = ()
    extension: Mapping[str, Tensor] = field(default_factory=dict)

    def settings(self, device: str) -> Settings:
        """Return the settings, for training on a device."""
        return resolve(config=self.config, overrides=[{"runtime": {"device": device, "threads": 0}}])


@dataclass(frozen=True)
class TrainingData:
    """Images of one training task, by label.

    Attributes:
        memory: Exemplars of the known classes, in rank order.
        more: Further images of known classes, trained on together with the exemplars.
        new: Images of the new classes.
    """

    memory: Images
    more: Images
    new: Images


@dataclass(frozen=True)
class TrainingResult:
    """A trained network, and the exemplars it was left with.

    Attributes:
        network: The whole network, frozen stages included.
        state: What the model keeps besides.
        exemplars: Images of each class in rank order, not encoded. Images that `memory.held_back` reserves follow.
    """

    network: Network
    state: TrainingState
    exemplars: dict[Label, list[Item]]


class _ProgressListener:
    """Reports trained images to `progress`."""

    def __init__(self, progress: Progress, total: int):
        self.progress, self.total, self.done = progress, total, 0

    def step(self, task: Task, stage: str, epoch: int, epochs: int, images: int, parts: dict[str, float]) -> None:
        self.done = min(self.total, self.done + images)
        self.progress("training", self.done, self.total)

    def epoch(self, record: dict[str, Any]) -> None:
        pass


def settings_for(model: IncrementalClassifier, reader: NetworkReader, method: str) -> Settings:
    """Return the settings with which a model is trained for the first time: those of the preset of its backbone. A
    backbone that is not divided into stages is trained as a whole."""
    quota = model.memory_per_class - model.memory_per_class // HELD_OUT_EVERY
    wanted: Raw = {
        "seed": model.random_state,
        "memory": {"policy": "per_class", "per_class": max(1, quota)},
        "predict": {"nme_aug": "none"},
        "runtime": {"device": model.device, "eval_batch_size": model.batch_size},
    }
    layers: list[Raw] = [wanted]
    if isinstance(model.backbone, str):
        depth = default_depth(model.backbone)  # that of the network which the model has already
        wanted["network"] = {**wanted.get("network", {}), "backbone": model.backbone, "depth": depth}
    else:
        layers.insert(0, load_preset("pretrained")["common"])
    if not isinstance(reader.network.backbone, StagedBackbone):
        wanted["network"] = {**wanted.get("network", {}), "train_from": 0}
    return resolve(method, "folder", overrides=layers)


def train(
    reader: NetworkReader, settings: Settings, state: TrainingState | None, data: TrainingData, progress: Progress
) -> TrainingResult:
    """Train a copy of a network on new classes.

    Args:
        reader: The current network and the format of its images.
        settings: Those of the training.
        state: Of a network that was trained before, with the same classes in the same order; else None.
        data: The images.
        progress: Called with a description, the number of images trained and the total.
    """
    labels = [*data.memory, *data.new]
    sizes = tuple(state.task_sizes) if state and sum(state.task_sizes) == len(data.memory) else ()
    task = Task(state.tasks if state else int(bool(data.memory)), len(data.memory), len(data.new), sizes)
    reserved = settings.memory.held_back_of(task.n_old) if data.memory else 0  # the last exemplars of each class
    trained: dict[Label, list[Item]] = {}
    items: dict[Label, list[Item]] = {}
    for label in labels:
        exemplars = list(data.memory.get(label, ()))
        held = exemplars[len(exemplars) - reserved :] if reserved and len(exemplars) > reserved else []
        trained[label] = [*exemplars[: len(exemplars) - len(held)], *data.more.get(label, ())]
        items[label] = [*trained[label], *held, *data.new.get(label, ())]
    learner = _build_learner(reader, settings, state, items, task)
    for index, label in enumerate(data.memory):
        learner.memory.exemplars[index] = list(learner.stream.train[index][: len(trained[label])])
        if state is not None and label in state.stored:
            learner.memory.stored[index] = _padded(state.stored[label], len(trained[label]))
    if data.memory:
        _prepare_memory(learner, settings, state, list(data.memory))
    if state is not None:
        learner.extension.load_state_dict({name: rows.to(learner.device) for name, rows in state.extension.items()})
    learner.learn(task, _ProgressListener(progress, learner.planned_images(task)))
    everything = [item for label in labels for item in items[label]]
    kept: dict[Label, list[Item]] = {}
    count = settings.memory.held_back_of(task.n_seen)
    for index, label in enumerate(labels):
        last = learner.stream.train[index][1:][-count:] if count else ()
        kept[label] = [everything[i] for i in (*learner.memory.exemplars[index], *last)]
    stored = {labels[index]: rows for index, rows in learner.memory.stored.items()}
    new_state = TrainingState(
        config=settings.dump(),
        means=learner.means,
        tasks=task.index + 1,
        stored=stored,
        labels=labels,
        held_out=state.held_out if state else True,
        task_sizes=[len(classes) for classes in task.task_classes],
        extension={name: tensor.cpu() for name, tensor in learner.extension.state_dict().items()},
    )
    return TrainingResult(learner.whole_network().cpu(), new_state, kept)


def _build_learner(
    reader: NetworkReader, settings: Settings, state: TrainingState | None, items: Images, task: Task
) -> Learner:
    """A learner with a copy of the network, and a stream of the images."""
    network = copy.deepcopy(reader.network)
    if state is None or task.is_first or network.head.classes != task.n_old:
        network = network_with_head(network.backbone, settings.network)
        if isinstance(network.head.scale, nn.Parameter):
            scale = settings.network.scale
            nn.init.constant_(network.head.scale, max(scale, INITIAL_SCALE) if task.n_old else scale)
    format = _training_format(reader.format, settings)
    view = ItemReader([item for images in items.values() for item in images], format).view()
    train, start = [], 0
    for images in items.values():
        train.append(tuple(range(start, start + len(images))))
        start += len(images)
    members = tuple(train)  # nothing is tested, but frozen stages need at least one image of each part
    stream = Stream((task,), tuple(map(str, items)), view, view, members, members)
    return learner_with(network, settings, stream)


def _training_format(format: ImageFormat, settings: Settings) -> ImageFormat:
    """The format with the augmentation of the settings; size and normalisation stay those of the model."""
    transform = settings.data.transform
    augmented = replace(
        format.transform,
        flip=transform.flip,
        padding=transform.padding,
        brightness=transform.brightness,
        reduced_decoding=transform.reduced_decoding,
        augment=transform.augment,
    )
    return replace(format, transform=augmented)


def _prepare_memory(learner: Learner, settings: Settings, state: TrainingState | None, old: Sequence[Label]) -> None:
    """Set the class means of the known classes and, where the head has no weights for them, its weights."""
    head, spec = learner.network.head, settings.network
    if state is not None and len(state.means) == len(old) and head.classes == len(old):
        learner.means = state.means
        return
    view, exemplars = learner.stream.train_view, learner.memory.exemplars
    features = [learner.evaluator.features(view, torch.tensor(exemplars[index])) for index in range(len(old))]
    learner.means = torch.stack([class_mean(rows) for rows in features])
    if head.classes == 0:
        initial = head.init_weights(len(old), generator(settings.seed, "head"))
        name = "mean" if spec.imprint == "none" else spec.imprint
        head.grow(IMPRINTS[name](features, initial, spec.proxies_per_class, derive(settings.seed, name) % 2**32))


def _padded(rows: Tensor, count: int) -> Tensor:
    """Stored targets with one row per image; images without stored targets get NaN."""
    padded = torch.full((count, rows.shape[1]), torch.nan)
    padded[: min(count, len(rows))] = rows[:count]
    return padded


def why_not_trainable(memory: Images, new: Mapping[Label, int], *, held_out: bool) -> str | None:
    """Return why a network cannot be trained on new classes, or None.

    Args:
        memory: Trainable exemplars of the known classes.
        new: Number of images of each new class.
        held_out: Whether every fifth image is held out.
    """
    if not new:
        return "There are no new classes to train on."
    if len(memory) + len(new) < 2:
        return "Training needs at least two classes."
    missing = [str(label) for label, images in memory.items() if not images]
    if missing:
        return (
            f"Training needs exemplars of the known classes, and none are stored for {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''} (see memory_mb and memory_per_class)."
        )
    smallest = min(new, key=lambda label: new[label])
    if held_out and new[smallest] < HELD_OUT_EVERY:
        return f"Training needs {HELD_OUT_EVERY} images per class, one for evaluation; {smallest} has {new[smallest]}."
    return None
