"""Networks of models: a backbone by name or as a module, with the image format that it reads."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ..data.inputs import ImageFormat
from ..errors import UserError
from ..nets import HEADS, CosineHead, GrowingBackbone, Head, Network, growing_backbone
from ..nets.custom import CustomBackbone
from ..nets.efficientnet import VARIANTS
from ..nets.names import architectures, parse_backbone
from ..nets.registries import ANY_DEPTH, BACKBONES, DEPTHS
from ..nets.staged import StagedBackbone
from ..nets.weights import build_backbone
from ..seeding import generator
from ..specs import NetworkSpec, TransformSpec
from ..text import suggest
from .reader import NetworkReader

DEFAULT_CROP = TransformSpec().crop_ratio
DEFAULT_SIZE, UNTRAINED_SIZE = 224, 64  # default image sides: user modules, and backbones without pretrained weights


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
