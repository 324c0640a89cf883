"""Methods, losses and datasets from outside the package."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

from .errors import UserError

GROUP = "cscct.plugins"
PREFIX = "cscct_plugin_"  # of the names under which plugin files are imported


def load_plugins(files: Iterable[Path] = ()) -> None:
    """Import installed plugins (entry points) and the given files; importing one registers what it holds."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            raise UserError(
                f"The installed plugin {entry.name} ({entry.value}) cannot be loaded: {_describe(error)} "
                f"({frame.filename}, line {frame.lineno}). Repair or uninstall it."
            ) from error
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
            line = _failing_line(error, spec.origin)
            place = f", line {line}" if line else ""
            raise UserError(f"The plugin {file} cannot be loaded{place}: {_describe(error)}.") from error


def _failing_line(error: Exception, file: str | None) -> int | None:
    """The line of the file at which loading it failed: in it, or in what it called there."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _describe(error: Exception) -> str:
    """The kind of an exception and its message without a full stop; of a `UserError`, the message alone."""
    text = (error.msg if isinstance(error, SyntaxError) else str(error)).rstrip(".")
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def explain_plugin_error(error: Exception) -> str | None:
    """A sentence with file and line, if the error was raised by code of a plugin file or by what it called."""
    for name, module in list(sys.modules.items()):
        line = _failing_line(error, module.__file__) if name.startswith(PREFIX) else None
        if line is not None:
            return f"The plugin failed in {module.__file__}, line {line}: {_describe(error)}."
    return None
