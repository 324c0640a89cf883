"""Network: a backbone with a head."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ..structs import Output
from .growing import GrowingBackbone, growing_backbone
from .heads import Head
from .registries import HEADS
from .resnet import pool
from .weights import build_backbone


class Network(nn.Module):
    """Backbone with a head.

    Args:
        backbone: Module that returns a tuple of maps, see `register_backbone`.
        head: Classifier on the pooled features.
        relu_head: Whether a ReLU is applied before the head, as in the original iCaRL. Herding, class means and
            feature losses always read the features without it.
        frozen_norms: Whether batch norm uses its running statistics in training, too, and keeps them.
    """

    def __init__(self, backbone: nn.Module, head: Head, *, relu_head: bool = False, frozen_norms: bool = False):
        super().__init__()
        self.backbone, self.head, self.relu_head, self.frozen_norms = backbone, head, relu_head, frozen_norms

    def train(self, mode: bool = True) -> Network:
        """Set the training mode. With `frozen_norms`, batch norms stay in evaluation mode.

        Args:
            mode: Whether to set training mode (True) or evaluation mode (False).
        """
        super().train(mode)
        if self.frozen_norms:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def forward(self, images: Tensor) -> Output:
        """Return maps, features and scores.

        Args:
            images: Normalised images, shape (k, c, h, w).
        """
        maps = self.backbone(images)
        features = pool(maps[-1])
        scores = self.head(pool(F.relu(maps[-1])) if self.relu_head else features)
        return Output(maps, features, scores, self.head.scale)

    def grow(self, generator: Generator) -> None:
        """Add a branch to a growing backbone, and widen the head for its features. Other backbones stay as they are.

        Args:
            generator: Source of random numbers.
        """
        if isinstance(self.backbone, GrowingBackbone):
            self.backbone.grow(generator)
            self.head.widen(self.backbone.features, generator)

    def compress(self, generator: Generator) -> None:
        """Remove all branches of a growing backbone but the first, with their weights in the head.

        Args:
            generator: Source of random numbers.
        """
        if isinstance(self.backbone, GrowingBackbone):
            self.backbone.compress()
            self.head.widen(self.backbone.features, generator)

    def trained_backbone(self, *, newest: bool = False) -> list[nn.Parameter]:
        """Return the parameters of the backbone that are trained. The others require no gradients.

        Args:
            newest: Whether only the newest branch of a growing backbone is trained.
        """
        self.backbone.requires_grad_(True)
        if isinstance(self.backbone, GrowingBackbone):
            return self.backbone.trained(newest=newest)
        return list(self.backbone.parameters())

    def frozen_copy(self) -> Network:
        """Return a copy in evaluation mode whose parameters require no gradients, for use as a teacher."""
        return copy.deepcopy(self).eval().requires_grad_(False)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Load all weights. The head is resized to the stored number of classes, a growing backbone to its branches.

        Args:
            tensors: State dict of a network with the same architecture.
        """
        if isinstance(self.backbone, GrowingBackbone):
            self.backbone.resize(name.removeprefix("backbone.") for name in tensors if name.startswith("backbone."))
        self.head.resize({name.removeprefix("head."): t for name, t in tensors.items() if name.startswith("head.")})
        self.load_state_dict(dict(tensors))


def build_network(
    backbone: str,
    depth: int,
    channels: int,
    head: str,
    proxies_per_class: int,
    generator: Generator,
    *,
    relu_head: bool = False,
    frozen_norms: bool = False,
    pretrained: bool = True,
    expand: str = "none",
    train_from: int = 0,
) -> Network:
    """Build a network without classes.

    Args:
        backbone: Value of `network.backbone`.
        depth: Depth of the backbone, where it can be chosen.
        channels: Channels of the images.
        head: Name in `HEADS`.
        proxies_per_class: Weight vectors per class.
        generator: Source of the initial weights.
        relu_head: Whether a ReLU is applied before the head.
        frozen_norms: Whether batch norm keeps its running statistics in training.
        pretrained: Whether pretrained weights are loaded, see `build_backbone`.
        expand: Value of `network.expand`.
        train_from: Index of the first stage that is trained, for a backbone that expands.

    Raises:
        UserError: If pretrained weights are not available or do not fit.
    """
    module = build_backbone(backbone, depth, channels, generator, pretrained=pretrained)
    if expand != "none":
        module = growing_backbone(module, expand, train_from)
    features: int = module.features  # type: ignore[assignment]
    return Network(module, HEADS[head](features, proxies_per_class), relu_head=relu_head, frozen_norms=frozen_norms)
