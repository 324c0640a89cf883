"""Construction of backbones by name, with their initial weights."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Generator, Tensor, nn

from ..errors import UserError
from .names import TIMM, BackboneName, digest_of, parse_backbone
from .registries import BACKBONES, PRETRAINED


def build_backbone(name: str, depth: int, channels: int, generator: Generator, *, pretrained: bool = True) -> nn.Module:
    """Build a backbone.

    Args:
        name: Value of `network.backbone`.
        depth: Depth of the backbone, where it can be chosen.
        channels: Channels of the images.
        generator: Source of the initial weights.
        pretrained: Whether the pretrained weights or the file of weights in the name are loaded. If not, neither the
            file nor the package with the weights is needed.

    Raises:
        UserError: If the weights are not available or do not fit.
    """
    parsed = parse_backbone(name)
    if parsed.from_timm:
        from .timm_models import timm_backbone

        name = parsed.architecture.removeprefix(TIMM)
        from_file = pretrained and parsed.file is not None
        adapter = timm_backbone(name, channels, generator, pretrained=pretrained and not from_file)
        if from_file:
            tensors = {
                f"module.module.{key.removeprefix('module.module.')}": t for key, t in _read_weights(parsed).items()
            }
            config = getattr(adapter.module.module, "pretrained_cfg", None) or {}
            heads = config.get("classifier") or ()
            classifier = tuple(f"module.module.{head}." for head in ((heads,) if isinstance(heads, str) else heads))
            tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith(classifier)}
            _load(adapter, tensors, str(parsed.file))
        return adapter
    backbone = BACKBONES[parsed.architecture](channels, depth, generator)
    if not pretrained:
        return backbone
    if parsed.file is not None:
        _load(backbone, _read_weights(parsed), str(parsed.file))
    elif parsed.architecture in PRETRAINED:
        if channels != 3:
            raise UserError(
                f"{name} was pretrained on colour images, but these images have {channels} channel: use another "
                "network.backbone, or set network.pretrained to false."
            )
        backbone.load_state_dict(PRETRAINED[parsed.architecture]())
    return backbone


def _read_weights(parsed: BackboneName) -> dict[str, Tensor]:
    """Return the weights in the file of a backbone name. If it contains a whole network, only its backbone is used."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = parsed.file
    assert path is not None
    if parsed.digest is not None and digest_of(path) != parsed.digest:
        raise UserError(
            f"The weights {path} have changed since the run was started: restore the file, or start a new run in "
            "another folder (--out)."
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"The weights {path} cannot be read as a safetensors file: {error}.") from error
    prefix = "backbone."
    backbone = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    return backbone or tensors


def _load(backbone: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    expected = backbone.state_dict()
    unexpected = [key for key in tensors if key not in expected or expected[key].shape != tensors[key].shape]
    missing = [key for key in expected if key not in tensors]
    if unexpected or missing:
        key = (unexpected or missing)[0]
        problem = f"has {key} of shape {tuple(tensors[key].shape)}" if unexpected else f"lacks {key}"
        raise UserError(
            f"The weights {source} do not fit {type(backbone).__name__} with these settings: the file {problem}. "
            "Check network.backbone and network.depth."
        )
    backbone.load_state_dict(dict(tensors))
