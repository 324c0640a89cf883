"""The parts of a network by name: backbones and their depths, heads, first guesses for rows of new classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..registry import Registry

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from .heads import Head

Builder = Callable[[int, int, "Generator"], "nn.Module"]  # channels, depth, generator
# Features of each new class, weight rows of the old ones, rows per class, seed -> rows of the new classes
Imprint = Callable[[Sequence["Tensor"], "Tensor", int, int], "Tensor"]


class Depths(NamedTuple):
    """Which values of `network.depth` a backbone can have."""

    text: str  # as a message says it: "network.depth must be <text>"
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
)
# The weights that a backbone starts from unless told otherwise, by the names of their layers
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
        "positive": "cscct.nets.heads:PositiveHead",
        "cosine": "cscct.nets.heads:CosineHead",
        "proxies": "cscct.nets.heads:ProxyHead",
    },
)
IMPRINTS: Registry[Imprint] = Registry(
    "imprint", {"mean": "cscct.nets.imprint:imprint_mean", "kmeans": "cscct.nets.imprint:imprint_kmeans"}
)


def register_backbone(name: str, depths: Depths = ANY_DEPTH) -> Callable[[Builder], Builder]:
    """Decorates a function (channels, depth, generator) that builds a backbone: a module with an attribute `features`,
    the width of its last map, that turns images into a tuple of maps (k, c, h, w), one for each stage."""
    DEPTHS.setdefault(name, depths)
    return BACKBONES.register(name)


def register_head(name: str) -> Callable[[type[Head]], type[Head]]:
    """Decorates a subclass of `Head`."""
    return HEADS.register(name)


def register_imprint(name: str) -> Callable[[Imprint], Imprint]:
    """Decorates a function (features of each new class, old weight rows, rows per class, seed) that gives the rows with
    which new classes start, from the second task on."""
    return IMPRINTS.register(name)
