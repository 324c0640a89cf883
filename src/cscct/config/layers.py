"""From layers of settings to one checked configuration.

Later layers win: defaults < the method's own settings < the dataset's preset (common, then the entry of the method,
then `recipes.printed` if asked for) < `presets/pretrained.yaml` where the backbone comes with weights < a config file <
`--set` and flags.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from ..data.registry import DATASETS
from ..errors import UserError
from ..methods import canonical_name, foreign_terms, parse_method, suggest
from ..nets import parse_backbone, with_digest
from ..yamltext import Raw, parse_yaml
from .checks import validate
from .schema import RECIPES, Settings

ABBREVIATIONS = {"B": "protocol.base", "C": "protocol.step"}  # as papers call them

# Settings that had another name before version 0.3: config files and run folders of that time are still read.
RENAMED = {f"runtime.{key}": f"numerics.{key}" for key in ("precision", "fold", "compile")}


def resolve(
    method: str | None = None,
    dataset: str | None = None,
    *,
    recipe: str | None = None,
    config: Raw | None = None,
    overrides: Sequence[Raw] = (),
) -> Settings:
    """All layers into checked settings, or one `UserError` that tells every problem."""
    config, overrides = with_new_names(config or {}), [with_new_names(layer) for layer in overrides]
    whole = config.pop("cscct_version", None) is not None  # written by a run: nothing is to be filled in
    given = {"method": method, "dataset": dataset, "recipe": recipe}
    for key, value in given.items():
        if any(key in layer for layer in overrides):
            raise UserError(
                f"{key} is not set with --set: it is an argument of its own (`cscct run METHOD DATASET --recipe NAME`)."
            )
        if whole and value is not None and value != config.get(key):
            raise UserError(
                f"The config is that of a whole run with {key} {config.get(key)!r}, and {value!r} is asked for: leave "
                "one out, or keep only the settings you want in the file."
            )
    method, dataset, recipe = _names({key: value or config.get(key) for key, value in given.items()})
    absent = [term for layer in (config, *overrides) for term in _stray_additions(layer, method)]
    if absent:
        raise UserError(
            f"loss.{absent[0]} is set, but {method} does not have it; name the method {method}+{absent[0]}."
        )
    user: Raw = {}
    for layer in overrides if whole else (config, *overrides):
        merge(user, layer)
    base = config if whole else preset_layers(method, dataset, recipe, user)
    raw = merge(copy.deepcopy(base), user)
    raw.update(method=method, dataset=dataset, recipe=recipe)
    for section in ("train", "finetune"):
        _scale_schedule(section, base, user, raw)
    if backbone := _backbone(raw):
        raw["network"]["backbone"] = with_digest(backbone)
    return validate(raw)


def _backbone(raw: Raw) -> str | None:
    """The name of the backbone, if it is one: other values are refused later."""
    network = raw.get("network")
    found = network.get("backbone") if isinstance(network, Mapping) else None
    return found if isinstance(found, str) else None


def _suit_backbone(base: Raw, user: Raw, method: str) -> None:
    """Adds to the preset what a backbone that comes with weights needs: its size of images and constants, and settings
    for fine-tuning. The size is left out where images are in memory, and are taken as they are."""
    both = merge(merge({}, base), user)
    name = _backbone(both)
    if name is None or both["network"].get("pretrained") is False:
        return
    wanted, preset = parse_backbone(name), load_preset("pretrained")
    own = preset["backbones"].get("timm" if wanted.from_timm else wanted.architecture)
    if own is None:
        return
    as_stored = base.get("data", {}).get("transform", {}).get("size") is None
    for layer in (preset["common"], own, preset["bases"].get(method, {})):
        merge(base, layer)
    if as_stored:
        del base["data"]["transform"]["size"]


def _names(wanted: Mapping[str, Any]) -> tuple[str, str, str]:
    """Method, dataset and recipe, known to exist."""
    method, dataset, recipe = wanted["method"], wanted["dataset"], wanted["recipe"] or "released"
    if not method or not dataset:
        raise UserError("A method and a dataset are needed: `cscct run METHOD DATASET`, or in the config file.")
    for key, value in (("method", method), ("dataset", dataset), ("recipe", recipe)):
        if not isinstance(value, str):
            raise UserError(f"{key} must be a name, not {value!r}.")
    if dataset not in DATASETS:
        raise UserError(
            f"There is no dataset {dataset!r}{suggest(dataset, DATASETS)}; there are {', '.join(DATASETS)}."
        )
    if recipe not in RECIPES:
        raise UserError(f"There is no recipe {recipe!r}; there are {' and '.join(RECIPES)}.")
    if recipe != "released" and recipe not in load_preset(dataset).get("recipes", {}):
        raise UserError(f"The paper says nothing of {dataset}, so there is no recipe {recipe!r} for it.")
    return canonical_name(method), dataset, recipe


def _stray_additions(layer: Raw, method: str) -> list[str]:
    """CSC and CT come by the method's name only, so that a base in a comparison stays one."""
    loss, foreign = layer.get("loss"), foreign_terms(method)
    if not isinstance(loss, Mapping):
        return []
    return [term for term, value in loss.items() if value is not None and term in foreign]


def tuned_for(overrides: Sequence[Raw], methods: Sequence[str]) -> list[list[Raw]]:
    """For each method of a comparison the overrides that concern it: those of CSC and CT only where it has them."""
    strays = [{term for layer in overrides for term in _stray_additions(layer, method)} for method in methods]
    for term in set.intersection(*strays):
        raise UserError(f"loss.{term} is set, but none of {', '.join(methods)} has it; add +{term} to one.")
    return [
        [
            {**layer, "loss": {n: o for n, o in layer["loss"].items() if n not in stray}}
            if isinstance(layer.get("loss"), Mapping)
            else layer
            for layer in overrides
        ]
        for stray in strays
    ]


def preset_layers(method: str, dataset: str, recipe: str, user: Raw | None = None) -> Raw:
    """What the method and the dataset's preset say. A preset tunes the losses a method has; it never adds one.

    user: settings that come later; a backbone in them may need other defaults.
    """
    base, extra = parse_method(method)
    raw = merge({}, base.settings)
    merge(raw, {"loss": {name: base.additions.get(name, {}) for name in extra}})
    for name in extra:
        if name in base.headlines:
            merge(raw, {"predict": {"headline": base.headlines[name]}})
    preset = load_preset(dataset)
    printed = preset.get("recipes", {}).get(recipe, {}) if recipe != "released" else {}
    for layer in (preset.get("common", {}), preset.get("bases", {}).get(base.preset_name, {}), printed):
        known = {name: options for name, options in layer.get("loss", {}).items() if name in raw["loss"]}
        merge(raw, {**layer, "loss": known})
    _suit_backbone(raw, user or {}, base.preset_name)
    return raw


@functools.cache  # nobody changes what it gives: merging copies
def load_preset(dataset: str) -> Raw:
    file = resources.files("cscct") / "presets" / f"{dataset}.yaml"
    return parse_yaml(file.read_text(encoding="utf-8"), file.name) if file.is_file() else {}


def merge(into: Raw, layer: Mapping[str, Any]) -> Raw:
    """Deep merge, in place: mappings join, everything else replaces."""
    for key, value in layer.items():
        if isinstance(value, Mapping):
            below = into.get(key)
            into[key] = merge(dict(below) if isinstance(below, Mapping) else {}, value)
        else:
            into[key] = copy.deepcopy(value)
    return into


def _scale_schedule(section: str, preset: Raw, user: Raw, raw: Raw) -> None:
    """Someone who asks for fewer epochs wants the decays earlier in proportion, and an offset of one epoch in 160 to
    shrink with them, unless they say otherwise."""
    wanted, before = user.get(section) or {}, preset.get(section) or {}
    if not isinstance(wanted, Mapping) or not isinstance(wanted.get("epochs"), int):
        return
    schedule, planned = wanted.get("schedule", {}), before.get("schedule")
    if not isinstance(schedule, Mapping) or not planned or not before.get("epochs"):
        return
    ratio = wanted["epochs"] / before["epochs"]
    offset = planned.get("offset", 0)
    if offset and "offset" not in schedule:
        offset = raw[section]["schedule"]["offset"] = round(offset * ratio)
    if planned.get("milestones") and "milestones" not in schedule:
        earliest = 1 + max(0, offset)  # the first epoch keeps the full rate
        raw[section]["schedule"]["milestones"] = [max(earliest, round(m * ratio)) for m in planned["milestones"]]


def with_new_names(layer: Mapping[str, Any]) -> Raw:
    """A layer in which settings that were renamed have their present names."""
    raw = merge({}, layer)
    for old, new in RENAMED.items():
        (section, key), (target, name) = old.split("."), new.split(".")
        if isinstance(raw.get(section), dict) and key in raw[section]:
            value = raw[section].pop(key)
            if isinstance(raw.setdefault(target, {}), dict):
                raw[target].setdefault(name, value)
    return raw
