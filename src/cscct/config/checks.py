"""Consistency checks of settings, before any data is read. All problems are reported together."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from ..data.augmentation_registry import AUGMENTATIONS, MIXUP, complete_options, option_names
from ..data.registry import find
from ..data.samplers import SAMPLERS
from ..data.tasks import class_order, wrong_sum
from ..errors import UserError, install_hint
from ..features import NETWORK_PREDICTORS, PREDICTORS
from ..losses import WEIGHT_SCALINGS, Term
from ..memory import HERDINGS, STORED_TARGETS
from ..methods import AFTER_TASK, Extension
from ..nets import ANY_DEPTH, BACKBONES, DEPTHS, HEADS, IMPRINTS, architectures, parse_backbone
from ..optim import OPTIMIZERS, STAGE_OPTIONS, UNSUPPORTED
from ..registry import Registry
from ..specs import Stage
from ..structs import Task
from ..text import suggest
from ..yamltext import Raw
from .messages import explain, is_union_branch
from .schema import ProtocolSpec, Settings, as_json, known_keys


def validate(raw: Raw) -> Settings:
    """Validate complete settings.

    Args:
        raw: Nested settings.

    Returns:
        The typed settings.

    Raises:
        UserError: With all problems in one message.
    """
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
    return _with_augment_options(settings)


def _with_augment_options(settings: Settings) -> Settings:
    """Add the default values of all options of the augmentations."""
    if not settings.data.transform.augment:
        return settings
    entries = tuple(
        {name: complete_options(name, options) for name, options in entry.items()}
        for entry in settings.data.transform.augment
    )
    transform = replace(settings.data.transform, augment=entries)
    return settings.model_copy(update={"data": replace(settings.data, transform=transform)})


def _further_problems(raw: Raw, error: ValidationError) -> list[str]:
    """Return the problems that a second check finds without the invalid settings."""
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


# Settings that name a registered part, and names that they can have in addition
PARTS: dict[str, Registry[Any]] = {
    "network.backbone": BACKBONES,
    "network.head": HEADS,
    "network.imprint": IMPRINTS,
    "network.after_task": AFTER_TASK,
    "memory.herding": HERDINGS,
    "memory.store": STORED_TARGETS,
    "train.optimizer": OPTIMIZERS,
    "finetune.optimizer": OPTIMIZERS,
    "stages.NAME.optimizer": OPTIMIZERS,
    "train.sampler": SAMPLERS,
    "finetune.sampler": SAMPLERS,
    "stages.NAME.sampler": SAMPLERS,
    "data.transform.augment": AUGMENTATIONS,
    "predict.predictor": PREDICTORS,
    "loss.*.weight_scaling": WEIGHT_SCALINGS,
}
BUILT_IN = tuple(BACKBONES)  # their growth is set by network.expand; backbones of plugins may grow by themselves
NO_PART = dict.fromkeys(("network.imprint", "network.after_task", "memory.store"), ("none",))
OTHER_NAMES: dict[str, tuple[str, ...]] = {**NO_PART, "predict.predictor": NETWORK_PREDICTORS}


def _parts(settings: Settings) -> list[tuple[str, str, Registry[Any]]]:
    """Return the parts of a run: for each the setting that names it, its name, and the registry."""
    parts = []
    for key, registry in PARTS.items():
        section, name = key.split(".", 1)
        if section == "loss":
            parts += [(f"loss.{term.name}.weight_scaling", term.weight_scaling, registry) for term in settings.terms]
        elif section == "stages":
            stages, option = settings.stages.items(), name.rpartition(".")[2]
            parts += [
                (f"stages.{label}.{option}", getattr(stage, option), registry) for label, stage in stages if stage
            ]
        elif section == "data":
            parts += [(key, name, registry) for entry in settings.data.transform.augment for name in entry]
        elif (spec := getattr(settings, section)) is not None:
            parts.append((key, getattr(spec, name), registry))
    return parts


def _all_terms(settings: Settings) -> list[Term]:
    """Return the losses of the method and of its stages."""
    stages = settings.active_stages.values()
    return [*settings.terms, *(term for stage in stages for term in (stage.loss or {}).values() if term)]


def part_modules(settings: Settings) -> list[str]:
    """Return the names of the modules that define the code of a run: its losses and all parts that are not built in."""
    modules = [registry.module_of(name) for _, name, registry in _parts(settings)]
    extension = [settings.active_extension] if settings.active_extension is not None else []
    classes = [*_all_terms(settings), *extension, *settings.predictors.values()]
    modules += [parent.__module__ for part in classes for parent in type(part).__mro__]
    return [module for module in dict.fromkeys(modules) if module is not None]


def _unknown_names(settings: Settings) -> list[str]:
    """Return a problem for each name of a part that is not registered."""
    problems = []
    for key, name, registry in _parts(settings):
        known: Iterable[str] = (*OTHER_NAMES.get(key, ()), *registry)
        if registry is BACKBONES:
            backbone = parse_backbone(name)
            name, known = backbone.architecture, architectures(backbone)
        if registry is OPTIMIZERS and name in UNSUPPORTED:
            problems.append(f"{key} {name} is not supported: {UNSUPPORTED[name]}; use one of {', '.join(known)}")
        elif name not in known:
            problems.append(
                f"there is no {registry.kind} {name!r}{suggest(name, known)}: {key} is one of {', '.join(known)}"
            )
    return problems


def _network_problems(settings: Settings) -> list[str]:
    """Return parts of a network that are not compatible. Heads of plugins are not restricted."""
    problems, network = [], settings.network
    backbone = parse_backbone(network.backbone)
    if backbone.from_timm and find_spec("timm") is None:
        problems.append(f"network.backbone is {backbone}, and timm is not installed: {install_hint('timm')}")
    depths = DEPTHS.get(backbone.architecture, ANY_DEPTH)
    if not depths.allowed(network.depth):
        problems.append(f"network.depth of {backbone.architecture} must be {depths.text}, not {network.depth}")
    single_weight = network.head in ("linear", "positive", "cosine")
    if network.proxies_per_class > 1 and single_weight:
        problems.append(
            f"network.proxies_per_class is {network.proxies_per_class}, which the {network.head} head cannot have"
        )
    if network.imprint == "kmeans" and single_weight:
        problems.append("network.imprint kmeans needs the proxies head")
    if network.imprint == "mean" and network.proxies_per_class > 1:
        problems.append("network.imprint mean gives one weight per class, so network.proxies_per_class must be 1")
    if network.after_task == "align_norms" and network.head in ("cosine", "proxies"):
        problems.append(
            f"network.after_task align_norms needs network.head positive or linear: the {network.head} head normalises "
            "its weights"
        )
    if network.after_task == "correct_bias" and network.head in ("positive", "cosine", "proxies"):
        problems.append(
            f"network.after_task correct_bias needs network.head linear: the {network.head} head has no bias"
        )
    if network.after_task == "correct_bias" and not settings.memory.held_back:
        problems.append("network.after_task correct_bias is fitted on held-back images: set memory.held_back, e.g. 0.1")
    return problems


def _loss_problems(settings: Settings) -> list[str]:
    """Return losses that are missing, or not compatible with the other settings."""
    if not settings.network.train_backbone:
        return _untrained_problems(settings)
    problems = []
    first = Task(index=0, n_old=0, n_new=1)
    if not any(term.first_task and term.weight_for(first) for term in settings.terms):
        problems.append(
            "no loss is active in the first task: keep cross_entropy, new_cross_entropy, nca or bce_distillation, with "
            "a weight that is not zero there (weight_scaling sqrt_old_over_new makes it zero)"
        )
    if settings.loss.get("logit_replay") is not None and settings.memory.store != "logits":
        problems.append("loss.logit_replay compares with stored logits: set memory.store to logits")
    stateful = [term.name for term in settings.terms if term.reads_extension]
    if stateful and settings.active_extension is None:
        problems.append(f"loss.{stateful[0]} reads the state of an extension, and the method has none: remove the loss")
    balanced = settings.loss.get("balanced_cross_entropy")
    if balanced is not None and balanced.replaces and not any(map(settings.loss.get, balanced.replaces)):
        problems.append(
            "loss.balanced_cross_entropy.replaces_base_loss is true, but the method has neither "
            "loss.cross_entropy nor loss.nca to replace; with replaces_base_loss: false it is added"
        )
    return problems


def _augment_problems(settings: Settings) -> list[str]:
    """Return invalid options of augmentations, and settings that mixup is not compatible with."""
    problems: list[str] = []
    names = []
    for name, options in (item for entry in settings.data.transform.augment for item in entry.items()):
        path = f"data.transform.augment.{name}"
        try:
            complete_options(name, options)
        except ValidationError as error:
            known = [f"{path}.{option}" for option in option_names(name)]
            problems += explain(error, known, ("data", "transform", "augment", name))
        names.append(name)
    if names.count(MIXUP) > 1:
        problems.append("data.transform.augment contains mixup more than once")
    if MIXUP in names and settings.network.train_from:
        problems.append("data.transform.augment mixup needs images, so network.train_from must be 0")
    rejecting = [term.name for term in _all_terms(settings) if term.with_mixup == "rejected"]
    if MIXUP in names and rejecting:
        problems.append(
            f"data.transform.augment mixup mixes the labels of images, which loss.{rejecting[0]} cannot be computed "
            "with: remove one of them"
        )
    return problems


def _untrained_problems(settings: Settings) -> list[str]:
    """Return settings that are not compatible with a network that is not trained."""
    problems = []
    later = [section for section in settings.active_stages if section != "train"]
    extension = ["extension"] if settings.active_extension is not None else []
    if settings.terms or later or extension:
        unused = (*(term.name for term in settings.terms), *later, *extension)[0]
        problems.append(f"network.train_backbone is false, so {unused} has nothing to act on: use lda, for example")
    if settings.network.head != "cosine":
        problems.append(f"network.train_backbone false needs network.head cosine, not {settings.network.head}")
    return problems


def _stage_problems(name: str, stage: Stage, settings: Settings) -> list[str]:
    """Return settings of a stage that are not compatible with each other, with the network or with the memory."""
    problems, network, memory = [], settings.network, settings.memory
    if stage.pool in ("memory", "balanced") and memory.policy == "per_class" and not memory.per_class:
        problems.append(f"{name}.pool is {stage.pool}, but memory.per_class is 0: keep exemplars, or use new")
    if stage.pool == "memory" and (name == "train" or getattr(stage, "first_task", False)):
        problems.append(f"{name}.pool is memory, which is empty in the first task: use all or balanced")
    fixed = network.expand == "none" and parse_backbone(network.backbone).architecture in BUILT_IN
    if stage.part == "newest" and fixed:
        problems.append(f"{name}.part is newest, but network.expand is none: the backbone does not grow")
    if stage.reset == "compress" and network.expand == "none":
        problems.append(f"{name}.reset is compress, but network.expand is none: the backbone does not grow")
    if stage.reset == "network" and network.expand != "none":
        problems.append(f"{name}.reset is network, which a growing backbone (network.expand) does not support")
    if stage.reset in ("head", "network") and network.freeze_old and (stage.part != "head" or name == "train"):
        problems.append(f"{name}.reset {stage.reset} needs network.freeze_old false: old weights would stay random")
    if stage.loss is not None and not any(stage.loss.values()):
        problems.append(f"{name}.loss names no loss: omit it for the losses of the method")
    return problems


def without_scaled_losses(settings: Settings) -> str | None:
    """Return what prevents that losses are scaled (`numerics.precision=fp16-mixed`), or None."""
    extension = settings.active_extension
    if extension is not None and not extension.accepts_scaled_losses():
        return f"the extension {extension.name}"
    # Fused SGD does not initialise its momentum if its first step is skipped.
    sections = (section for section, stage in settings.active_stages.items() if stage.optimizer_options.get("fused"))
    return next((f"{section}.optimizer_options.fused" for section in sections), None)


def _extension_problems(settings: Settings) -> list[str]:
    """Return settings that an extension or a growing backbone is not compatible with."""
    problems, network, runtime = [], settings.network, settings.runtime
    extension = settings.active_extension
    if extension is not None and runtime.devices * runtime.nodes > 1:
        trains = type(extension).parameters is not Extension.parameters  # gradients of these would not be averaged
        if trains or not extension.several_processes:
            reason = ", because it trains parameters" if trains else ""
            problems.append(
                f"the extension {extension.name} does not support several processes{reason}: use --devices 1 --nodes 1"
            )
    if settings.numerics.precision == "fp16-mixed" and (part := without_scaled_losses(settings)):
        problems.append(
            f"{part} does not support scaled losses (numerics.precision fp16-mixed): use --precision bf16-mixed or "
            "32-true"
        )
    compile_ = settings.numerics.compile
    if compile_ in ("all", "cuda-graphs") and extension is not None and extension.replaces_backward():
        problems.append(  # compiled networks have one backward pass, which may release or overwrite its tensors
            f"the extension {extension.name} computes the gradients itself, which numerics.compile {compile_} does not "
            "support: use --compile frozen"
        )
    if network.expand != "none":
        if network.imprint != "none":
            problems.append(f"network.expand {network.expand} needs network.imprint none, not {network.imprint}")
        if not settings.memory.quota(1):
            problems.append(f"network.expand {network.expand} needs exemplars: set memory.per_class to 1 or more")
        feature_losses = [term.name for term in settings.terms if term.compares_features]
        if feature_losses:
            problems.append(
                f"loss.{feature_losses[0]} compares features with those of the previous network, which has fewer if "
                f"network.expand is {network.expand}"
            )
    if settings.memory.policy == "all" and settings.memory.held_back:
        problems.append("memory.policy all keeps every image for training, so memory.held_back must be 0")
    return problems


def consistency(settings: Settings) -> list[str]:
    """Return the problems that concern several settings, as messages."""
    kind, problems = find(settings.dataset), _unknown_names(settings)
    if problems:  # the other checks need known parts
        return problems
    problems = _network_problems(settings) + _loss_problems(settings) + _augment_problems(settings)
    for name, stage in settings.active_stages.items():
        if stage.schedule.kind == "multistep" and not stage.schedule.milestones:
            problems.append(f"{name}.schedule is multistep, but {name}.schedule.milestones is empty")
        if stage.sampler == "mixed" and stage.batch_size == 1:
            problems.append(
                f"{name}.sampler mixed needs new images and exemplars in a batch: set {name}.batch_size to 2"
            )
        if stage.views > settings.network.cached_views and settings.network.train_from:
            problems.append(f"{name}.views is {stage.views}, so network.cached_views must be {stage.views} or more")
        for option in STAGE_OPTIONS:
            if option in stage.optimizer_options:
                problems.append(f"{name}.optimizer_options.{option} is not an option: set {name}.{option}")
        problems += _stage_problems(name, stage, settings)
    problems += _extension_problems(settings)
    transform = settings.data.transform
    if len(transform.mean) != len(transform.std):
        problems.append("data.transform.mean and data.transform.std must have the same length")
    if settings.data.resize_cache_px is not None and settings.data.resize_cache_px < transform.short_side:
        problems.append(
            f"data.resize_cache_px is {settings.data.resize_cache_px}, but crops of {transform.size} pixels need more: "
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
    return problems + _protocol_problems(settings.protocol, classes)


def _protocol_problems(protocol: ProtocolSpec, classes: int | None) -> list[str]:
    """Return a problem if the tasks do not fit the number of classes, as far as it is known."""
    problems = []
    for flag, name, value in (("B", "base", protocol.base), ("C", "step", protocol.step)):
        if value and protocol.tasks:
            problems.append(f"{flag} (protocol.{name}) and protocol.tasks are both set: use one of them")
        elif classes and value and value > classes:
            problems.append(f"{flag} (protocol.{name}) is {value}, but there are only {classes} classes")
    if classes and protocol.sizes and sum(protocol.sizes) != classes:
        problems.append(wrong_sum(protocol.sizes, classes))
    return problems
