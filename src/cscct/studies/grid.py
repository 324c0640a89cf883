"""A study: many settings at once, from a YAML file, as a list of runs.

dataset: cifar100
methods: [lucir, lucir+cscct]
seeds: [1, 2, 3]
set: {train.epochs: 20}                 # for all runs
grid:                                   # every combination of these
  protocol: [{base: 50, step: 5}, {base: 5, step: 5}]
  memory.per_class: [10, 20]
  train.batch_size: [128, 256]
linear_lr: true                         # the learning rate follows the batch size
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..config import ABBREVIATIONS, merge, preset_layers, resolve, tuned_for
from ..errors import UserError
from ..methods import canonical_name, foreign_terms, suggest
from ..runs.folder import RunFolder
from ..specs import Stage
from ..yamltext import Raw, nested
from .plan import PlannedRun

Names = Annotated[list[str], Field(min_length=1)]
SEED, LONGEST = "seed", 120


class Study(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dataset: str
    methods: Names
    seeds: Annotated[list[int], Field(min_length=1)] = [1, 2, 3]
    recipe: str | None = None
    set: dict[str, Any] = {}
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    linear_lr: bool = False


def parse_study(raw: Raw, name: str) -> Study:
    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{name}: " + "; ".join(_sentence(finding) for finding in error.errors()) + ".") from error
    lists: dict[str, list[Any]] = {"methods": list(study.methods), "seeds": list(study.seeds), **study.grid}
    for what, values in lists.items():
        doubled = [one for i, one in enumerate(values) if one in values[:i]]
        if doubled:
            raise UserError(f"{name}: {what} names {doubled[0]!r} twice.")
    for key in ("method", "methods", SEED, "seeds", "dataset"):
        if key in study.grid or key in study.set:
            where = {"method": "methods", SEED: "seeds"}.get(key, key)
            raise UserError(f"{name}: {key} is not a setting of the grid; name it beside it, under `{where}`.")
    return study


def _sentence(finding: Any) -> str:
    place = ".".join(str(part) for part in finding["loc"])
    if finding["type"] == "extra_forbidden":
        return f"there is no {place!r} in a study{suggest(place, Study.model_fields)}"
    if finding["type"] == "missing":
        return f"{place!r} is missing"
    return f"{place} is {finding['input']!r}: {finding['msg'][0].lower()}{finding['msg'][1:]}"


def plan_study(
    study: Study, out: Path, overrides: Sequence[Raw] = (), *, config: Raw | None = None, separator: str = "_"
) -> list[PlannedRun]:
    """The runs of a study, each once, in folders of `out` that are named by what was varied.

    config: settings from a file, below those of the study. separator: between the name of a group and its seed.
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
        own = [*shared, *_layers(point)]
        if study.linear_lr:
            own = with_linear_rate(own, method, study.dataset, recipe or "released")
        group = group_name(method, point)
        for seed in study.seeds:
            name = f"{group}{separator}seed{seed}"
            if name not in plan:  # a method that an axis does not concern appears once per value
                layers = [*own, {SEED: seed}]
                settings = resolve(method, study.dataset, recipe=recipe, config=file, overrides=layers)
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
    """The runs of several methods on the same seeds, in folders `METHOD-seedN` of `out`.

    config: settings from a file; of method, dataset and seed the arguments count.
    """
    names = list(dict.fromkeys(map(canonical_name, methods)))
    if len(names) < 2:
        raise UserError(
            f"A comparison needs two or more methods, and {', '.join(names) or 'none'} is given; "
            f"one alone is run with `cscct run {names[0] if names else 'METHOD'} {dataset}`."
        )
    raw = {"dataset": dataset, "methods": names, "seeds": list(seeds), "recipe": recipe}
    study = parse_study(raw, "The comparison")
    return plan_study(study, out, overrides, config=config, separator="-")


def _points(grid: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _layers(settings: Mapping[str, Any]) -> list[Raw]:
    return [nested(ABBREVIATIONS.get(key, key), value) for key, value in settings.items() if key != "recipe"]


def _concerns(key: str, method: str) -> bool:
    """Settings of an addition do not concern a method without it: it is run once, not once for each value."""
    section, _, rest = key.partition(".")
    term = rest.partition(".")[0]
    return section != "loss" or term not in foreign_terms(method)


def with_linear_rate(layers: Sequence[Raw], method: str, dataset: str, recipe: str) -> list[Raw]:
    """Learning rates in proportion to the batch sizes, from where the recipe has them; a rate that is given stays."""
    given: Raw = {}
    for layer in layers:
        merge(given, layer)
    preset, rates = preset_layers(method, dataset, recipe, given), []
    for section in ("train", "finetune"):
        wanted, own = given.get(section) or {}, preset.get(section) or {}
        if "batch_size" in wanted and "lr" not in wanted:
            lr, batch = own.get("lr", Stage.lr), own.get("batch_size", Stage.batch_size)
            rates.append({section: {"lr": lr * wanted["batch_size"] / batch}})
    return [*layers, *rates]


def group_name(method: str, point: Mapping[str, Any]) -> str:
    """A folder's name: readable, the same tomorrow, and different for different values."""
    parts = [method, *(f"{key}-{_text(value)}" for key, value in point.items())]
    name = "_".join(parts)
    if len(name) > LONGEST:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[:LONGEST]}-{digest}"
    return name


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "-".join(f"{key}{_text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return "-".join(_text(one) for one in value)
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", str(value))
