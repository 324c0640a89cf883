"""The plain values that describe a way of learning. The settings validate them; the parts take them as they are.

Ranges stand in the annotations, so that a wrong value is refused where it enters and nowhere checked twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Triple = Annotated[tuple[float, ...], Field(min_length=1, max_length=3)]


@dataclass(frozen=True)
class Spec:
    """Base of all settings sections: unknown keys, wrong types, NaN and infinity are refused."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "strict": True,
        "allow_inf_nan": False,
    }


@dataclass(frozen=True)
class Schedule(Spec):
    """The learning rate of each epoch. Epochs count from 0.

    `offset` shifts the clock: the released CSCCT code steps its scheduler before the epoch (offset 1, so that a
    milestone of 80 acts from epoch 79), PODNet's uses the rate of the epoch before (offset −1).
    """

    kind: Literal["constant", "multistep", "cosine"] = "constant"
    milestones: tuple[PositiveInt, ...] = ()
    factor: PositiveFloat = 0.1
    offset: int = 0

    def rate(self, lr: float, epoch: int, epochs: int) -> float:
        clock = max(0, epoch + self.offset)
        if self.kind == "multistep":
            return lr * self.factor ** sum(clock >= milestone for milestone in self.milestones)
        if self.kind == "cosine":
            return lr * (1 + math.cos(math.pi * clock / epochs)) / 2
        return lr


@dataclass(frozen=True)
class Stage(Spec):
    """One stretch of training with an optimiser of its own."""

    epochs: PositiveInt
    batch_size: PositiveInt = 128
    drop_last: bool = False  # whether an epoch ends before a last batch that is not full
    optimizer: str = "sgd"  # a name in OPTIMIZERS
    lr: PositiveFloat = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # of sgd
    weight_decay: NonNegativeFloat = 5e-4
    schedule: Schedule = field(default_factory=Schedule)
    clamp_gradients: PositiveFloat | None = None  # elementwise, to ± this

    def steps(self, samples: int) -> int:
        """Batches of an epoch over so many samples. What does not fill even one batch is not dropped."""
        full = samples // self.batch_size
        return full if self.drop_last and full else math.ceil(samples / self.batch_size)

    def images(self, samples: int) -> int:
        """How many of the samples an epoch has."""
        return min(samples, self.steps(samples) * self.batch_size)


@dataclass(frozen=True)
class Finetune(Stage):
    """The balanced stage after a task (not the first): exemplars of all classes, classifier weights only, old rows
    included; the scale and the backbone keep their values."""

    batch_norm: Literal["drift", "frozen"] = "drift"  # whether the running statistics follow the exemplars


@dataclass(frozen=True)
class NetworkSpec(Spec):
    """The network, and what becomes of the rows of its head. Names are those in BACKBONES, HEADS, IMPRINTS and
    AFTER_TASK, to which plugins may add."""

    backbone: str = "lucir-resnet"  # or ARCHITECTURE:FILE.safetensors, with weights to start from, or timm:NAME
    depth: PositiveInt = 32
    pretrained: bool = True  # starts from the backbone's own weights, where it has some; false: from random ones
    train_from: Count = 0  # the first stage that is trained; those before it keep their weights
    views: PositiveInt = 4  # augmented views of each image, where stages are frozen: their outputs are kept
    batch_norm: Literal["train", "frozen"] = "train"  # frozen: running statistics are used in training, and kept
    head: str = "cosine"
    rows_per_class: PositiveInt = 1
    relu_head: bool = False  # the head reads the feature with its last ReLU (the original iCaRL)
    scale: PositiveFloat = 1.0  # where the learned scale of the cosine and proxies heads starts
    imprint: str = "mean"  # how rows of new classes start, from the second task on; none: at random
    imprint_first: bool = False  # in the first task too, for a network whose features say something from the start
    freeze_old: bool = True  # rows of old classes keep their bits while new classes are learned
    trained: bool = True  # false: stays as it is at the start, and classes are told by statistics of all their images
    after_task: str = "none"  # what is done to the head when a task, not the first, has been learned


@dataclass(frozen=True)
class MemorySpec(Spec):
    """Fixed per class (memory grows), or a fixed total shared by the classes seen (exemplars shrink).

    Names of forms of herding are those in HERDINGS, of what exemplars carry those in PAYLOADS; plugins may add to both.
    """

    policy: Literal["per_class", "total"] = "per_class"
    per_class: PositiveInt = 20
    total: PositiveInt = 2000
    rounding: Literal["floor", "ceil"] = "floor"  # of total / classes seen; the released code uses ceil
    herding: str = "official"
    carry: str = "none"  # what is stored with an exemplar when it is chosen, and given to the losses
    held_back: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the memory kept out of training, for `after_task`

    def quota(self, classes_seen: int) -> int:
        """Images of a class that may be kept. A total smaller than the number of classes still leaves one each."""
        if self.policy == "per_class":
            return self.per_class
        share = self.total / classes_seen
        return max(1, math.ceil(share) if self.rounding == "ceil" else math.floor(share))

    def held_back_of(self, classes_seen: int) -> int:
        """How many of them are held back: at least one where any are to be, but never all."""
        if not self.held_back:
            return 0
        quota = self.quota(classes_seen)
        return min(max(1, math.floor(self.held_back * quota)), quota - 1)

    def exemplars_of(self, classes_seen: int) -> int:
        """How many of them are exemplars, to be trained on."""
        return self.quota(classes_seen) - self.held_back_of(classes_seen)


@dataclass(frozen=True)
class TransformSpec(Spec):
    """How pixels become inputs. In-memory images are cropped from a zero-padded copy, and then resized if a `size` is
    given; files get a random resized crop of `size` pixels in training and resize + centre crop in testing."""

    size: PositiveInt | None = None  # side in pixels of what the network sees; None: as stored, for in-memory sets
    reduced_decoding: bool = True  # JPEGs at 1/2, 1/4 or 1/8 of their size, where the crop stays larger than `size`
    padding: Count = 4
    flip: bool = True
    brightness: Annotated[float, Field(ge=0, le=1)] = 0.0
    mean: Triple = (0.5,)
    std: Annotated[tuple[PositiveFloat, ...], Field(min_length=1, max_length=3)] = (0.5,)

    @property
    def short_side(self) -> int:
        """To which files are resized before the central square of `size` pixels is taken: 256 for 224."""
        return round((self.size or 0) * 256 / 224)


@dataclass(frozen=True)
class PredictSpec(Spec):
    # Which prediction the method stands for; all are measured
    headline: Literal["classifier", "nme", "lda", "ridge"] = "classifier"
    nme_aug: Literal["hflip", "bgr", "none"] = "hflip"  # second view of the exemplars in the class means
