"""Scales at which the paper's results can be reproduced.

`paper` is the published experiment. The others are smaller versions of it on CIFAR-100, for machines without a GPU: the
same methods and losses; fewer classes, images, epochs and layers. Their numbers are not comparable with the paper's.
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
    """A smaller version of the paper's experiments.

    Attributes:
        dataset: Dataset that replaces those of the paper.
        classes: Number of classes.
        first: Classes of the first task where the paper has 50.
        steps: For each dataset of the paper, its C and the C of this scale.
        epochs: Epochs per task, those of a balanced stage included. None: those of the preset.
        images: Training images per class, by the C of this scale.
        test_images: Test images per class.
        network: Description of the network.
        shrink: Factor by which batches and memory are smaller.
        lr: Learning rate at batch size 128. None: that of the preset.
        settings: Further settings.
    """

    dataset: str
    classes: int
    first: int
    steps: Mapping[str, Mapping[int, int]]
    epochs: int | None
    images: Mapping[int, int]
    test_images: int
    network: str
    shrink: int = 1
    lr: float | None = None
    settings: Raw = field(default_factory=dict)

    def protocol(self, dataset: str, B: int, C: int) -> tuple[int, int]:
        """Return B and C of this scale for those of the paper."""
        step = self.steps[dataset][C]
        return (step if B == C else self.first), step

    def memory(self, exemplars: int) -> int:
        """Return the exemplars per class of this scale for those of the paper."""
        return -(-exemplars // self.shrink)

    def summary(self) -> str:
        """Describe the scale in one line."""
        counts = [f"{images} at C={step}" for step, images in self.images.items()]
        if len(set(self.images.values())) == 1:
            counts = [str(next(iter(self.images.values())))]
        epochs = "" if self.epochs is None else f", {self.epochs} epochs per task"
        return (
            f"{self.classes} classes of CIFAR-100 (B={self.first} where the paper has 50), {', '.join(counts)} "
            f"training images per class, {self.network}{epochs}, batch size {128 // self.shrink} for the paper's 128, "
            f"{self.memory(20)} exemplars per class for its 20, one thread"
        )

    def layer(self, base: str, dataset: str, B: int, C: int, memory: int, batch_size: int) -> Raw:
        """Return the settings of a published result at this scale.

        Args:
            base: Name of the base method.
            dataset: Dataset of the paper.
            B: Classes of the first task in the paper.
            C: Classes of later tasks in the paper.
            memory: Exemplars per class in the paper.
            batch_size: Batch size in the paper.
        """
        first, step = self.protocol(dataset, B, C)
        layer: Raw = {
            "protocol": {"base": first, "step": step},
            "data": {
                "classes": self.classes,
                "train_per_class": self.images[step],
                "test_per_class": self.test_images,
            },
            "train": {"batch_size": batch_size * 128 // USUAL_BATCH[dataset] // self.shrink},
            "memory": {"per_class": self.memory(memory)},
            "runtime": {"threads": 1},
        }
        if self.lr is not None:
            layer["train"]["lr"] = self.lr * layer["train"]["batch_size"] / 128
        if METHODS[base].settings.get("finetune"):
            layer["finetune"] = {"batch_size": 128 // self.shrink}
        if self.epochs is not None:
            balanced = max(1, self.epochs // 8) if "finetune" in layer else 0  # 20 of 160 in the paper
            layer["train"]["epochs"] = self.epochs - balanced
            if balanced:
                layer["finetune"]["epochs"] = balanced
        merge(layer, self.settings)
        if dataset != self.dataset:  # loss weights of the recipe for the paper's dataset
            layer["loss"] = dict(load_preset(dataset)["bases"][METHODS[base].preset_name].get("loss", {}))
        return layer


SCALES: dict[str, Scale | None] = {
    "paper": None,
    # At most 2 minutes per run on one core, at least 6 tasks
    "cpu": Scale(
        dataset="cifar100",
        classes=40,
        first=20,
        steps={"cifar100": {1: 1, 2: 2, 5: 4}, "imagenet-subset": {2: 1, 5: 2, 10: 4}},
        epochs=6,
        images={1: 50, 2: 80, 4: 120},
        test_images=20,
        network="ResNet-8",
        shrink=4,
        settings={"network": {"depth": 8}},
    ),
    # The last stages of a pretrained network: a few minutes per run on one core, all 100 classes. The class order
    # depends on the seed.
    "cpu-pretrained": Scale(
        dataset="cifar100",
        classes=100,
        first=50,
        steps={"cifar100": {1: 2, 2: 5, 5: 10}, "imagenet-subset": {2: 2, 5: 5, 10: 10}},
        epochs=None,
        images={2: 100, 5: 100, 10: 100},
        test_images=50,
        network="the last stages of EfficientNet-Lite0, pretrained on ImageNet, at 96 pixels",
        lr=0.05,  # of 0.012, 0.05 and 0.1, with icarl and lucir in a class order that is not reported
        settings={
            "network": {"backbone": "efficientnet-lite0", "train_from": 6},
            "data": {"transform": {"size": 96}, "order": "seed"},
        },
    ),
}


def describe_scale(name: str) -> str:
    """Describe a scale in one line."""
    scale = SCALES[name]
    return "the paper's own" if scale is None else scale.summary()
