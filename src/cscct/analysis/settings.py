"""The settings of runs as people compare them: what has an effect, what a group is called, what its protocol is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Flat = dict[str, Any]

# What makes two experiments different ones, whatever the methods. All else but the losses is how a method is trained.
EXPERIMENT = {
    "dataset": "dataset",
    "recipe": "recipe",
    "data.order": "class order",
    "data.classes": "number of classes",
    "data.train_per_class": "training images per class",
    "data.test_per_class": "test images per class",
    "data.test_fraction": "share of test images",
    "data.skip_bad_images": "leaving out of bad images",
    "protocol.base": "B, classes of the first task",
    "protocol.step": "C, classes of a later task",
    "memory.policy": "memory policy",
    "memory.per_class": "memory per class",
    "memory.total": "memory in all",
    "memory.rounding": "rounding of the memory",
}
# The predictions that runs store, in words
PREDICTIONS = {"classifier": "classifier", "nme": "nearest mean", "lda": "LDA", "ridge": "ridge regression"}
_NO_EFFECT = ("cscct_version", "seed", "runtime", "checkpoint")
_IDLE_MEMORY = {"per_class": ("memory.total", "memory.rounding"), "total": ("memory.per_class",)}
_LABEL_PARTS = 3  # more settings than this make a label hard to read


def effective(settings: Mapping[str, Any]) -> Flat:
    """Dotted names and values, without the seed and without what changes nothing in this run."""
    flat: Flat = {}
    _flatten({key: value for key, value in settings.items() if key not in _NO_EFFECT}, "", flat)
    for key in _IDLE_MEMORY.get(str(flat.get("memory.policy")), ()):
        flat.pop(key, None)
    if flat.get("network.trained") is False:
        flat = {key: value for key, value in flat.items() if not key.startswith("train.")}
    return flat


def with_prediction(label: str, method: str, headline: str) -> str:
    """A label that says by which prediction the method goes, where it is neither the classifier nor its name."""
    return label if headline in ("classifier", method) else f"{label} ({PREDICTIONS.get(headline, headline)})"


def _flatten(node: Mapping[str, Any], path: str, into: Flat) -> None:
    for key, value in node.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{path}{key}.", into)
        elif value is not None:
            into[path + key] = value


def differing(settings: Sequence[Flat]) -> list[str]:
    """Names whose values are not the same in all; one that is absent has a value of its own."""
    names = dict.fromkeys(name for flat in settings for name in flat)
    return [name for name in names if any(flat.get(name) != settings[0].get(name) for flat in settings)]


def show(value: Any) -> str:
    """A value in a word or two."""
    if value is None or value in ([], ()):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value)) if len(value) <= 8 else f"a list of {len(value)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def distinguishing(settings: Sequence[Flat]) -> list[str]:
    """Settings that tell groups apart beside their methods: those that make another experiment, and those in which
    groups of the same method differ."""
    found = [name for name in differing(settings) if name in EXPERIMENT]
    for method in dict.fromkeys(flat["method"] for flat in settings):
        found += differing([flat for flat in settings if flat["method"] == method])
    return list(dict.fromkeys(found))


def label_groups(settings: Sequence[Flat], states: Sequence[str]) -> list[str]:
    """A distinct label for each group: its method, the settings that tell it from other groups, how far it has come.

    Groups on different datasets are told apart by the dataset alone: most of their settings differ.
    """
    apart = [name for name in differing(settings) if name == "dataset"]
    labels: list[str] = []
    for flat, state in zip(settings, states, strict=True):
        same_data = [other for other in settings if other["dataset"] == flat["dataset"]]
        names = apart + [name for name in differing(same_data) if name in EXPERIMENT]
        family = [other for other in same_data if other["method"] == flat["method"]]
        names += _telling_names(flat, family, names)
        parts = [*dict.fromkeys(_part(name, flat) for name in names), state]
        label = ", ".join([flat["method"], *filter(None, parts)])
        same = sum(other == label or other.startswith(f"{label} #") for other in labels)
        labels.append(f"{label} #{same + 1}" if same else label)
    return labels


def _telling_names(flat: Flat, family: Sequence[Flat], known: Sequence[str]) -> list[str]:
    """Further settings that differ within a family of groups: all if they are few, else as many as are needed to tell
    `flat` from the others."""
    names = [name for name in differing(family) if name not in known]
    if len(names) <= _LABEL_PARTS:
        return names
    chosen: list[str] = []
    rivals = [other for other in family if other is not flat and _same(known, other, flat)]
    while rivals:
        best = min(names, key=lambda name: sum(_same([name], other, flat) for other in rivals))
        left = [other for other in rivals if _same([best], other, flat)]
        if len(left) == len(rivals):
            break
        chosen.append(best)
        rivals = left
    return chosen


def _same(names: Sequence[str], one: Flat, other: Flat) -> bool:
    """Whether labels show the same values under these names."""
    return all(_part(name, one) == _part(name, other) for name in names)


def _part(name: str, flat: Flat) -> str:
    if name == "dataset":
        return str(flat["dataset"])
    if name.startswith("protocol."):
        sizes = {"B": flat.get("protocol.base"), "C": flat.get("protocol.step")}
        return " ".join(f"{letter}={show(size)}" for letter, size in sizes.items() if size is not None)
    if name.startswith("memory.") and name in EXPERIMENT:
        total = flat.get("memory.policy") == "total"
        size = f"{flat.get('memory.total')} in all" if total else flat.get("memory.per_class")
        return f"memory {size}"
    short = name.removeprefix("data.").removeprefix("loss.")
    return f"{short}={show(flat.get(name))}"


def protocol(settings: Mapping[str, Any], tasks: int) -> dict[str, str]:
    """What one must know to repeat or judge the result, in words."""
    data, memory, network, predict = (settings[name] for name in ("data", "memory", "network", "predict"))
    transform, loss = data["transform"], {name: term for name, term in settings["loss"].items() if term}
    limits = {"classes": "classes", "train_per_class": "training images per class", "test_per_class": "test images"}
    cut = [f"the first {data[key]} {what}" for key, what in limits.items() if data[key] is not None]
    per_class = memory["policy"] == "per_class"
    rows = f", {network['rows_per_class']} rows per class" if network["rows_per_class"] > 1 else ""
    forms = [f"{name} {term['form']}" for name, term in loss.items() if "form" in term]
    return {
        "Dataset": ", ".join([settings["dataset"], *cut]),
        "Class order": "drawn from each seed" if data["order"] == "seed" else show(data["order"]),
        "Tasks": f"{tasks}: B = {show(settings['protocol']['base'])} classes first, "
        f"then C = {show(settings['protocol']['step'])} at a time",
        "Memory": f"{memory['per_class']} images per class"
        if per_class
        else f"{memory['total']} images in all, shared ({memory['rounding']})",
        "Network": f"{network['backbone']}, depth {network['depth']}, {network['head']} head{rows}, new rows from "
        f"{network['imprint']}, old rows {'frozen' if network['freeze_old'] else 'trained'}"
        + (", head behind a ReLU" if network["relu_head"] else ""),
        "Prediction": PREDICTIONS.get(predict["headline"], predict["headline"])
        + f"; second view in the means: {predict['nme_aug']}",
        "Normalisation": f"mean {show(transform['mean'])}; sd {show(transform['std'])}",
        "Augmentation": _augmentation(transform),
        "Losses": "; ".join(_term(name, term) for name, term in loss.items()) or "none",
        "Forms": ", ".join([*forms, f"herding {memory['herding']}"]),
        "Precision": _precision(settings["numerics"]),
        "Recipe": settings["recipe"],
        "Training": _stage(settings["train"]) if network["trained"] else "none: the network stays as it is",
        "Fine-tuning": _stage(settings["finetune"]) if settings["finetune"] else "none",
    }


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
    known = ("weight", "growth", "form")
    options = [] if term.get("growth", "constant") == "constant" else [f"× {term['growth']}"]
    options += [f"{key} {show(value)}" for key, value in term.items() if key not in known]
    return f"{show(term['weight'])} {name}" + (f" ({', '.join(options)})" if options else "")


def _stage(stage: Mapping[str, Any]) -> str:
    schedule = stage["schedule"]
    how = schedule["kind"]
    if how == "multistep":
        how = f"× {show(schedule['factor'])} at epochs {show(schedule['milestones'])}"
    shift = f" (clock {schedule['offset']:+d})" if schedule["offset"] else ""
    clamp = f", gradients clamped to ± {show(stage['clamp_gradients'])}" if stage["clamp_gradients"] else ""
    full = " (full ones only)" if stage.get("drop_last") else ""
    return (
        f"{stage['epochs']} epochs, batches of {stage['batch_size']}{full}, "
        f"learning rate {show(stage['lr'])}, {how}{shift}, "
        f"momentum {show(stage['momentum'])}, weight decay {show(stage['weight_decay'])}{clamp}"
        + (f", batch norm {stage['batch_norm']}" if "batch_norm" in stage else "")
    )
