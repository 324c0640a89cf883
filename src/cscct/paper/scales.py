"""The sizes at which the paper's results can be repeated.

`paper` is the whole thing. The others are its shape in small, on CIFAR-100, for a machine without a GPU: the same
methods, losses and order of events; fewer classes, images, epochs and layers. Their numbers are not the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..config import load_preset, merge
from ..methods import METHODS
from ..yamltext import Raw

USUAL_BATCH = {"cifar100": 128, "imagenet-subset": 64}  # in the paper


@dataclass(frozen=True)
class Scale:
    """Everything by the number of classes that a task brings here (`step`), where it depends on that."""

    name: str
    dataset: str
    classes: Mapping[int, int]
    first: int  # classes of the first task, where the paper has 50
    steps: Mapping[str, Mapping[int, int]]  # for each of the paper's datasets: the paper's C -> ours
    epochs: Mapping[int, int] | None  # those of a balanced stage included; None: as the network's own preset has them
    images: Mapping[int, int] | None  # training images a class; None: all
    test_images: int | None
    network: str  # in words
    shrink: int = 1  # batch and memory are so many times smaller
    lr: float | None = None  # at batch 128; None: as the preset has it for its own batch
    settings: Raw = field(default_factory=dict)  # further ones

    def protocol(self, dataset: str, B: int, C: int) -> tuple[int, int]:
        step = self.steps[dataset][C]
        return (step if B == C else self.first), step

    def memory(self, exemplars: int) -> int:
        return -(-exemplars // self.shrink)

    def summary(self) -> str:
        def by_step(values: Mapping[int, int]) -> str:
            if len(set(values.values())) == 1:
                return str(next(iter(values.values())))
            return ", ".join(f"{value} at C={step}" for step, value in values.items())

        images = "all their images" if self.images is None else f"{by_step(self.images)} training images a class"
        epochs = "" if self.epochs is None else f", epochs: {by_step(self.epochs)}"
        return (
            f"{by_step(self.classes)} classes of CIFAR-100 (B={self.first} where the paper has 50), {images}, "
            f"{self.network}{epochs}, batch {128 // self.shrink} for the paper's 128, "
            f"{self.memory(20)} exemplars a class for its 20, one thread"
        )

    def layer(self, base: str, dataset: str, B: int, C: int, memory: int, batch_size: int) -> Raw:
        """The settings of a cell at this scale."""
        first, step = self.protocol(dataset, B, C)
        layer: Raw = {
            "protocol": {"base": first, "step": step},
            "data": {"classes": self.classes[step], "test_per_class": self.test_images},
            "train": {"batch_size": batch_size * 128 // USUAL_BATCH[dataset] // self.shrink},
            "memory": {"per_class": self.memory(memory)},
            "runtime": {"threads": 1},
        }
        if self.lr is not None:
            layer["train"]["lr"] = self.lr * layer["train"]["batch_size"] / 128
        if self.images is not None:
            layer["data"]["train_per_class"] = self.images[step]
        if METHODS[base].settings.get("finetune"):
            layer["finetune"] = {"batch_size": 128 // self.shrink}
        if self.epochs is not None:
            epochs = self.epochs[step]
            balanced = max(1, epochs // 8) if "finetune" in layer else 0  # 20 of 160; they are among the epochs
            layer["train"]["epochs"] = epochs - balanced
            if balanced:
                layer["finetune"]["epochs"] = balanced
        merge(layer, self.settings)
        if dataset != self.dataset:  # what the recipe for the paper's dataset says of the losses
            layer["loss"] = dict(load_preset(dataset)["bases"][METHODS[base].preset_name].get("loss", {}))
        return layer


SCALES: dict[str, Scale | None] = {
    "paper": None,
    # At most 2 minutes a run on one core, at least 6 tasks.
    "cpu": Scale(
        name="cpu",
        dataset="cifar100",
        classes={1: 40, 2: 40, 4: 40},
        first=20,
        steps={"cifar100": {1: 1, 2: 2, 5: 4}, "imagenet-subset": {2: 1, 5: 2, 10: 4}},
        epochs={1: 6, 2: 6, 4: 6},
        images={1: 50, 2: 80, 4: 120},
        test_images=20,
        network="ResNet-8",
        shrink=4,
        settings={"network": {"depth": 8}},
    ),
    # At most 25 minutes a run on one core.
    "cpu-large": Scale(
        name="cpu-large",
        dataset="cifar100",
        classes={1: 60, 2: 60, 5: 60},
        first=30,
        steps={"cifar100": {1: 1, 2: 2, 5: 5}, "imagenet-subset": {2: 1, 5: 2, 10: 5}},
        epochs={1: 6, 2: 9, 5: 12},
        images=None,
        test_images=None,
        network="ResNet-8",
        settings={"network": {"depth": 8}},
    ),
    # About a quarter of an hour a run on one core at C=1 and 2. Seeds change the class order too.
    "cpu-deep": Scale(
        name="cpu-deep",
        dataset="cifar100",
        classes={1: 58, 2: 58, 5: 70},
        first=50,
        steps={"cifar100": {1: 1, 2: 2, 5: 5}, "imagenet-subset": {2: 1, 5: 2, 10: 5}},
        epochs={1: 20, 2: 20, 5: 20},
        images={1: 240, 2: 240, 5: 240},  # of 250, a batch of 4 would end some epochs and upset batch norm
        test_images=None,
        network="ResNet-14",
        settings={"network": {"depth": 14}, "data": {"order": "seed"}, "train": {"schedule": {"offset": 0}}},
    ),
    # The upper stages of a pretrained network: a few minutes a run on one core, all 100 classes. Seeds change the class
    # order too.
    "cpu-pretrained": Scale(
        name="cpu-pretrained",
        dataset="cifar100",
        classes={2: 100, 5: 100, 10: 100},
        first=50,
        steps={"cifar100": {1: 2, 2: 5, 5: 10}, "imagenet-subset": {2: 2, 5: 5, 10: 10}},
        epochs=None,
        images={2: 100, 5: 100, 10: 100},
        test_images=50,
        network="the last stages of EfficientNet-Lite0, pretrained on ImageNet, at 96 pixels",
        lr=0.05,  # of 0.012, 0.05 and 0.1, tried with icarl and lucir in a class order that is not reported
        settings={
            "network": {"backbone": "efficientnet-lite0", "train_from": 6},
            "data": {"transform": {"size": 96}, "order": "seed"},
        },
    ),
}


def in_words(name: str) -> str:
    scale = SCALES[name]
    return "the paper's own" if scale is None else scale.summary()
