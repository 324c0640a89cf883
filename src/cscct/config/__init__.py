"""Settings: typed, strict, resolved whole before any data is read."""

from .checks import validate
from .layers import ABBREVIATIONS, load_preset, merge, preset_layers, resolve, tuned_for
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
    "ABBREVIATIONS",
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
