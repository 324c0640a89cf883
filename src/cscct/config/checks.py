"""Checks of a whole configuration, before any data is read: all problems are reported together."""

from __future__ import annotations

import copy
from typing import Any

from pydantic import ValidationError

from ..data.registry import DATASETS
from ..data.tasks import class_order
from ..errors import UserError
from ..methods import suggest
from ..nets import OWN_BACKBONES
from ..structs import Task
from ..yamltext import Raw
from .messages import explain, is_union_branch
from .schema import Settings, as_json, known_keys


def validate(raw: Raw) -> Settings:
    problems: list[str] = []
    try:
        settings = Settings.model_validate_json(as_json(raw))
        problems = consistency(settings)
    except ValidationError as error:
        problems = explain(error, known_keys()) + _further_problems(raw, error)
    if problems:
        count = f"{len(problems)} problems in the settings: " if len(problems) > 1 else ""
        sentence = count + "; ".join(problem.rstrip(".") for problem in problems) + "."
        raise UserError(sentence[0].upper() + sentence[1:] if sentence.startswith("there ") else sentence)
    return settings


def _further_problems(raw: Raw, error: ValidationError) -> list[str]:
    """What else is wrong: the settings are looked at again without those that were refused."""
    rest = copy.deepcopy(raw)
    for finding in error.errors():
        *path, last = [part for part in finding["loc"] if not is_union_branch(part)]
        node: Any = rest
        for part in path:
            node = node.get(part, {}) if isinstance(node, dict) else {}
        if isinstance(node, dict):
            node.pop(last, None)
    rest.setdefault("loss", {"cross_entropy": {}})
    try:
        return consistency(Settings.model_validate_json(as_json(rest)))
    except ValidationError:
        return []


def _is_backbone(name: str) -> bool:
    if name in OWN_BACKBONES:
        return True
    from ..nets import BACKBONES  # a plugin may have added to it

    return name in BACKBONES


def consistency(settings: Settings) -> list[str]:
    """What can only be judged with several settings in view."""
    problems = []
    network, kind = settings.network, DATASETS[settings.dataset]
    if not _is_backbone(network.backbone):
        problems.append(f"there is no backbone {network.backbone!r}{suggest(network.backbone, OWN_BACKBONES)}")
    elif network.backbone.endswith("18"):
        if network.depth != 18:
            problems.append(f"network.depth is {network.depth}, but {network.backbone} has 18 layers")
    elif network.depth < 8 or (network.depth - 2) % 6:
        problems.append(f"network.depth must be 6n+2 (8, 14, 20, 32, ...), not {network.depth}")
    if network.rows_per_class > 1 and network.head != "proxies":
        problems.append(f"network.rows_per_class is {network.rows_per_class}, which only the proxies head can have")
    if network.imprint == "kmeans" and network.head != "proxies":
        problems.append("network.imprint kmeans needs the proxies head")
    if network.imprint == "mean" and network.rows_per_class > 1:
        problems.append("network.imprint mean gives one row a class, not network.rows_per_class")
    first = Task(index=0, n_old=0, n_new=1)
    if not any(term.first_task and term.weight_for(first) for term in settings.terms):
        problems.append(
            "no loss is active in the first task: keep cross_entropy, nca or bce_distillation, with a weight that is "
            "not zero there (growth sqrt_old_over_new makes it zero)"
        )
    for name, stage in (("train", settings.train), ("finetune", settings.finetune)):
        if stage is not None and stage.schedule.kind == "multistep" and not stage.schedule.milestones:
            problems.append(f"{name}.schedule is multistep, but {name}.schedule.milestones says no epoch")
    transform = settings.data.transform
    if len(transform.mean) != len(transform.std):
        problems.append("data.transform.mean and data.transform.std must have the same length")
    if settings.data.cache is not None and settings.data.cache < transform.short_side:
        problems.append(
            f"data.cache is {settings.data.cache}, but images of {transform.size} pixels are cut from larger ones: "
            f"make it {transform.short_side} or more"
        )
    classes = settings.data.classes or kind.num_classes
    if kind.num_classes and settings.data.classes and settings.data.classes > kind.num_classes:
        problems.append(
            f"data.classes is {settings.data.classes}, but {settings.dataset} has {kind.num_classes} classes"
        )
        classes = kind.num_classes
    if kind.num_classes and settings.data.order != "seed":
        try:
            class_order(settings.data.order, kind.num_classes)
        except UserError as error:
            problems.append(str(error))
    if isinstance(settings.data.order, tuple):
        classes = min(classes or len(settings.data.order), len(settings.data.order))
    for flag, name, value in (("B", "base", settings.protocol.base), ("C", "step", settings.protocol.step)):
        if classes and value and value > classes:
            problems.append(f"{flag} (protocol.{name}) is {value}, but there are only {classes} classes")
    return problems
