"""Checks of a whole configuration, before any data is read: all problems are reported together."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from ..data.registry import DATASETS
from ..data.tasks import class_order
from ..errors import UserError
from ..losses import GROWTHS
from ..memory import HERDINGS, PAYLOADS
from ..methods import AFTER_TASK, suggest
from ..nets import ANY_DEPTH, DEPTHS, HEADS, IMPRINTS, architectures, parse_backbone
from ..optim import OPTIMIZERS
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


def _unknown_names(settings: Settings) -> list[str]:
    """Names of parts that nobody has registered."""
    network, memory = settings.network, settings.memory
    backbone = parse_backbone(network.backbone)
    asked: list[tuple[str, str, str, Iterable[str]]] = [
        ("network.backbone", "backbone", backbone.architecture, architectures(backbone)),
        ("network.head", "head", network.head, HEADS),
        ("network.imprint", "way to imprint", network.imprint, ("none", *IMPRINTS)),
        ("network.after_task", "function after a task", network.after_task, ("none", *AFTER_TASK)),
        ("memory.herding", "form of herding", memory.herding, HERDINGS),
        ("memory.carry", "payload", memory.carry, ("none", *PAYLOADS)),
        ("train.optimizer", "optimizer", settings.train.optimizer, OPTIMIZERS),
    ]
    if settings.finetune is not None:
        asked.append(("finetune.optimizer", "optimizer", settings.finetune.optimizer, OPTIMIZERS))
    asked += [(f"loss.{term.name}.growth", "growth", term.growth, GROWTHS) for term in settings.terms]
    return [
        f"there is no {kind} {name!r}{suggest(name, known)}: {path} is one of {', '.join(known)}"
        for path, kind, name, known in asked
        if name not in known
    ]


def _network_problems(settings: Settings) -> list[str]:
    """Parts of a network that do not fit each other. Heads from plugins may have several rows and any form."""
    problems, network = [], settings.network
    backbone = parse_backbone(network.backbone)
    if backbone.from_timm and find_spec("timm") is None:
        problems.append(f"network.backbone is {backbone}, and timm is not installed: pip install timm torchvision")
    depths = DEPTHS.get(backbone.architecture, ANY_DEPTH)
    if not depths.allowed(network.depth):
        problems.append(f"network.depth of {backbone.architecture} must be {depths.text}, not {network.depth}")
    one_row = network.head in ("linear", "positive", "cosine")
    if network.rows_per_class > 1 and one_row:
        problems.append(
            f"network.rows_per_class is {network.rows_per_class}, which the {network.head} head cannot have"
        )
    if network.imprint == "kmeans" and one_row:
        problems.append("network.imprint kmeans needs the proxies head")
    if network.imprint == "mean" and network.rows_per_class > 1:
        problems.append("network.imprint mean gives one row a class, not network.rows_per_class")
    if network.after_task == "align_norms" and network.head in ("cosine", "proxies"):
        problems.append(
            f"network.after_task align_norms needs network.head positive or linear: the {network.head} head normalises "
            "its rows"
        )
    if network.after_task == "correct_bias" and network.head in ("positive", "cosine", "proxies"):
        problems.append(
            f"network.after_task correct_bias needs network.head linear: the {network.head} head has no bias"
        )
    if network.after_task == "correct_bias" and not settings.memory.held_back:
        problems.append("network.after_task correct_bias is fitted on held-back images: set memory.held_back, e.g. 0.1")
    return problems


def _loss_problems(settings: Settings) -> list[str]:
    """Losses without which, or with which, nothing can be learned."""
    if not settings.network.trained:
        return _untrained_problems(settings)
    problems = []
    first = Task(index=0, n_old=0, n_new=1)
    if not any(term.first_task and term.weight_for(first) for term in settings.terms):
        problems.append(
            "no loss is active in the first task: keep cross_entropy, new_cross_entropy, nca or bce_distillation, with "
            "a weight that is not zero there (growth sqrt_old_over_new makes it zero)"
        )
    if settings.loss.get("logit_replay") is not None and settings.memory.carry != "logits":
        problems.append("loss.logit_replay compares with stored logits: set memory.carry to logits")
    balanced = settings.loss.get("balanced_cross_entropy")
    if balanced is not None and balanced.replaces and not any(map(settings.loss.get, balanced.replaces)):
        problems.append(
            "loss.balanced_cross_entropy.instead takes the place of loss.cross_entropy or loss.nca, and there is "
            "neither; with instead: false it is added to what the method has"
        )
    return problems


def _untrained_problems(settings: Settings) -> list[str]:
    """What makes no sense for a network that is not trained."""
    problems = []
    if settings.terms or settings.finetune is not None:
        have = settings.terms[0].name if settings.terms else "finetune"
        problems.append(
            f"network.trained is false, so {have} has nothing to act on: use one of the methods ncm, lda and ridge"
        )
    if settings.network.head != "cosine":
        problems.append(f"network.trained false needs network.head cosine, not {settings.network.head}")
    return problems


def consistency(settings: Settings) -> list[str]:
    """What can only be judged with several settings in view."""
    kind, problems = DATASETS[settings.dataset], _unknown_names(settings)
    if problems:  # the other checks ask the parts
        return problems
    problems = _network_problems(settings) + _loss_problems(settings)
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
