"""Methods, losses, datasets and other parts from outside the package, and hashes of their sources."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from .errors import UserError

GROUP = "cscct.plugins"
PREFIX = "cscct_plugin_"  # of the names under which plugin files are imported
_DIGITS = 16  # of a hash

_loaded: dict[str, tuple[str, str]] = {}  # by module name: name of the plugin file, and the hash of what was executed


def load_plugins(files: Iterable[Path] = ()) -> None:
    """Import installed plugins (entry points) and plugin files. Importing a plugin registers its parts.

    Args:
        files: Python files, as given with `--plugin`.

    Raises:
        UserError: If a plugin cannot be imported.
    """
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
            raise UserError(f"The plugin {file} does not exist; --plugin takes a Python file.")
        path = file.resolve()
        name = PREFIX + hashlib.sha256(bytes(path)).hexdigest()  # no dots: pickle would import a parent package
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UserError(f"The plugin {file} is not a Python file.")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
        try:
            digest = _digest([file])
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            line = _failing_line(error, spec.origin)
            place = f", line {line}" if line else ""
            raise UserError(f"The plugin {file} cannot be loaded{place}: {_describe(error)}.") from error
        _loaded[name] = (path.name, digest)


def source_hashes(modules: Iterable[str]) -> dict[str, str]:
    """Hash the sources of modules outside of this package.

    Args:
        modules: Names of modules, those of this package among them.

    Returns:
        A hash for each plugin file, by its file name, and for each installed package or module, by its name. A script
        or a notebook has none.
    """
    hashes: dict[str, str] = {}
    for module in dict.fromkeys(modules):
        if module in _loaded:
            key, digest = _loaded[module]
            if key in hashes:  # files with the same name in several folders
                digest = hashlib.sha256((hashes[key] + digest).encode()).hexdigest()[:_DIGITS]
            hashes[key] = digest
        elif (package := module.partition(".")[0]) not in ("cscct", "builtins", "__main__", "__mp_main__"):
            package_hash = _package_hash(module)
            hashes |= {} if package_hash is None else {package: package_hash}
    return hashes


def explain_changed_plugins(recorded: Mapping[str, str], current: Mapping[str, str]) -> str | None:
    """Say which plugin of a run is not the one that is loaded, or return None if all are the same.

    Args:
        recorded: Hashes in the config of the run.
        current: Hashes of what is loaded.
    """
    for name in dict.fromkeys([*recorded, *current]):
        if name not in current:
            return f"it was started with the plugin {name}, which is not loaded: load it with --plugin"
        if name not in recorded:
            return f"it was started without the plugin {name}: leave the plugin out"
        if recorded[name] != current[name]:
            return f"the plugin {name} has changed since it was started: restore the plugin"
    return None


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:_DIGITS]


@functools.cache  # the code that is executed does not change with its file
def _package_hash(module: str) -> str | None:
    """Return a hash of all Python files of the package that contains a module, or of the module itself."""
    top = sys.modules.get(module.partition(".")[0])
    source = getattr(top, "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    if source is None or not Path(source).is_file():
        return None
    path = Path(source)
    return _digest(sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path])


def _failing_line(error: Exception, file: str | None) -> int | None:
    """Return the line of a file at which an error was raised, in the file itself or in code that it called."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _describe(error: Exception) -> str:
    """Return type and message of an exception without a full stop; for a `UserError` only the message."""
    text = (error.msg if isinstance(error, SyntaxError) else str(error)).rstrip(".")
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"


def explain_plugin_error(error: Exception) -> str | None:
    """Return a message with file and line if an error was raised in a plugin file or in code that it called."""
    for name, module in list(sys.modules.items()):
        line = _failing_line(error, module.__file__) if name.startswith(PREFIX) else None
        if line is not None:
            return f"The plugin failed in {module.__file__}, line {line}: {_describe(error)}."
    return None


@contextmanager
def plugin_errors_explained() -> Iterator[None]:
    """Turn errors that are raised in plugin files into errors for the user, with file and line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        message = explain_plugin_error(error)
        if message is None:
            raise
        raise UserError(message) from error
