"""Studies: a grid of settings in YAML as a list of runs.

dataset: cifar100
methods: [lucir, lucir+cscct]
seeds: [1, 2, 3]
set: {train.epochs: 20}                 # for all runs
grid:                                   # every combination of these
  protocol: [{base: 50, step: 5}, {base: 5, step: 5}]
  memory.per_class: [10, 20]
  train.batch_size: [128, 256]
linear_lr: true                         # learning rates proportional to the batch size
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..config import dotted_layers, merge, preset_layers, resolve, tuned_for
from ..errors import UserError
from ..methods import canonical_name, foreign_terms
from ..runs.folder import RunFolder
from ..specs import Stage
from ..text import suggest
from ..yamltext import Raw
from .plan import PlannedRun

Names = Annotated[list[str], Field(min_length=1)]
SEED, LONGEST = "seed", 120


class Study(BaseModel):
    """A study. The module docstring shows an example.

    Attributes:
        dataset: Name of the dataset.
        methods: Names of the methods.
        seeds: Seeds of each combination.
        recipe: Recipe of the presets, or None for the default.
        set: Settings of all runs, by dotted name.
        grid: Values of each setting that varies, by dotted name.
        linear_lr: Whether learning rates are proportional to the batch size.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dataset: str
    methods: Names
    seeds: Annotated[list[int], Field(min_length=1)] = [1, 2, 3]
    recipe: str | None = None
    set: dict[str, Any] = {}
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    linear_lr: bool = False


def parse_study(raw: Raw, name: str) -> Study:
    """Validate a study.

    Args:
        raw: Content of a YAML file.
        name: Name of the file, for messages.

    Raises:
        UserError: If a key is unknown, missing or has a wrong value, or a value occurs twice.
    """
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{name}: " + "; ".join(_explain(entry) for entry in error.errors()) + ".") from error
    lists: dict[str, list[Any]] = {"methods": list(study.methods), "seeds": list(study.seeds), **study.grid}
    for key, values in lists.items():
        duplicates = [value for i, value in enumerate(values) if value in values[:i]]
        if duplicates:
            raise UserError(f"{name}: {key} contains {duplicates[0]!r} twice.")
    for key in ("method", "methods", SEED, "seeds", "dataset"):
        if key in study.grid or key in study.set:
            section = {"method": "methods", SEED: "seeds"}.get(key, key)
            raise UserError(f"{name}: {key} cannot be in `set` or `grid`: use `{section}` at the top level.")
    return study


def _explain(error: Any) -> str:
    """Return a clause for an error of pydantic."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"a study has no key {key!r}{suggest(key, Study.model_fields)}"
    if error["type"] == "missing":
        return f"{key!r} is missing"
    return f"{key} is {error['input']!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def plan_study(
    study: Study, out: Path, overrides: Sequence[Raw] = (), *, config: Raw | None = None, separator: str = "_"
) -> list[PlannedRun]:
    """Return the runs of a study, in folders of `out` that are named after the settings that vary.

    Args:
        study: The study.
        out: Folder of the run folders.
        overrides: Settings with precedence over those of the study.
        config: Settings from a file. The study has precedence.
        separator: Separator between the group and the seed in folder names.

    Raises:
        UserError: If a setting is invalid, or the grid varies a loss that no method has.
    """
    methods = [canonical_name(method) for method in study.methods]
    for key in study.grid:
        if not any(_concerns(key, method) for method in methods):
            raise UserError(f"The grid varies {key}, but none of {', '.join(methods)} has that loss.")
    common = tuned_for([config or {}, *_layers(study.set), *overrides], methods)
    plan: dict[str, PlannedRun] = {}
    for (method, (file, *shared)), point in itertools.product(zip(methods, common, strict=True), _points(study.grid)):
        point = {key: value for key, value in point.items() if _concerns(key, method)}
        recipe = point.get("recipe", study.recipe)
        layers = [*shared, *_layers(point)]
        if study.linear_lr:
            layers = with_linear_rate(layers, method, study.dataset, recipe or "released")
        group = group_name(method, point)
        for seed in study.seeds:
            name = f"{group}{separator}seed{seed}"
            if name not in plan:  # a method that ignores a setting of the grid occurs once per value
                with_seed = [*layers, {SEED: seed}]
                settings = resolve(method, study.dataset, recipe=recipe, config=file, overrides=with_seed)
                plan[name] = PlannedRun(group, settings, RunFolder(out / name))
    return list(plan.values())


def plan_comparison(
    methods: Sequence[str],
    dataset: str,
    seeds: Sequence[int],
    out: Path,
    *,
    recipe: str | None = None,
    config: Raw | None = None,
    overrides: Sequence[Raw] = (),
) -> list[PlannedRun]:
    """Return the runs of several methods with the same seeds, in folders `METHOD-seedN` of `out`.

    Args:
        methods: Names of at least two methods.
        dataset: Name of the dataset.
        seeds: Seeds of each method.
        out: Folder of the run folders.
        recipe: Recipe of the presets, or None for the default.
        config: Settings from a file. The arguments have precedence over its method, dataset and seed.
        overrides: Settings with precedence over all others.

    Raises:
        UserError: If there are fewer than two methods, or a name or setting is invalid.
    """
    names = list(dict.fromkeys(map(canonical_name, methods)))
    if len(names) < 2:
        raise UserError(
            f"A comparison needs at least two methods, not {', '.join(names) or 'none'}: use "
            f"`cscct run {names[0] if names else 'METHOD'} {dataset}` for a single method."
        )
    raw = {"dataset": dataset, "methods": names, "seeds": list(seeds), "recipe": recipe}
    study = parse_study(raw, "The comparison")
    return plan_study(study, out, overrides, config=config, separator="-")


def _points(grid: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _layers(settings: Mapping[str, Any]) -> list[Raw]:
    return dotted_layers({key: value for key, value in settings.items() if key != "recipe"})


def _concerns(key: str, method: str) -> bool:
    """Return whether a setting affects a method. Weights of losses that it lacks do not: it runs once."""
    section, _, rest = key.partition(".")
    term = rest.partition(".")[0]
    return section != "loss" or term not in foreign_terms(method)


def with_linear_rate(layers: Sequence[Raw], method: str, dataset: str, recipe: str) -> list[Raw]:
    """Append learning rates proportional to the batch sizes, starting from the recipe. Explicit rates are kept."""
    merged: Raw = {}
    for layer in layers:
        merge(merged, layer)
    preset, rates = preset_layers(method, dataset, recipe, merged), []
    for section in ("train", "finetune"):
        stage, default = merged.get(section) or {}, preset.get(section) or {}
        if "batch_size" in stage and "lr" not in stage:
            lr, batch_size = default.get("lr", Stage.lr), default.get("batch_size", Stage.batch_size)
            rates.append({section: {"lr": lr * stage["batch_size"] / batch_size}})
    return [*layers, *rates]


def group_name(method: str, point: Mapping[str, Any]) -> str:
    """Return a folder name: readable, deterministic and different for different values."""
    parts = [method, *(f"{key}-{_text(value)}" for key, value in point.items())]
    name = "_".join(parts)
    if len(name) > LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[:LONGEST]}-{digest}"
    return name


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "-".join(f"{key}{_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return "-".join(_text(part) for part in value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", str(value))
