"""`cscct config`: the settings of a run, resolved and checked, without running it. Needs neither data nor torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..plugins import load_plugins
from .options import (
    Base,
    CompileName,
    Config,
    DatasetName,
    Device,
    Devices,
    Json,
    MethodName,
    Nodes,
    Plugin,
    PrecisionName,
    RecipeName,
    Seed,
    Sets,
    SkipBad,
    StepSize,
    Threads,
    flag_layers,
    resolve_settings,
)

if TYPE_CHECKING:
    from ..config import Settings


def config(
    method: MethodName = None,
    dataset: DatasetName = None,
    config: Config = None,
    seed: Seed = None,
    sets: Sets = [],  # noqa: B006
    base: Base = None,
    step: StepSize = None,
    recipe: RecipeName = None,
    device: Device = None,
    threads: Threads = None,
    devices: Devices = None,
    nodes: Nodes = None,
    precision: PrecisionName = None,
    compile_: CompileName = None,
    plugin: Plugin = [],  # noqa: B006
    skip_bad_images: SkipBad = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what differs from the defaults of the method and the dataset.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the settings that `cscct run` with the same words and flags would use.

    They are printed as YAML, as config.yaml in the folder of the run would hold them, and can be given to
    `cscct run --config`. Neither the data nor a GPU is looked at: the device stays auto, and B and C of a folder of
    images stay open. A backbone that comes with pretrained weights brings settings of its own for what the method and
    the dataset have by default: `--changed` shows them.
    """
    flags = flag_layers(base, step, device, threads, skip_bad_images, seed, devices, nodes, precision, compile_)
    load_plugins(plugin)
    settings = resolve_settings(method, dataset, recipe, config, sets, flags)
    shown = _completed(settings)
    if changed:
        defaults = _completed(resolve_settings(settings.method, settings.dataset, None, None, [], []))
        names = {"method": settings.method, "dataset": settings.dataset}
        shown = {**names, **_difference(shown, defaults)}
    if as_json:
        print(json.dumps(shown, indent=1))
        return
    import yaml

    print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), end="")


def _completed(settings: Settings) -> dict[str, Any]:
    """With B, C and threads filled in where neither the data nor torch is needed for it."""
    from ..data.registry import DATASETS
    from ..learn.protocol import available_cores, with_protocol

    if classes := DATASETS[settings.dataset].num_classes:
        settings = with_protocol(settings, classes)
    runtime = replace(settings.runtime, threads=settings.runtime.threads or available_cores())
    return settings.model_copy(update={"runtime": runtime}).dump()


def _difference(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that have another value, in their sections."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            if inner := _difference(value, default):
                found[key] = inner
        elif value != default or key not in defaults:
            found[key] = value
    return found
