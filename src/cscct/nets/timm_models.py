"""Models of timm as backbones. Weights are downloaded by `fetch_weights` only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..errors import UserError, install_hint
from .custom import CustomBackbone

_declared: list[torch.library.Library] = []  # operators are removed together with their library


class TimmBackbone(nn.Module):
    """Pooled features and stage maps of a timm model.

    Args:
        module: Model of timm with `forward_intermediates`.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module
        width = getattr(module, "head_hidden_size", None)  # differs from num_features where layers follow the pooling
        self.features: int = width if isinstance(width, int) else module.num_features  # type: ignore[assignment]

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the features, shape (k, d), and the maps of the stages, shape (k, c, h, w)."""
        last, maps = self.module.forward_intermediates(images, output_fmt="NCHW")  # type: ignore[operator]
        return self.module.forward_head(last, pre_logits=True), maps  # type: ignore[operator]


def timm_backbone(name: str, channels: int, generator: Generator, *, pretrained: bool = True) -> CustomBackbone:
    """Build a timm model as a backbone.

    Args:
        name: Name of the model in timm.
        channels: Channels of the images.
        generator: Source of the initial weights.
        pretrained: Whether pretrained weights are loaded, which `fetch_weights` has downloaded.

    Raises:
        UserError: If timm is not installed, or the model or its weights are not available.
    """
    timm = import_timm(name)
    overlay = {"file": str(_weights_file(timm, name))} if pretrained else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        module = _create(timm, name, pretrained=pretrained, in_chans=channels, pretrained_cfg_overlay=overlay)
    if not hasattr(module, "forward_intermediates"):
        raise UserError(f"The timm model {name} has no forward_intermediates: use another model or a newer timm.")
    return CustomBackbone(TimmBackbone(module))


def fetch_weights(name: str) -> Path:
    """Download the pretrained weights of a timm model into the cache of its library.

    Args:
        name: Name of the model in timm.

    Returns:
        The file.

    Raises:
        UserError: If timm is not installed, or the weights cannot be downloaded.
    """
    timm = import_timm(name)
    _create(timm, name, pretrained=True)
    return _weights_file(timm, name)


def import_timm(name: str) -> Any:
    """Import timm.

    timm imports torchvision, whose wheels fail to load with another build of torch of the same version because their
    operators are missing. No model needs them, so they are declared without an implementation.

    Args:
        name: Name of the model, for the message.

    Raises:
        UserError: If timm is not installed.
    """
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass
    except Exception:  # operator torchvision::nms does not exist
        for module in [module for module in sys.modules if module.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        if not _declared:
            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)
    try:
        import timm
    except ImportError as error:
        raise UserError(
            f"The backbone is timm:{name}, but timm cannot be imported ({error}): {install_hint('timm')}."
        ) from error
    return timm


def _create(timm: Any, name: str, **options: Any) -> nn.Module:
    try:
        module: nn.Module = timm.create_model(name, num_classes=0, **options)
    except Exception as error:  # timm and its download libraries raise errors of many types
        raise UserError(f"timm cannot create the model {name}: {str(error).rstrip('.')}.") from error
    return module


def _weights_file(timm: Any, name: str) -> Path:
    """Return the downloaded weights of a model."""
    from huggingface_hub import try_to_load_from_cache

    try:
        config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    except RuntimeError as error:
        raise UserError(f"timm cannot create the model {name}: {str(error).rstrip('.')}.") from error
    if config is None or not config.has_weights:
        raise UserError(
            f"timm has no pretrained weights for {name}: name a model with a tag, such as resnet50.a1_in1k, or a file, "
            f"timm:{name}:FILE.safetensors."
        )
    names = ("model.safetensors", "pytorch_model.bin")
    cached = [try_to_load_from_cache(config.hf_hub_id, file) for file in names] if config.hf_hub_id else []
    if config.url:
        cached.append(str(Path(torch.hub.get_dir(), "checkpoints", Path(config.url).name)))
    for file in cached:
        if isinstance(file, str) and Path(file).is_file():
            return Path(file)
    raise UserError(
        f"The weights of timm:{name} are not on this machine: `cscct data fetch timm:{name}` downloads them. Or name a "
        f"file, timm:{name}:FILE.safetensors."
    )
