"""Backbones, growing heads, and the network that joins them."""

from .heads import HEADS, CosineHead, Head, LinearHead, ProxyHead
from .imprint import imprint_kmeans, imprint_mean
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
    "imprint_kmeans",
    "imprint_mean",
]
