"""Backbones, growing heads, and the network that joins them.

`BACKBONES`, `HEADS` and `IMPRINTS` hold the parts by name; `register_backbone`, `register_head` and `register_imprint`
add to them. Their names are known without torch, which the parts themselves need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports
from .names import BackboneName, architectures, parse_backbone, with_digest
from .registries import (
    ANY_DEPTH,
    BACKBONES,
    DEPTHS,
    HEADS,
    IMPRINTS,
    PRETRAINED,
    Depths,
    register_backbone,
    register_head,
    register_imprint,
)

if TYPE_CHECKING:
    from .frozen import FrozenStages, join, split
    from .growing import GrowingBackbone, growing_backbone
    from .heads import CosineHead, Head, LinearHead, PositiveHead, ProxyHead
    from .imprint import imprint_kmeans, imprint_mean
    from .inference import for_inference
    from .network import Network, build_network
    from .resnet import ResNet
    from .staged import StagedBackbone, TrainedStages
    from .weights import build_backbone

__all__ = [
    "ANY_DEPTH",
    "BACKBONES",
    "DEPTHS",
    "HEADS",
    "IMPRINTS",
    "PRETRAINED",
    "BackboneName",
    "CosineHead",
    "Depths",
    "FrozenStages",
    "GrowingBackbone",
    "Head",
    "LinearHead",
    "Network",
    "PositiveHead",
    "ProxyHead",
    "ResNet",
    "StagedBackbone",
    "TrainedStages",
    "architectures",
    "build_backbone",
    "build_network",
    "for_inference",
    "growing_backbone",
    "imprint_kmeans",
    "imprint_mean",
    "join",
    "parse_backbone",
    "register_backbone",
    "register_head",
    "register_imprint",
    "split",
    "with_digest",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ResNet": "resnet",
        "StagedBackbone": "staged",
        "TrainedStages": "staged",
        "GrowingBackbone": "growing",
        "growing_backbone": "growing",
        "FrozenStages": "frozen",
        "join": "frozen",
        "split": "frozen",
        "build_backbone": "weights",
        "CosineHead": "heads",
        "Head": "heads",
        "LinearHead": "heads",
        "PositiveHead": "heads",
        "ProxyHead": "heads",
        "Network": "network",
        "build_network": "network",
        "for_inference": "inference",
        "imprint_kmeans": "imprint",
        "imprint_mean": "imprint",
    },
)
