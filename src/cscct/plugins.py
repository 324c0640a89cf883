"""Methods, losses and datasets from outside the package."""

from __future__ import annotations

import importlib.util
import sys
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
        name = f"cscct_plugin_{file.resolve()}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UserError(f"The plugin {file} is not a Python file.")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise UserError(f"The plugin {file} cannot be loaded: {type(error).__name__}: {error}.") from error
