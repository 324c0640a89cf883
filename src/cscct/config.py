"""Settings: typed, strict, resolved whole before any data is touched.

Layers, later ones win: defaults < the method's own settings < the dataset's preset (common, then the method's recipe,
then `recipes.printed` if asked for) < a config file < `--set` and flags.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from . import __version__
from .data.sources import DATASETS
from .data.tasks import class_order
from .errors import UserError
from .losses import TERMS, Term
from .methods import EXTRAS, canonical_name, parse_method, suggest
from .nets import OWN_BACKBONES
from .recipe import Finetune, Fraction, MemorySpec, NetworkSpec, PredictSpec, Spec, Stage, TransformSpec
from .yamltext import Raw, parse_yaml

Device = Literal["auto", "cpu", "cuda", "mps"]
RECIPES = ("released", "printed")


@dataclasses.dataclass(frozen=True)
class ProtocolSpec(Spec):
    base: PositiveInt | None = None  # B, classes of the first task; None: half of them
    step: PositiveInt | None = None  # C, classes of every later one; None: five later tasks


@dataclasses.dataclass(frozen=True)
class DataSpec(Spec):
    # A name (`seed`: drawn from the run's seed), a seed of its own, or the classes one by one.
    order: str | int | tuple[int, ...] = "seed"
    classes: PositiveInt | None = None  # only the first so many of the order
    train_per_class: PositiveInt | None = None  # only the first so many images of each class
    test_per_class: PositiveInt | None = None
    test_fraction: Fraction = 0.2  # of a folder without a test part
    skip_bad_images: bool = False
    cache: PositiveInt | None = None  # copies of image files on disk, with so many pixels on the shorter side
    transform: TransformSpec = dataclasses.field(default_factory=TransformSpec)


@dataclasses.dataclass(frozen=True)
class RuntimeSpec(Spec):
    device: Device = "auto"
    threads: Annotated[int, Field(ge=0)] = 0  # 0: as many as there are cores
    devices: PositiveInt = 1  # processes on a machine, which share each batch
    nodes: PositiveInt = 1  # machines
    precision: Literal["32-true", "bf16-mixed"] = "32-true"  # of the networks; losses have at least 32 bits
    workers: PositiveInt = 2  # threads that decode image files
    eval_batch_size: PositiveInt = 128  # for passes without gradients: more only needs more memory
    fold: bool = True  # batch norm folded into convolutions where nothing is trained: the teacher, herding, testing
    compile: Literal["none", "frozen", "all"] = "none"  # by torch.compile: networks that do not train, or all


@dataclasses.dataclass(frozen=True)
class CheckpointSpec(Spec):
    minutes: NonNegativeFloat = 5.0  # between two checkpoints within a task; 0: after every step


@functools.cache
def _adapter(term: str) -> TypeAdapter[Term]:
    return TypeAdapter(TERMS[term])


class Settings(BaseModel):
    """Everything that affects a result."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    method: str
    dataset: str
    recipe: Literal["released", "printed"] = "released"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    protocol: ProtocolSpec = ProtocolSpec()
    data: DataSpec = DataSpec()
    network: NetworkSpec = NetworkSpec()
    loss: dict[str, Any] = {}
    train: Stage = Stage(epochs=160)
    finetune: Finetune | None = None
    memory: MemorySpec = MemorySpec()
    predict: PredictSpec = PredictSpec()
    runtime: RuntimeSpec = RuntimeSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()

    @field_validator("loss", mode="before")
    @classmethod
    def _build_terms(cls, value: Any) -> dict[str, Term | None]:
        """Each entry becomes its term; null leaves a term out."""
        if not isinstance(value, Mapping):
            raise ValueError("loss must map names of losses to their settings.")
        terms: dict[str, Term | None] = {}
        problems = []
        for name, options in value.items():
            if name not in TERMS:
                problems.append(f"there is no loss {name!r}{suggest(str(name), TERMS)}")
                continue
            try:
                terms[name] = None if options is None else _adapter(name).validate_json(_json(options))
            except ValidationError as error:
                problems += explain(error, ("loss", name))
        if problems:
            raise ValueError("; ".join(problems))
        return terms

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for term in self.loss.values() if term is not None)

    def dump(self) -> Raw:
        """Plain values, as `config.yaml` holds them."""
        plain: Raw = self.model_dump(mode="json")
        return {"cscct_version": __version__, **plain}


def resolve(
    method: str | None = None,
    dataset: str | None = None,
    *,
    recipe: str | None = None,
    config: Raw | None = None,
    overrides: Sequence[Raw] = (),
) -> Settings:
    """All layers into checked settings, or one `UserError` that tells every problem."""
    config = dict(config or {})
    whole = config.pop("cscct_version", None) is not None  # written by a run: nothing is to be filled in
    given = {"method": method, "dataset": dataset, "recipe": recipe}
    for key, value in given.items():
        if any(key in layer for layer in overrides):
            raise UserError(f"{key} is not set with --set: it is a word of the command (`cscct run --help`).")
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
    base = config if whole else preset_layers(method, dataset, recipe)
    user: Raw = {}
    for layer in overrides if whole else (config, *overrides):
        merge(user, layer)
    raw = merge(copy.deepcopy(base), user)
    raw.update(method=method, dataset=dataset, recipe=recipe)
    for section in ("train", "finetune"):
        _scale_milestones(section, base, user, raw)
    return validate(raw)


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
    loss, has = layer.get("loss"), parse_method(method)[1]
    if not isinstance(loss, Mapping):
        return []
    return [term for term in EXTRAS["cscct"] if loss.get(term) is not None and term not in has]


def tuned_for(overrides: Sequence[Raw], methods: Sequence[str]) -> list[list[Raw]]:
    """For each method of a comparison the overrides that concern it: those of CSC and CT only where it has them."""
    strays = [{term for layer in overrides for term in _stray_additions(layer, method)} for method in methods]
    for term in set.intersection(*strays):
        raise UserError(f"loss.{term} is set, but none of {', '.join(methods)} has it; add +{term} to one.")
    return [
        [
            {**layer, "loss": {n: o for n, o in layer["loss"].items() if n not in stray}} if "loss" in layer else layer
            for layer in overrides
        ]
        for stray in strays
    ]


def validate(raw: Raw) -> Settings:
    problems: list[str] = []
    try:
        settings = Settings.model_validate_json(_json(raw))
        problems = consistency(settings)
    except ValidationError as error:
        problems = explain(error) + _further_problems(raw, error)
    if problems:
        count = f"{len(problems)} problems in the settings: " if len(problems) > 1 else ""
        sentence = count + "; ".join(problem.rstrip(".") for problem in problems) + "."
        raise UserError(sentence[0].upper() + sentence[1:] if sentence.startswith("there ") else sentence)
    return settings


def _further_problems(raw: Raw, error: ValidationError) -> list[str]:
    """What else is wrong: the settings are looked at again without those that were refused."""
    rest = copy.deepcopy(raw)
    for finding in error.errors():
        *path, last = [part for part in finding["loc"] if not _is_union_branch(part)]
        node: Any = rest
        for part in path:
            node = node.get(part, {}) if isinstance(node, dict) else {}
        if isinstance(node, dict):
            node.pop(last, None)
    rest.setdefault("loss", {"cross_entropy": {}})
    try:
        return consistency(Settings.model_validate_json(_json(rest)))
    except ValidationError:
        return []


def _json(raw: Any) -> str:
    """Strict validation takes mappings for dataclasses and lists for tuples only from JSON."""
    return json.dumps(raw, default=str)


def preset_layers(method: str, dataset: str, recipe: str) -> Raw:
    """What the method and the dataset's preset say. A preset tunes the losses a method has; it never adds one."""
    base, extra = parse_method(method)
    raw = merge({}, base.settings)
    merge(raw, {"loss": {name: {} for name in extra}})
    preset = load_preset(dataset)
    printed = preset.get("recipes", {}).get(recipe, {}) if recipe != "released" else {}
    for layer in (preset.get("common", {}), preset.get("bases", {}).get(base.recipe_name, {}), printed):
        known = {name: options for name, options in layer.get("loss", {}).items() if name in raw["loss"]}
        merge(raw, {**layer, "loss": known})
    return raw


@functools.cache  # nobody changes what it gives: merging copies
def load_preset(dataset: str) -> Raw:
    file = resources.files("cscct") / "presets" / f"{dataset}.yaml"
    return parse_yaml(file.read_text(), file.name) if file.is_file() else {}


def merge(into: Raw, layer: Mapping[str, Any]) -> Raw:
    """Deep merge, in place: mappings join, everything else replaces."""
    for key, value in layer.items():
        if isinstance(value, Mapping):
            below = into.get(key)
            into[key] = merge(dict(below) if isinstance(below, Mapping) else {}, value)
        else:
            into[key] = copy.deepcopy(value)
    return into


def _scale_milestones(section: str, preset: Raw, user: Raw, raw: Raw) -> None:
    """Someone who asks for fewer epochs wants the decays earlier as well, unless they say where."""
    wanted, before = user.get(section) or {}, preset.get(section) or {}
    if not isinstance(wanted, Mapping) or "epochs" not in wanted or not isinstance(wanted["epochs"], int):
        return
    milestones = (before.get("schedule") or {}).get("milestones")
    schedule = wanted.get("schedule", {})
    if not milestones or not isinstance(schedule, Mapping) or "milestones" in schedule:
        return
    earliest = 1 + max(0, before["schedule"].get("offset", 0))  # the first epoch keeps the full rate
    scaled = [max(earliest, round(m * wanted["epochs"] / before["epochs"])) for m in milestones]
    raw[section]["schedule"]["milestones"] = scaled


def _is_backbone(name: str) -> bool:
    if name in OWN_BACKBONES:
        return True
    from .nets import BACKBONES  # a plugin may have added to it

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
    if not any(term.first_task and term.weight for term in settings.terms):
        problems.append("no loss is active in the first task: keep cross_entropy, nca or bce_distillation")
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


def explain(error: ValidationError, prefix: tuple[str | int, ...] = ()) -> list[str]:
    """Pydantic's findings as sentences with the full name of the setting."""
    sentences = []
    for finding in error.errors():
        place = (*prefix, *(part for part in finding["loc"] if not _is_union_branch(part)))
        path = ".".join(str(part) for part in place)
        if finding["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            sentences.append(f"there is no setting {path}{suggest(path, known_keys())}")
        elif finding["type"] == "missing":
            sentences.append(f"{path} is missing")
        elif place == ("loss",):
            sentences.append(str(finding["msg"]).removeprefix("Value error, "))
        else:
            message = finding["msg"][0].lower() + finding["msg"][1:]
            sentences.append(f"{path} is {finding['input']!r}: {message}")
    return list(dict.fromkeys(sentences))


def _is_union_branch(part: str | int) -> bool:
    return isinstance(part, str) and (part in ("str", "int", "Finetune") or part.startswith(("tuple[", "constrained")))


def known_keys() -> list[str]:
    """Every dotted name a setting can have."""
    tree: Raw = Settings(method="", dataset="", finetune=Finetune(epochs=1)).model_dump()
    tree["loss"] = {name: dataclasses.asdict(term()) for name, term in TERMS.items()}
    names: list[str] = []

    def walk(node: Raw, path: str) -> None:
        for key, value in node.items():
            names.append(path + key)
            if isinstance(value, dict):
                walk(value, f"{path}{key}.")

    walk(tree, "")
    return names
