"""Methods, losses and datasets from outside the package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

from .errors import UserError

GROUP = "cscct.plugins"
PREFIX = "cscct_plugin_"  # of the names under which plugin files are imported


def load_plugins(files: Iterable[Path] = ()) -> None:
    """Import installed plugins (entry points) and the given files; importing one registers what it holds."""
    for entry in entry_points(group=GROUP):
        entry.load()
    for file in files:
        if not file.is_file():
            raise UserError(f"The plugin {file} is not there; --plugin takes a Python file.")
        name = f"{PREFIX}{file.resolve()}"
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


def explain_plugin_error(error: BaseException) -> str | None:
    """A sentence with file and line, if the error was raised by code of a plugin or by what it called."""
    frame, found = error.__traceback__, None
    while frame is not None:
        if str(frame.tb_frame.f_globals.get("__name__", "")).startswith(PREFIX):
            found = f"{frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno}"
        frame = frame.tb_next
    return f"The plugin failed in {found}: {type(error).__name__}: {error}" if found else None
