"""Web UI and JSON API for a model folder: classify images, correct predictions, add classes, learn, undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_exports

if TYPE_CHECKING:
    from .app import create_app
    from .limits import Limits
    from .running import run

__all__ = ["Limits", "create_app", "run"]

__getattr__ = lazy_exports(__name__, {"create_app": "app", "Limits": "limits", "run": "running"})
