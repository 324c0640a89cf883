"""Features of images from a network that is prepared once and only reads."""

from __future__ import annotations

import copy
import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.batches import prefetch
from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..nets.custom import CustomBackbone
from ..nets.efficientnet import VARIANTS
from ..nets.inference import fold_norms
from ..nets.names import architectures, parse_backbone
from ..nets.registries import ANY_DEPTH, BACKBONES, DEPTHS
from ..nets.resnet import pool
from ..nets.staged import StagedBackbone
from ..nets.weights import build_backbone
from ..seeding import generator
from ..specs import TransformSpec
from .images import Item, ItemView

LARGE, SMALL = 224, 64  # sides of images, by default: for modules of users, and for the networks that have no weights


@dataclass(frozen=True)
class Extraction:
    """What a pass over images gives. Rows are those of the images in `readable`."""

    features: Tensor  # (readable, d)
    readable: list[int]
    errors: dict[int, UserError]  # of the others
    digests: list[bytes]  # of the pixels that the network read: equal for equal pictures


class FeatureExtractor:
    """A backbone in the form that only reads, and the crops it reads."""

    def __init__(self, backbone: nn.Module, transform: TransformSpec, device: torch.device, batch_size: int):
        self.backbone, self.transform, self.device, self.batch_size = backbone, transform, device, batch_size
        self.network = fold_norms(copy.deepcopy(backbone).eval().requires_grad_(False)).to(device)
        self._factor = (1 / (255 * torch.tensor(transform.std))).view(-1, 1, 1)
        self._shift = (-torch.tensor(transform.mean) / torch.tensor(transform.std)).view(-1, 1, 1)

    @property
    def width(self) -> int:
        """Dimensions of the features."""
        return int(self.backbone.features)  # type: ignore[arg-type]

    def extract(self, items: Sequence[Item], progress: Progress = no_progress) -> Extraction:
        """In order. Images that cannot be read are told in `errors`."""
        view = ItemView(items, self.transform)
        chunks = torch.arange(len(items)).split(self.batch_size) if items else ()
        found = Extraction(torch.empty(0, self.width), [], {}, [])
        rows: list[Tensor] = []
        ahead = 0 if len(chunks) < 2 else view.prefetch
        for step, crops in enumerate(prefetch(lambda i: view.crops(chunks[i].tolist()), len(chunks), ahead)):
            good = []
            for index, crop in zip(chunks[step].tolist(), crops, strict=True):
                if isinstance(crop, UserError):
                    found.errors[index] = crop
                else:
                    good.append(crop)
                    found.readable.append(index)
                    found.digests.append(hashlib.sha256(crop.tobytes()).digest()[:16])
            if good:
                rows.append(self._features(np.stack(good)))
            progress("reading images", int(chunks[step][-1]) + 1, len(items))
        return Extraction(torch.cat([found.features, *rows]), found.readable, found.errors, found.digests)

    def _features(self, crops: np.ndarray) -> Tensor:
        """crops: (k, size, size, 3) uint8."""
        values = torch.from_numpy(crops).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.channels_last)
        with torch.inference_mode():
            return pool(self.network(values.mul_(self._factor).add_(self._shift).to(self.device))[-1]).float().cpu()


def backbone_module(backbone: str | nn.Module, *, weights: bool = True) -> nn.Module:
    """The module that gives the maps. weights: False for one whose weights are loaded afterwards."""
    if isinstance(backbone, nn.Module):
        return backbone if isinstance(backbone, StagedBackbone) else CustomBackbone(backbone)
    name = parse_backbone(backbone)
    if name.architecture not in architectures(name):
        near = difflib.get_close_matches(backbone, BACKBONES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UserError(f"There is no backbone called {backbone!r}{hint} The backbones are: {', '.join(BACKBONES)}.")
    depths = DEPTHS.get(name.architecture, ANY_DEPTH)
    depth = next(depth for depth in (32, 18) if depths.allowed(depth))
    return build_backbone(backbone, depth, 3, generator(0, "network"), pretrained=weights)


def transform_for(backbone: str | nn.Module, module: nn.Module, image_size: int | None) -> TransformSpec:
    """Size and normalisation of the images that a network reads. One of timm tells them itself, by `pretrained_cfg`.

    backbone: as it was given; module: what `backbone_module` made of it.
    """
    told: Any = next((one.pretrained_cfg for one in module.modules() if hasattr(one, "pretrained_cfg")), None) or {}
    architecture = parse_backbone(backbone).architecture if isinstance(backbone, str) else ""
    size = VARIANTS[architecture].size if architecture in VARIANTS else SMALL if architecture in BACKBONES else LARGE
    return TransformSpec(
        size=image_size or int(told.get("input_size", (3, size, size))[-1]),
        mean=tuple(told.get("mean", (0.5,))),
        std=tuple(told.get("std", (0.5,))),
    )
