"""Settings: typed, strict, and resolved completely before any data is read."""

from ..yamltext import merge
from .checks import validate, without_scaled_losses
from .layers import ABBREVIATIONS, dotted_layers, load_preset, preset_layers, resolve, tuned_for
from .schema import (
    CheckpointSpec,
    DataSpec,
    Device,
    NumericsSpec,
    PrecisionName,
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
    "PrecisionName",
    "ProtocolSpec",
    "RuntimeSpec",
    "Settings",
    "dotted_layers",
    "known_keys",
    "load_preset",
    "merge",
    "preset_layers",
    "resolve",
    "tuned_for",
    "validate",
    "without_scaled_losses",
]
