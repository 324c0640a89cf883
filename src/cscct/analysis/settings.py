"""Settings of runs: those with an effect on the result, labels of groups, and a readable protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..config import ABBREVIATIONS
from ..features import PREDICTORS
from ..yamltext import flatten

Flat = dict[str, Any]

# Settings that define an experiment, whatever the method. All others except the losses define how a method is trained.
EXPERIMENT = {
    "dataset": "dataset",
    "recipe": "recipe",
    "data.order": "class order",
    "data.classes": "number of classes",
    "data.train_per_class": "training images per class",
    "data.test_per_class": "test images per class",
    "data.validation": "fraction of validation images",
    "data.test_fraction": "fraction of test images",
    "data.skip_bad_images": "skipping of unreadable images",
    "protocol.base": "B (classes of the first task)",
    "protocol.step": "C (classes of each later task)",
    "protocol.tasks": "classes of each task",
    "memory.policy": "memory policy",
    "memory.per_class": "memory per class",
    "memory.total": "total memory",
    "memory.rounding": "rounding of the memory",
}
_NO_EFFECT = ("cscct_version", "seed", "runtime", "checkpoint")
_IDLE_MEMORY = {"per_class": ("memory.total", "memory.rounding"), "total": ("memory.per_class",)}


def effective(settings: Mapping[str, Any]) -> Flat:
    """Return the settings that affect the result of a run, except the seed, by dotted name."""
    flat = flatten({key: value for key, value in settings.items() if key not in _NO_EFFECT})
    flat = {key: value for key, value in flat.items() if value is not None}
    for key in _IDLE_MEMORY.get(str(flat.get("memory.policy")), ()):
        flat.pop(key, None)
    if flat.get("network.train_backbone") is False:
        flat = {key: value for key, value in flat.items() if not key.startswith("train.")}
    return flat


def predictor_title(name: str) -> str:
    """Return the name of a predictor in tables and figures."""
    registered = PREDICTORS[name].title if name in PREDICTORS else ""
    return "nearest mean" if name == "nme" else registered or name


def with_prediction(label: str, method: str, headline: str) -> str:
    """Add the predictor to a label unless it is the classifier or the method itself."""
    return label if headline in ("classifier", method) else f"{label} ({predictor_title(headline)})"


def differing(settings: Sequence[Flat]) -> list[str]:
    """Return the names of settings whose value, or presence, is not the same everywhere."""
    names = dict.fromkeys(name for flat in settings for name in flat)
    return [name for name in names if any(flat.get(name) != settings[0].get(name) for flat in settings)]


def show(value: Any) -> str:
    """Return a short text for a value."""
    if value is None or value in ([], ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value)) if len(value) <= 8 else f"a list of {len(value)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def distinguishing(settings: Sequence[Flat]) -> list[str]:
    """Return the settings that distinguish groups in addition to the method.

    These are the settings of `EXPERIMENT` that differ, and all settings that differ between groups with the same
    method. Most settings depend on the dataset, so apart from the dataset itself only groups with the same dataset are
    compared.
    """
    names = [name for name in differing(settings) if name == "dataset"]
    for same_data in _partition(settings, "dataset"):
        names += [name for name in differing(same_data) if name in EXPERIMENT]
    for same_method in _partition(settings, "dataset", "method"):
        names += differing(same_method)
    return list(dict.fromkeys(names))


def _partition(settings: Sequence[Flat], *keys: str) -> Iterable[list[Flat]]:
    parts: dict[tuple[Any, ...], list[Flat]] = {}
    for flat in settings:
        parts.setdefault(tuple(flat.get(key) for key in keys), []).append(flat)
    return parts.values()


def label_groups(settings: Sequence[Flat], states: Sequence[str]) -> list[str]:
    """Return a distinct label for each group.

    A label consists of the method, `key=value` for each setting of `distinguishing` that the group has, and its state,
    such as `2 of 4 tasks`. Groups that would share a label are numbered.

    Args:
        settings: Effective settings of each group.
        states: State of each group; empty for complete groups.
    """
    names = distinguishing(settings)
    keys = short_keys(names, {key for flat in settings for key in flat})
    labels: list[str] = []
    counts: dict[str, int] = {}
    for flat, state in zip(settings, states, strict=True):
        parts = [f"{keys[name]}={_compact(flat[name])}" for name in names if name in flat]
        label = ", ".join(filter(None, [flat["method"], *parts, state]))
        counts[label] = counts.get(label, 0) + 1
        labels.append(f"{label} #{counts[label]}" if counts[label] > 1 else label)
    return labels


def short_keys(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Map each name to its abbreviation (`B`, `C`), else to its shortest suffix that identifies it among `known`.

    Example:
        >>> short_keys(["loss.csc.weight", "train.lr"], ["loss.csc.weight", "loss.ct.weight", "train.lr"])
        {'loss.csc.weight': 'csc.weight', 'train.lr': 'lr'}
    """
    abbreviations = {name: short for short, name in ABBREVIATIONS.items()}
    endings = [f".{key}" for key in known]

    def shortest(name: str) -> str:
        parts = name.split(".")
        suffixes = [".".join(parts[start:]) for start in reversed(range(len(parts)))]
        return next((suffix for suffix in suffixes if sum(key.endswith(f".{suffix}") for key in endings) == 1), name)

    return {name: abbreviations.get(name) or shortest(name) for name in names}


def _compact(value: Any) -> str:
    """Return a value for a label, in which settings are separated by a comma and a space."""
    text = show(value).replace(", ", ",")
    return f"[{text}]" if isinstance(value, list | tuple) else text


def protocol(settings: Mapping[str, Any], tasks: int) -> dict[str, str]:
    """Return a description of an experiment that is complete enough to repeat it."""
    data, memory, network, predict = (settings[name] for name in ("data", "memory", "network", "predict"))
    transform, loss = data["transform"], {name: term for name, term in settings["loss"].items() if term}
    limits = {"classes": "classes", "train_per_class": "training images per class", "test_per_class": "test images"}
    cut = [f"the first {data[key]} {what}" for key, what in limits.items() if data[key] is not None]
    if data["validation"] is not None:
        cut.append(f"{100 * data['validation']:g} % of the training images held out for validation")
    per_class = memory["policy"] == "per_class"
    rows = f", {network['proxies_per_class']} rows per class" if network["proxies_per_class"] > 1 else ""
    forms = [f"{name} {term['form']}" for name, term in loss.items() if "form" in term]
    return {
        "Dataset": ", ".join([settings["dataset"], *cut]),
        "Class order": _order(settings),
        "Tasks": f"{tasks}: {_tasks(settings['protocol'])}",
        "Memory": f"{memory['per_class']} images per class"
        if per_class
        else f"{memory['total']} images in all, shared ({memory['rounding']})",
        "Network": f"{network['backbone']}, depth {network['depth']}, {network['head']} head{rows}, new rows from "
        f"{network['imprint']}, old rows {'frozen' if network['freeze_old'] else 'trained'}"
        + (", head behind a ReLU" if network["relu_head"] else ""),
        "Prediction": predictor_title(predict["predictor"]) + f"; second view in the means: {predict['nme_aug']}",
        "Normalisation": f"mean {show(transform['mean'])}; sd {show(transform['std'])}",
        "Augmentation": _augmentation(transform),
        "Losses": "; ".join(_term(name, term) for name, term in loss.items()) or "none",
        "Forms": ", ".join([*forms, f"herding {memory['herding']}"]),
        "Precision": _precision(settings["numerics"]),
        "Recipe": settings["recipe"],
        "Training": _stage(settings["train"]) if network["train_backbone"] else "none: the network stays as it is",
        "Fine-tuning": _stage(settings["finetune"]) if settings["finetune"] else "none",
    }


def _order(settings: Mapping[str, Any]) -> str:
    if any(isinstance(task, list | tuple) for task in settings["protocol"]["tasks"] or ()):
        return "that of the tasks, which list class names"
    order = settings["data"]["order"]
    return "drawn from each seed" if order == "seed" else show(order)


def _tasks(protocol: Mapping[str, Any]) -> str:
    if protocol["tasks"]:
        sizes = [len(task) if isinstance(task, list | tuple) else task for task in protocol["tasks"]]
        return f"{' + '.join(map(str, sizes))} classes"
    return f"B = {show(protocol['base'])} classes first, then C = {show(protocol['step'])} at a time"


def _augmentation(transform: Mapping[str, Any]) -> str:
    crop = f"random resized crop to {transform['size']} pixels" if transform["size"] else ""
    if not crop and transform["padding"]:
        crop = f"random crop after padding by {transform['padding']}"
    flip = "horizontal flip" if transform["flip"] else ""
    light = f"brightness ± {transform['brightness']:.3g}" if transform["brightness"] else ""
    return ", ".join(filter(None, (crop, flip, light))) or "none"


def _precision(numerics: Mapping[str, Any]) -> str:
    kept = [numerics["precision"]]
    kept += [f"compiled networks: {numerics['compile']}"] if numerics["compile"] != "none" else []
    kept += [] if numerics["fold"] else ["batch norm not folded"]
    return ", ".join(kept)


def _term(name: str, term: Mapping[str, Any]) -> str:
    known = ("weight", "weight_scaling", "form")
    options = [] if term.get("weight_scaling", "constant") == "constant" else [f"× {term['weight_scaling']}"]
    options += [f"{key} {show(value)}" for key, value in term.items() if key not in known]
    return f"{show(term['weight'])} {name}" + (f" ({', '.join(options)})" if options else "")


def _stage(stage: Mapping[str, Any]) -> str:
    schedule = stage["schedule"]
    how = schedule["kind"]
    if how == "multistep":
        how = f"× {show(schedule['factor'])} at epochs {show(schedule['milestones'])}"
    shift = f" (clock {schedule['epoch_offset']:+d})" if schedule["epoch_offset"] else ""
    clamp = f", gradients clamped to ± {show(stage['clip_grad_value'])}" if stage["clip_grad_value"] else ""
    full = " (full ones only)" if stage.get("drop_last") else ""
    return (
        f"{stage['epochs']} epochs, batches of {stage['batch_size']}{full}, "
        f"learning rate {show(stage['lr'])}, {how}{shift}, "
        f"momentum {show(stage['momentum'])}, weight decay {show(stage['weight_decay'])}{clamp}"
        + (f", batch norm {stage['batch_norm']}" if "batch_norm" in stage else "")
    )
