"""The name that `registry.py` had in version 0.2, for plugins written then."""

from .registry import DATASETS, DatasetKind, Extent, LoadRequest, load, register

__all__ = ["DATASETS", "DatasetKind", "Extent", "LoadRequest", "load", "register"]
