"""One pass of a network over images: features and scores, with unreadable images reported."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..data.batches import prefetch
from ..data.inputs import ImageFormat, Item, ItemReader, group_of
from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..learn.device import precision_context
from ..learn.evaluation import infer
from ..nets import HEADS, CosineHead, GrowingBackbone, Head, Network, for_inference, growing_backbone
from ..nets.custom import CustomBackbone
from ..nets.efficientnet import VARIANTS
from ..nets.names import architectures, parse_backbone
from ..nets.registries import ANY_DEPTH, BACKBONES, DEPTHS
from ..nets.staged import StagedBackbone
from ..nets.weights import build_backbone
from ..seeding import generator
from ..specs import NetworkSpec, TransformSpec
from ..text import suggest

DEFAULT_CROP = TransformSpec().crop_ratio
DEFAULT_SIZE, UNTRAINED_SIZE = 224, 64  # default image sides: user modules, and backbones without pretrained weights


@dataclass(frozen=True)
class ImageOutputs:
    """Outputs of a network for the readable images of a list.

    Attributes:
        features: (readable, d) float32.
        logits: (readable, classes of the head) float32.
        readable: Indices of the readable images.
        errors: Error of each other image, by index.
        digests: Hash of the pixels of each readable image: equal for equal pixels.
        groups: Source of each readable image that has several similar ones, such as a video; else None. See `group_of`.
    """

    features: Tensor
    logits: Tensor
    readable: list[int] = field(default_factory=list)
    errors: dict[int, UserError] = field(default_factory=dict)
    digests: list[bytes] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)

    def raise_first_error(self) -> None:
        """Raise the error of the first unreadable image, if there is one."""
        if self.errors:
            raise next(iter(self.errors.values()))


class NetworkReader:
    """A network prepared for inference, and the image format it reads.

    Args:
        network: The network; it is copied for inference.
        format: How it reads images.
        device: Where inference runs.
        batch_size: Images per forward pass.
        precision: Name of the numerical precision; see `numerics.precision`.
        fold: Whether batch norms are folded into convolutions.
    """

    def __init__(
        self,
        network: Network,
        format: ImageFormat,
        device: torch.device,
        batch_size: int,
        precision: str = "32-true",
        fold: bool = True,
    ):
        self.network, self.format, self.device, self.batch_size = network, format, device, batch_size
        self.precision, self.fold = precision, fold
        self.inference = for_inference(network, fold=fold).to(device)
        self._precision = precision_context(precision, device)

    @property
    def features(self) -> int:
        """Dimensions of the features."""
        return self.network.head.features

    def with_network(self, network: Network) -> NetworkReader:
        """Return a reader of the same images with another network."""
        return NetworkReader(network, self.format, self.device, self.batch_size, self.precision, self.fold)

    def read(self, items: Sequence[Item], progress: Progress = no_progress) -> ImageOutputs:
        """Run the network over images, in order.

        Args:
            items: The images.
            progress: Called with a description, the number of images done and the total.

        Returns:
            Outputs of the readable images, and the errors of the others.
        """
        reader = ItemReader(items, self.format)
        chunks = [range(start, min(start + self.batch_size, len(items))) for start in _starts(items, self.batch_size)]
        outputs = ImageOutputs(torch.empty(0, self.features), torch.empty(0, self.network.head.classes))
        features, logits = [outputs.features], [outputs.logits]
        depth = 0 if len(chunks) < 2 else reader.prefetch
        for chunk, pixels in zip(chunks, prefetch(lambda i: reader.pixels(chunks[i]), len(chunks), depth), strict=True):
            readable = []
            for index, image in zip(chunk, pixels, strict=True):
                if isinstance(image, UserError):
                    outputs.errors[index] = image
                else:
                    readable.append(image)
                    outputs.readable.append(index)
                    outputs.digests.append(hashlib.sha256(image.tobytes()).digest()[:16])
            if readable:
                for rows, batch in zip((features, logits), self._forward(reader.normalized(readable)), strict=True):
                    rows.append(batch)
            progress("reading images", chunk[-1] + 1, len(items))
        return replace(
            outputs,
            features=torch.cat(features),
            logits=torch.cat(logits),
            groups=[group_of(items[index]) for index in outputs.readable],
        )

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        output = infer(self.inference, images.to(self.device), self._precision)
        return output.features, output.logits


def _starts(items: Sequence[Item], batch_size: int) -> range:
    return range(0, len(items), batch_size)


def build_reader(
    backbone: str | nn.Module, image_size: int | None, device: torch.device, batch_size: int, *, weights: bool = True
) -> NetworkReader:
    """Build the reader of a new training-free model.

    Args:
        backbone: Name or module.
        image_size: Side of the images in pixels; None for the default of the backbone.
        device: Where inference runs.
        batch_size: Images per forward pass.
        weights: Whether pretrained weights are loaded; False if they are replaced afterwards.
    """
    module = backbone_module(backbone, weights=weights)
    network = Network(module, CosineHead(int(module.features)))  # type: ignore[arg-type]
    format = ImageFormat(transform_for(backbone, module, image_size))
    return NetworkReader(network, format, device, batch_size)


def network_with_head(backbone: nn.Module, spec: NetworkSpec) -> Network:
    """Build a network for a method from an existing backbone; its head has no classes yet."""
    if spec.expand != "none" and not isinstance(backbone, GrowingBackbone):
        backbone = growing_backbone(backbone, spec.expand, spec.train_from)
    head: Head = HEADS[spec.head](int(backbone.features), spec.proxies_per_class)  # type: ignore[arg-type]
    return Network(backbone, head, relu_head=spec.relu_head, frozen_norms=spec.batch_norm == "frozen")


def backbone_module(backbone: str | nn.Module, *, weights: bool = True) -> nn.Module:
    """Build a backbone.

    Args:
        backbone: Name or module.
        weights: Whether pretrained weights are loaded.

    Raises:
        UserError: There is no backbone of this name.
    """
    if isinstance(backbone, nn.Module):
        return backbone if isinstance(backbone, StagedBackbone) else CustomBackbone(backbone)
    name = parse_backbone(backbone)
    if name.architecture not in architectures(name):
        raise UserError(
            f"There is no backbone {backbone!r}{suggest(backbone, BACKBONES)}; choose one of {', '.join(BACKBONES)}."
        )
    return build_backbone(backbone, default_depth(backbone), 3, generator(0, "network"), pretrained=weights)


def default_depth(backbone: str) -> int:
    """Return the depth that a backbone has unless specified."""
    depths = DEPTHS.get(parse_backbone(backbone).architecture, ANY_DEPTH)
    return next(depth for depth in (32, 18) if depths.allowed(depth))


def transform_for(backbone: str | nn.Module, module: nn.Module, image_size: int | None) -> TransformSpec:
    """Return size and normalisation of the images that a backbone reads.

    Args:
        backbone: Name or module, as given by the user.
        module: What `backbone_module` built from it. A module of timm describes its inputs in `pretrained_cfg`.
        image_size: Side in pixels; None for the default.
    """
    config: Any = next((m.pretrained_cfg for m in module.modules() if hasattr(m, "pretrained_cfg")), None) or {}
    architecture = parse_backbone(backbone).architecture if isinstance(backbone, str) else ""
    size = DEFAULT_SIZE
    if architecture in VARIANTS:
        size = VARIANTS[architecture].size
    elif architecture in BACKBONES:
        size = UNTRAINED_SIZE
    side = image_size or int(config.get("input_size", (3, size, size))[-1])
    return TransformSpec(
        size=side,
        mean=tuple(config.get("mean", (0.5,))),
        std=tuple(config.get("std", (0.5,))),
        crop_ratio=side / math.floor(side / config.get("crop_pct", DEFAULT_CROP)),  # timm rounds down
        interpolation="bicubic" if config.get("interpolation") == "bicubic" else "bilinear",
    )
