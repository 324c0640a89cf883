"""Backbones by the name that `network.backbone` has, with the weights that they start from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from ..errors import UserError
from .custom import CustomBackbone
from .names import TIMM, BackboneName, digest_of, parse_backbone
from .registries import BACKBONES, PRETRAINED


def build_backbone(name: str, depth: int, channels: int, generator: Generator, *, pretrained: bool = True) -> nn.Module:
    """A backbone of the given name.

    pretrained: with the weights that its name stands for; otherwise with new ones, for which neither a file of weights
    nor the package that has them is needed.
    """
    wanted = parse_backbone(name)
    if wanted.from_timm:
        return timm_backbone(wanted.architecture.removeprefix(TIMM), channels, generator, pretrained=pretrained)
    body = BACKBONES[wanted.architecture](channels, depth, generator)
    if not pretrained:
        return body
    if wanted.file is not None:
        _load(body, _stored(wanted), str(wanted.file))
    elif wanted.architecture in PRETRAINED:
        if channels != 3:
            raise UserError(
                f"{name} was pretrained on images in colour, and these have {channels} channel: choose another "
                "network.backbone, or set network.pretrained to false."
            )
        body.load_state_dict(PRETRAINED[wanted.architecture]())
    return body


def _stored(wanted: BackboneName) -> dict[str, Tensor]:
    """The weights of a backbone in a file; of the model of a run only those of its backbone."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = wanted.file
    assert path is not None
    if wanted.digest is not None and digest_of(path) != wanted.digest:
        raise UserError(
            f"The weights {path} have changed since the run was begun: put the old file back, or start a new run in "
            "another folder (--out)."
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"The weights {path} cannot be read as a safetensors file: {error}.") from error
    own = {key.removeprefix("backbone."): one for key, one in tensors.items() if key.startswith("backbone.")}
    return own or tensors


def _load(body: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    expected = body.state_dict()
    odd = [key for key in tensors if key not in expected or expected[key].shape != tensors[key].shape]
    missing = [key for key in expected if key not in tensors]
    if odd or missing:
        key = (odd or missing)[0]
        what = f"has {key} of shape {tuple(tensors[key].shape)}" if odd else f"lacks {key}"
        raise UserError(
            f"The weights {source} are not those of {type(body).__name__} as the settings have it: the file {what}. "
            "Check network.backbone and network.depth."
        )
    body.load_state_dict(dict(tensors))


class TimmBackbone(nn.Module):
    """A network of timm: its pooled features, and the map of each of its stages."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        width = getattr(module, "head_hidden_size", None)  # differs from num_features where layers follow the pooling
        self.features: int = width if isinstance(width, int) else module.num_features  # type: ignore[assignment]

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        last, maps = self.module.forward_intermediates(images, output_fmt="NCHW")  # type: ignore[operator]
        return self.module.forward_head(last, pre_logits=True), maps  # type: ignore[operator]


def timm_backbone(name: str, channels: int, generator: Generator, *, pretrained: bool = True) -> CustomBackbone:
    """A network of timm. Its pretrained weights are found, or downloaded, by timm itself."""
    try:
        import timm  # type: ignore[import-not-found]
    except ImportError as error:
        raise UserError(
            f"network.backbone is timm:{name}, and timm is not installed: pip install timm torchvision."
        ) from error
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            module = timm.create_model(name, pretrained=pretrained, in_chans=channels, num_classes=0)
    except Exception as error:  # timm's own, and those of the libraries with which it downloads
        raise UserError(f"timm cannot make the network {name}: {error}.") from error
    if not hasattr(module, "forward_intermediates"):
        raise UserError(f"The network {name} of timm gives no maps of its stages: choose another, or a newer timm.")
    return CustomBackbone(TimmBackbone(module))
