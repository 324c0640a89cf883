"""Backbones, growing heads, and the network that joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_exports

if TYPE_CHECKING:
    from .heads import HEADS, CosineHead, Head, LinearHead, ProxyHead
    from .imprint import imprint_kmeans, imprint_mean
    from .inference import for_inference
    from .network import Network, build_network
    from .resnet import BACKBONES, ResNet

__all__ = [
    "BACKBONES",
    "HEADS",
    "CosineHead",
    "Head",
    "LinearHead",
    "Network",
    "ProxyHead",
    "ResNet",
    "build_network",
    "for_inference",
    "imprint_kmeans",
    "imprint_mean",
]

# The names in BACKBONES, for those who only want to check one: asking BACKBONES itself imports torch.
OWN_BACKBONES = ("lucir-resnet", "podnet-resnet", "lucir-resnet18", "podnet-resnet18")

__getattr__ = lazy_exports(
    __name__,
    {
        "BACKBONES": "resnet",
        "ResNet": "resnet",
        "HEADS": "heads",
        "CosineHead": "heads",
        "Head": "heads",
        "LinearHead": "heads",
        "ProxyHead": "heads",
        "Network": "network",
        "build_network": "network",
        "for_inference": "inference",
        "imprint_kmeans": "imprint",
        "imprint_mean": "imprint",
    },
)
