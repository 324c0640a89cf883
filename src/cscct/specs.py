"""Sections of the settings that describe how a method learns, as plain dataclasses.

Annotations hold the valid ranges: values are checked once, when the settings are resolved. The string below each field
is its description in docs/settings.md and `cscct config --describe`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt, StringConstraints

Count = Annotated[int, Field(ge=0)]
EVERY_IMAGE = 2**62  # quota of the memory policy `all`
Fraction = Annotated[float, Field(gt=0, lt=1)]
Triple = Annotated[tuple[float, ...], Field(min_length=1, max_length=3)]


def _check_option(value: Any) -> Any:
    """Accept a finite scalar or a list of such; a list becomes a tuple, as in the arguments of `torch.optim`."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, list | dict) or (isinstance(item, float) and not math.isfinite(item)):
            raise ValueError("must be a finite number, a string, a boolean, null or a list of these")
    return tuple(value) if isinstance(value, list) else value


def _check_augment(value: tuple[Any, ...]) -> tuple[dict[str, dict[str, Any]], ...]:
    """Turn names and mappings with one name into `{name: options}`."""
    entries = []
    for entry in value:
        options = {entry: {}} if isinstance(entry, str) else entry
        if not isinstance(options, dict) or len(options) != 1 or not isinstance(next(iter(options)), str):
            raise ValueError("must be a list of names, or of {name: {option: value}}")
        ((name, chosen),) = options.items()
        if not isinstance(chosen, dict | None):
            raise ValueError(f"the options of {name} must be a mapping, such as {{{name}: {{option: value}}}}")
        entries.append({name: dict(chosen or {})})
    return tuple(entries)


OptimizerOption = Annotated[Any, AfterValidator(_check_option)]


@dataclass(frozen=True)
class Spec:
    """Base class of the sections of the settings: unknown keys, wrong types, NaN and infinity are errors."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }


@dataclass(frozen=True)
class Schedule(Spec):
    """Learning rate of each epoch. Epochs count from 0."""

    kind: Literal["constant", "multistep", "cosine"] = "constant"
    """How the learning rate changes. `cosine` decays it to 0 over the epochs."""
    milestones: tuple[PositiveInt, ...] = ()
    """Epochs from which a `multistep` schedule multiplies the rate by `factor`. They are scaled in proportion if only
    the number of epochs is changed."""
    factor: PositiveFloat = 0.1
    """Factor of a `multistep` schedule."""
    epoch_offset: int = 0
    """Added to the epoch. The released CSCCT code steps its scheduler before the epoch (1: a milestone of 80 acts from
    epoch 79), PODNet's code uses the rate of the previous epoch (-1)."""

    def rate(self, lr: float, epoch: int, epochs: int) -> float:
        """Return the learning rate of an epoch.

        Args:
            lr: Initial learning rate.
            epoch: Number of the epoch, from 0.
            epochs: Number of epochs in total.
        """
        clock = max(0, epoch + self.epoch_offset)
        if self.kind == "multistep":
            return lr * self.factor ** sum(clock >= milestone for milestone in self.milestones)
        if self.kind == "cosine":
            return lr * (1 + math.cos(math.pi * clock / epochs)) / 2
        return lr


@dataclass(frozen=True)
class Stage(Spec):
    """A stage of training with its own optimizer."""

    epochs: PositiveInt
    """Number of epochs."""
    batch_size: PositiveInt = 128
    """Images per batch, new images and exemplars together."""
    drop_last: bool = False
    """Whether an incomplete last batch of an epoch is dropped."""
    optimizer: Annotated[str, StringConstraints(to_lower=True)] = "sgd"
    """Name of a class of `torch.optim`, or of a registered optimizer; case does not matter."""
    optimizer_options: dict[str, OptimizerOption] = field(default_factory=dict)
    """Further arguments of the optimizer, such as `{betas: [0.9, 0.99]}`."""
    lr: PositiveFloat = 0.1
    """Initial learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of optimizers that have one, such as `sgd` and `rmsprop`."""
    weight_decay: NonNegativeFloat = 5e-4
    """Weight decay."""
    schedule: Schedule = field(default_factory=Schedule)
    clip_grad_value: PositiveFloat | None = None
    """Every element of a gradient is clipped to ± this value; null: no clipping."""
    pool: Literal["all", "new", "memory", "balanced"] = "all"
    """Images of the stage: the images of the new classes and the exemplars of old classes (`all`), one of the two
    (`new`, `memory`), or exemplars of all classes, which are selected before the stage (`balanced`)."""
    part: Literal["all", "newest", "head"] = "all"
    """What is trained: the whole network, the part of a growing backbone that the task added together with the head, or
    the head."""
    teacher: Literal["previous", "current"] = "previous"
    """The teacher: the network after the previous task, or the network at the start of the stage."""
    reset: Literal["none", "head", "network", "compress"] = "none"
    """What is reset before the stage: nothing, the weights of the head, all weights, or a growing backbone to its first
    part."""
    loss: dict[str, Any] | None = None
    """Losses of the stage by name, each with its settings; null: those of the method."""

    sampler: str = "shuffle"
    """How the samples of an epoch are divided into batches: `shuffle` (every sample once, in random order), `mixed`
    (every new image once, with a fixed fraction of exemplars in each batch), `replay` (the same with `batch_size` new
    images and equally many exemplars), `sequential` (new images in the order of the dataset), or a registered
    sampler."""
    old_fraction: Fraction = 0.5
    """Fraction of exemplars in each batch of the `mixed` sampler. Exemplars are repeated within an epoch as needed."""
    views: Literal[1, 2] = 1
    """Augmented views of each image in a batch. With 2, the networks are evaluated on both, for losses that compare
    them."""


@dataclass(frozen=True)
class Finetune(Stage):
    """A stage after the training of each task but the first. By default only the classifier is trained, on the
    exemplars of all classes. The weights of old classes are trained too; the scale and the backbone are not."""

    batch_norm: Literal["update", "frozen"] = "update"
    """Whether the running statistics of batch norm are updated."""
    pool: Literal["all", "new", "memory", "balanced"] = "balanced"
    """See `train.pool`."""
    part: Literal["all", "newest", "head"] = "head"
    """See `train.part`. With `head`, the weights of old classes are trained and the scale is not."""
    first_task: bool = False
    """Whether the stage follows the first task, too."""


@dataclass(frozen=True)
class NetworkSpec(Spec):
    """Backbone and head."""

    backbone: str = "lucir-resnet"
    """Name of the backbone, `ARCHITECTURE:FILE.safetensors` to start from the weights in a file, `timm:NAME` or
    `timm:NAME:FILE.safetensors`."""
    depth: PositiveInt = 32
    """Number of layers, for backbones that come in several depths."""
    pretrained: bool = True
    """Whether a backbone with pretrained weights starts from them; false: from random weights."""
    train_from: Count = 0
    """Index of the first stage of the backbone that is trained. Earlier stages are frozen."""
    cached_views: PositiveInt = 4
    """Augmented views of each image for which the outputs of frozen stages are stored."""
    batch_norm: Literal["train", "frozen"] = "train"
    """Mode of batch norm in training; `frozen`: the running statistics are used and not updated."""
    head: str = "cosine"
    """Name of the classification head."""
    proxies_per_class: PositiveInt = 1
    """Weight vectors per class of the `proxies` head."""
    relu_head: bool = False
    """Whether a ReLU is applied to the features before the head, as in the original iCaRL."""
    scale: PositiveFloat = 1.0
    """Initial value of the learned scale of the `cosine` and `proxies` heads."""
    imprint: str = "mean"
    """How the weights of new classes are initialised, from the second task on; `none`: at random."""
    imprint_first: bool = False
    """Whether weights are also imprinted in the first task, for backbones with pretrained features."""
    freeze_old: bool = True
    """Whether the weights of old classes are frozen while new classes are learned."""
    train_backbone: bool = True
    """Whether the network is trained; false: classes are predicted from statistics of the features of all their
    images."""
    after_task: str = "none"
    """Function that is applied to the head after each task but the first."""
    expand: Literal["none", "extractor", "block"] = "none"
    """What the backbone adds at each task but the first: nothing, a copy of itself, or a copy of its last stage. The
    features of all copies are concatenated, and only the newest copy is trained."""


@dataclass(frozen=True)
class MemorySpec(Spec):
    """The exemplar memory."""

    policy: Literal["per_class", "total", "all"] = "per_class"
    """A fixed number of exemplars per class, so that the memory grows, a fixed total that all classes share, or all
    images."""
    per_class: Count = 20
    """Exemplars per class, with the policy `per_class`. Without exemplars (0), class means and predictors are computed
    from statistics of the features that a class had when it was learned."""
    total: PositiveInt = 2000
    """Exemplars in total, with the policy `total`."""
    rounding: Literal["floor", "ceil"] = "floor"
    """Rounding of `total` divided by the number of classes seen. The released code of LUCIR and CSCCT uses `ceil`."""
    herding: str = "official"
    """How exemplars are selected."""
    store: str = "none"
    """Output of the network that is stored with an exemplar when it is selected, as a target of losses."""
    held_back: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the memory that is not trained on and is used by `network.after_task`."""

    def quota(self, classes_seen: int) -> int:
        """Return the largest number of images of a class in the memory: with a total, at least one."""
        if self.policy == "all":
            return EVERY_IMAGE
        if self.policy == "per_class":
            return self.per_class
        share = self.total / classes_seen
        return max(1, math.ceil(share) if self.rounding == "ceil" else math.floor(share))

    def held_back_of(self, classes_seen: int) -> int:
        """Return how many images of a class are held back: with a positive fraction at least one, but never all."""
        quota = self.quota(classes_seen)
        if not self.held_back or not quota:
            return 0
        return min(max(1, math.floor(self.held_back * quota)), quota - 1)

    def exemplars_of(self, classes_seen: int) -> int:
        """Return how many images of a class are exemplars that are trained on."""
        return self.quota(classes_seen) - self.held_back_of(classes_seen)


@dataclass(frozen=True)
class TransformSpec(Spec):
    """Augmentation and normalisation. Images in memory are cropped from a zero-padded copy, and resized if `size` is
    set. Image files get a random resized crop in training, and a resize and centre crop in evaluation."""

    size: PositiveInt | None = None
    """Height and width of the input in pixels; null: the size of the images, which must be in memory."""
    reduced_decoding: bool = True
    """Whether JPEG files are decoded at 1/2, 1/4 or 1/8 of their size where the crop remains larger than `size`."""
    padding: Count = 4
    """Zero padding in pixels before the random crop of images in memory."""
    flip: bool = True
    """Whether images are flipped horizontally at random."""
    brightness: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Largest relative change of the brightness."""
    mean: Triple = (0.5,)
    """Mean that is subtracted from each channel, for pixel values from 0 to 1."""
    std: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=3)] = (0.5,)
    """Standard deviation by which each channel is divided."""
    augment: Annotated[tuple[Any, ...], AfterValidator(_check_augment)] = ()
    """Further augmentations of training images, after the flip and in this order: names, or `{name: {option: value}}`
    such as `[{randaugment: {magnitude: 5}}, cutout]`."""

    crop_ratio: Annotated[float, Field(gt=0, le=1)] = 0.875
    """Side of the centre crop of image files, divided by the shorter side of the resized image: 224 of 256 pixels."""
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    """Interpolation when image files are resized."""

    @property
    def short_side(self) -> int:
        """Shorter side to which image files are resized before the centre crop of `size` pixels: 256 for 224."""
        return round((self.size or 0) / self.crop_ratio)


@dataclass(frozen=True)
class PredictSpec(Spec):
    """Prediction."""

    predictor: str = "classifier"
    """Predictor that the method is evaluated with. Every run measures `classifier`, `nme`, `lda` and `ridge` too."""
    nme_aug: Literal["hflip", "bgr", "none"] = "hflip"
    """Second view of the exemplars in the class means: a horizontal flip, reversed colour channels (as in the released
    code of LUCIR and CSCCT), or none."""
    options: dict[str, dict[str, Any] | None] = field(default_factory=dict)
    """Settings of predictors on features, by name. The predictors named here are measured too; null: not."""
