"""Resolution of layers of settings into checked settings.

Later layers win:

1. defaults;
2. `common` of the dataset's preset, then the entry under `bases` that the method borrows (`Method.preset_from`);
3. the method's own settings, and those of its add-ons;
4. the entry under `bases` with the method's own name: the part of the method that depends on the dataset;
5. `recipes.printed` of the preset, if it is requested;
6. `presets/pretrained.yaml`, if the backbone comes with weights, except for what the method itself sets;
7. a config file, `--set` and flags.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from ..data.registry import DATASETS, HUGGINGFACE, kind_of
from ..errors import UserError
from ..methods import Method, canonical_name, foreign_terms, parse_method
from ..nets import parse_backbone, with_digest
from ..plugins import source_hashes
from ..text import suggest
from ..yamltext import Raw, merge, nested, parse_yaml
from .checks import part_modules, validate
from .renames import with_new_names
from .schema import DEFAULT_EPOCHS, RECIPES, Settings

ABBREVIATIONS = {"B": "protocol.base", "C": "protocol.step"}  # as papers call them


def resolve(
    method: str | None = None,
    dataset: str | None = None,
    *,
    recipe: str | None = None,
    config: Raw | None = None,
    overrides: Sequence[Raw] = (),
) -> Settings:
    """Resolve all layers into checked settings.

    Args:
        method: Name of the method; by default that in `config`.
        dataset: Name of the dataset; by default that in `config`.
        recipe: `released` or `printed`; by default that in `config`, else `released`.
        config: Settings of a config file. The config of a run is complete, and no defaults are added to it.
        overrides: Further layers, which win over `config`.

    Returns:
        The settings, with hashes of the plugins that define parts of the run.

    Raises:
        UserError: With all problems in one message.
    """
    config, overrides = with_new_names(config or {}), [with_new_names(layer) for layer in overrides]
    whole = config.pop("cscct_version", None) is not None  # written by a run: it has all settings
    arguments = {"method": method, "dataset": dataset, "recipe": recipe}
    for key in (*arguments, "plugins"):
        if any(key in layer for layer in overrides):
            raise UserError(
                f"{key} is not set with --set: it is an argument (`cscct run METHOD DATASET --recipe NAME --plugin "
                "FILE`)."
            )
    for key, value in arguments.items():
        if whole and value is not None and value != config.get(key):
            raise UserError(
                f"The config is that of a whole run with {key} {config.get(key)!r}, not {value!r}: omit "
                "one of them, or keep only some settings in the file."
            )
    method, dataset, recipe = _names({key: value or config.get(key) for key, value in arguments.items()})
    absent = [term for layer in (config, *overrides) for term in _foreign_losses(layer, method)]
    if absent:
        raise UserError(
            f"loss.{absent[0]} is set, but {method} does not have it; name the method {method}+{absent[0]}."
        )
    user: Raw = {}
    for layer in overrides if whole else (config, *overrides):
        merge(user, layer)
    base = config if whole else preset_layers(method, dataset, recipe, user)
    raw = merge(_without_other_protocol(copy.deepcopy(base), user), user)
    raw.update(method=method, dataset=dataset, recipe=recipe)
    for section in ("train", "finetune"):
        _scale_schedule(section, base, user, raw)
    if backbone := _backbone(raw):
        raw["network"]["backbone"] = with_digest(backbone)
    raw.pop("plugins", None)  # of the run that wrote the config; those that are loaded count
    settings = validate(raw)
    return settings.model_copy(update={"plugins": source_hashes(part_modules(settings))})


def _without_other_protocol(base: Raw, user: Raw) -> Raw:
    """Remove B and C from the settings below the user's if the user sets the tasks themselves, and vice versa."""
    wanted, default = user.get("protocol"), base.get("protocol")
    if isinstance(wanted, Mapping) and isinstance(default, Mapping):
        sized = any(wanted.get(key) is not None for key in ("base", "step"))
        replaced = ("base", "step") if wanted.get("tasks") is not None else ("tasks",) if sized else ()
        base["protocol"] = {key: value for key, value in default.items() if key not in replaced}
    return base


def _backbone(raw: Raw) -> str | None:
    """Return the name of the backbone, or None if the value is not a name, which is reported later."""
    network = raw.get("network")
    name = network.get("backbone") if isinstance(network, Mapping) else None
    return name if isinstance(name, str) else None


def _merge_pretrained(base: Raw, user: Raw, method: Method, own: Raw) -> None:
    """Add to `base` the settings that a backbone with pretrained weights needs: image size, normalisation and settings
    for fine-tuning. The size is left out where images are in memory and are not resized. own: the method's settings,
    which win."""
    combined = merge(merge({}, base), user)
    name = _backbone(combined)
    if name is None or combined["network"].get("pretrained") is False:
        return
    backbone, preset = parse_backbone(name), load_preset("pretrained")
    needed = preset["backbones"].get("timm" if backbone.from_timm else backbone.architecture)
    if needed is None:
        return
    in_memory = base.get("data", {}).get("transform", {}).get("size") is None
    borrowed, recipe = _bases(preset, method)
    for layer in (preset["common"], needed, borrowed):
        merge(base, _without(layer, own))
    merge(base, recipe)
    if in_memory:
        del base["data"]["transform"]["size"]


def _bases(preset: Raw, method: Method) -> tuple[Raw, Raw]:
    """Return the entries under `bases` for a method: those of the method that it derives from, and those of the method
    itself."""
    entries = preset.get("bases", {})
    return (entries.get(method.preset_from, {}) if method.preset_from else {}), entries.get(method.name, {})


def _without(layer: Raw, own: Raw) -> Raw:
    """Return the settings of a layer that `own` does not have."""
    kept: Raw = {}
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(own.get(key), Mapping):
            kept[key] = _without(dict(value), dict(own[key]))
        elif key not in own:
            kept[key] = value
    return kept


def _names(wanted: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return method, dataset and recipe after checking that they exist."""
    method, dataset, recipe = wanted["method"], wanted["dataset"], wanted["recipe"] or "released"
    if not method or not dataset:
        raise UserError("A method and a dataset are needed: `cscct run METHOD DATASET`, or in the config file.")
    for key, value in (("method", method), ("dataset", dataset), ("recipe", recipe)):
        if not isinstance(value, str):
            raise UserError(f"{key} must be a name, not {value!r}.")
    if kind_of(dataset) is None:
        raise UserError(
            f"There is no dataset {dataset!r}{suggest(dataset, DATASETS)}; the datasets are {', '.join(DATASETS)} "
            f"and {HUGGINGFACE}NAME."
        )
    if recipe not in RECIPES:
        raise UserError(f"There is no recipe {recipe!r}; the recipes are {' and '.join(RECIPES)}.")
    if recipe != "released" and recipe not in load_preset(dataset).get("recipes", {}):
        raise UserError(f"The paper says nothing of {dataset}, so there is no recipe {recipe!r} for it.")
    return canonical_name(method), dataset, recipe


def _foreign_losses(layer: Raw, method: str) -> list[str]:
    """Return losses of add-ons that a layer sets although the method does not have them. Add-ons are added by name
    only, so that the base method of a comparison stays the same."""
    loss, foreign = layer.get("loss"), foreign_terms(method)
    if not isinstance(loss, Mapping):
        return []
    return [term for term, value in loss.items() if value is not None and term in foreign]


def tuned_for(overrides: Sequence[Raw], methods: Sequence[str]) -> list[list[Raw]]:
    """Return for each method the overrides that concern it: settings of an add-on only if the method has it.

    Args:
        overrides: Layers of settings.
        methods: Names of the methods of a comparison.

    Raises:
        UserError: If an override concerns none of the methods.
    """
    strays = [{term for layer in overrides for term in _foreign_losses(layer, method)} for method in methods]
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
    """Merge the settings of a method with the presets. A preset tunes the losses of a method, but does not add one.

    Args:
        method: Name of a method, with or without add-ons.
        dataset: Name of a dataset; one without a preset adds nothing.
        recipe: `released` or `printed`.
        user: Settings of later layers. A backbone in them may need other defaults.

    Returns:
        Nested settings, without the defaults of the schema.
    """
    base, extra = parse_method(method)
    own = merge({}, base.settings)
    merge(own, {"loss": {name: base.addon_settings.get(name, {}) for name in extra}})
    for name in extra:
        if name in base.addon_predictors:
            merge(own, {"predict": {"predictor": base.addon_predictors[name]}})
    preset = load_preset(dataset)
    borrowed, entry = _bases(preset, base)
    printed = preset.get("recipes", {}).get(recipe, {}) if recipe != "released" else {}
    raw: Raw = {
        "loss": {name: {} for name in own["loss"]},  # terms are summed in this order, whatever presets set
        "train": {"epochs": DEFAULT_EPOCHS},
    }
    for layer in (preset.get("common", {}), borrowed, own, entry, printed):
        tuned = {name: options for name, options in layer.get("loss", {}).items() if name in own["loss"]}
        merge(raw, {**layer, "loss": tuned})
    _merge_pretrained(raw, user or {}, base, own)
    return raw


@functools.cache  # the result is not changed: `merge` copies
def load_preset(dataset: str) -> Raw:
    """Load the preset of a dataset; empty if there is none. Published folders of images share that of `folder`,
    datasets of Hugging Face that of `arrays`."""
    name = "folder" if dataset in ("tiny-imagenet", "cub200") else dataset
    name = "arrays" if dataset.startswith(HUGGINGFACE) else name
    file = resources.files("cscct") / "presets" / f"{name}.yaml"
    return parse_yaml(file.read_text(encoding="utf-8"), file.name) if file.is_file() else {}


def dotted_layers(settings: Mapping[str, Any]) -> list[Raw]:
    """Turn settings with dotted names, such as `{"train.epochs": 5, "B": 50}`, into layers for `resolve`."""
    return [nested(ABBREVIATIONS.get(key, key), value) for key, value in settings.items()]


def _scale_schedule(section: str, preset: Raw, user: Raw, raw: Raw) -> None:
    """Scale milestones and offset of the preset in proportion if the user changes only the number of epochs."""
    wanted, before = user.get(section) or {}, preset.get(section) or {}
    if not isinstance(wanted, Mapping) or not isinstance(wanted.get("epochs"), int):
        return
    schedule, planned = wanted.get("schedule", {}), before.get("schedule")
    if not isinstance(schedule, Mapping) or not planned or not before.get("epochs"):
        return
    ratio = wanted["epochs"] / before["epochs"]
    offset = planned.get("epoch_offset", 0)
    if offset and "epoch_offset" not in schedule:
        offset = raw[section]["schedule"]["epoch_offset"] = round(offset * ratio)
    if planned.get("milestones") and "milestones" not in schedule:
        earliest = 1 + max(0, offset)  # the first epoch keeps the full rate
        raw[section]["schedule"]["milestones"] = [max(earliest, round(m * ratio)) for m in planned["milestones"]]
