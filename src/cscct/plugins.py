"""Methods, losses and datasets from outside the package."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

from .errors import UserError

GROUP = "cscct.plugins"


def load_plugins(files: Iterable[Path] = ()) -> None:
    """Import installed plugins (entry points) and the given files; importing one registers what it holds."""
    for entry in entry_points(group=GROUP):
        entry.load()
    for file in files:
        if not file.is_file():
            raise UserError(f"The plugin {file} is not there; --plugin takes a Python file.")
        spec = importlib.util.spec_from_file_location(f"cscct_plugin_{file.stem}", file)
        if spec is None or spec.loader is None:
            raise UserError(f"The plugin {file} is not a Python file.")
        try:
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
        except Exception as error:
            raise UserError(f"The plugin {file} cannot be loaded: {type(error).__name__}: {error}.") from error
