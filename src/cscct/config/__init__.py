"""Settings: typed, strict, resolved whole before any data is read."""

from .checks import validate
from .layers import load_preset, merge, preset_layers, resolve, tuned_for
from .schema import (
    CheckpointSpec,
    DataSpec,
    Device,
    NumericsSpec,
    ProtocolSpec,
    RuntimeSpec,
    Settings,
    known_keys,
)

__all__ = [
    "CheckpointSpec",
    "DataSpec",
    "Device",
    "NumericsSpec",
    "ProtocolSpec",
    "RuntimeSpec",
    "Settings",
    "known_keys",
    "load_preset",
    "merge",
    "preset_layers",
    "resolve",
    "tuned_for",
    "validate",
]
