"""`cscct config`: resolve and check the settings of a run, or describe settings. Needs neither data nor torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from ..jsontext import to_json
from ..plugins import load_plugins
from . import options
from .options import flag_layers, resolve_settings

if TYPE_CHECKING:
    from ..config import Settings


def config(
    method: options.MethodName = None,
    dataset: options.DatasetName = None,
    config: options.Config = None,
    seed: options.Seed = None,
    sets: options.Sets = [],  # noqa: B006
    base: options.Base = None,
    step: options.StepSize = None,
    recipe: options.RecipeName = None,
    device: options.Device = None,
    threads: options.Threads = None,
    devices: options.Devices = None,
    nodes: options.Nodes = None,
    precision: options.PrecisionName = None,
    compile_: options.CompileName = None,
    plugin: options.Plugin = [],  # noqa: B006
    skip_bad_images: options.SkipBad = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what differs from the defaults of the method and the dataset.")
    ] = False,
    describe: Annotated[
        str | None,
        typer.Option(
            "--describe", metavar="KEY", help="Describe a setting or section, for example train.lr or loss.ct."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Print the settings that `cscct run` with the same arguments would use.

    They are printed as YAML, in the form of config.yaml in a run folder, and can be passed to `cscct run --config`.
    Neither the data nor a GPU is needed: the device remains auto, and B and C of an image folder remain open. A
    backbone with pretrained weights changes the defaults of the method and the dataset: `--changed` shows how.
    """
    if describe is not None:
        load_plugins(plugin)
        _describe(describe, as_json)
        return
    flags = flag_layers(base, step, device, threads, skip_bad_images, seed, devices, nodes, precision, compile_)
    load_plugins(plugin)
    settings = resolve_settings(method, dataset, recipe, config, sets, flags)
    shown = _completed(settings)
    if changed:
        defaults = _completed(resolve_settings(settings.method, settings.dataset, None, None, [], []))
        names = {"method": settings.method, "dataset": settings.dataset}
        shown = {**names, **_difference(shown, defaults)}
    if as_json:
        print(to_json(shown, indent=1))
        return
    import yaml

    print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), end="")


def _describe(key: str, as_json: bool) -> None:
    """Print type, default, description and use of a setting, or of all settings of a section."""
    from ..config import ABBREVIATIONS, known_keys
    from ..config.reference import find_entries
    from ..text import suggest

    entries = find_entries(ABBREVIATIONS.get(key, key))
    if not entries:
        raise UserError(f"There is no setting {key}{suggest(key, known_keys())}; docs/settings.md lists them all.")
    if as_json:
        print(to_json([entry._asdict() for entry in entries], indent=1, ascii_only=False))
        return
    for entry in entries:
        print(f"{entry.key}\n  {entry.description}")
        print(f"  type: {entry.type}\n  default: {entry.default}\n  used by: {entry.used_by}")


def _completed(settings: Settings) -> dict[str, Any]:
    """Return the settings with B, C and threads filled in where this needs neither the data nor torch."""
    from ..data.registry import find
    from ..learn.protocol import with_protocol
    from ..threads import default_threads

    if classes := find(settings.dataset).num_classes:
        settings = with_protocol(settings, classes)
    runtime = replace(settings.runtime, threads=settings.runtime.threads or default_threads())
    return settings.model_copy(update={"runtime": runtime}).dump()


def _difference(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings whose values differ from the defaults, by section."""
    changed: dict[str, Any] = {}
    for key, value in settings.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            if inner := _difference(value, default):
                changed[key] = inner
        elif value != default or key not in defaults:
            changed[key] = value
    return changed
