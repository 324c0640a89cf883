"""The settings of a run, typed and strict.

`layers.py` resolves them, `checks.py` checks their consistency. The string below each field is its description in
docs/settings.md and `cscct config --describe`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveInt,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from .. import __version__
from ..features import DEFAULT_PREDICTORS, NETWORK_PREDICTORS, PREDICTORS, Predictor
from ..losses import TERMS, Term
from ..methods import EXTENSIONS, Extension
from ..specs import Finetune, Fraction, MemorySpec, NetworkSpec, PredictSpec, Spec, Stage, TransformSpec
from ..text import suggest
from ..yamltext import Raw
from .messages import explain

Device = Literal["auto", "cpu", "cuda", "mps"]
PrecisionName = Literal["auto", "32-true", "bf16-mixed", "fp16-mixed"]
RECIPES = ("released", "printed")
DEFAULT_EPOCHS = 160


def _task_list(value: Any) -> Any:
    """Convert lists to tuples and numbers in lists of class names to names; raise an error for anything else."""
    if value is None:
        return None
    if isinstance(value, list | tuple) and value:
        if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in value):
            return tuple(value)
        if all(isinstance(names, list | tuple) and names for names in value):
            tasks = tuple(tuple(map(str, names)) for names in value)
            classes = [name for names in tasks for name in names]
            repeated = [name for place, name in enumerate(classes) if name in classes[:place]]
            if repeated:
                raise ValueError(f"class {repeated[0]} occurs twice; every class belongs to one task")
            return tasks
    raise ValueError("must be a list of class counts, such as [50, 10, 40], or a list of lists of class names")


@dataclasses.dataclass(frozen=True)
class ProtocolSpec(Spec):
    """How classes are divided into tasks: by `base` and `step`, or by `tasks`."""

    base: PositiveInt | None = None
    """B (`-B`): classes of the first task; null: half of the classes."""
    step: PositiveInt | None = None
    """C (`-C`): classes of every later task; null: such that five tasks follow."""
    tasks: Annotated[tuple[PositiveInt, ...] | tuple[tuple[str, ...], ...] | None, BeforeValidator(_task_list)] = None
    """Number of classes of each task, such as [50, 10, 5, 5, 30], or the class names of each task, which also define
    the class order; null: `base` and `step` are used."""

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Number of classes of each task in `tasks`."""
        return tuple(task if isinstance(task, int) else len(task) for task in self.tasks) if self.tasks else None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Class names in `tasks`, in learning order; None if it contains numbers."""
        return tuple(name for task in self.tasks or () if isinstance(task, tuple) for name in task) or None

    @property
    def first(self) -> int | None:
        """Number of classes of the first task; None if it is not set."""
        return self.sizes[0] if self.sizes else self.base

    def __str__(self) -> str:
        """Return a short description, such as `B=50, C=5` or `tasks of 50+10+5+5+30 classes`."""
        return f"tasks of {'+'.join(map(str, self.sizes))} classes" if self.sizes else f"B={self.base}, C={self.step}"


@dataclasses.dataclass(frozen=True)
class DataSpec(Spec):
    """Classes and images."""

    order: str | int | tuple[int, ...] = "seed"
    """Class order: `seed` (from the seed of the run), `natural`, `seed-1993`, `podnet-1` to `podnet-3`, a seed, or a
    list of class indices."""
    classes: PositiveInt | None = None
    """Use only this many classes, the first of the order; null: all."""
    train_per_class: PositiveInt | None = None
    """Use only this many training images of each class, the first; null: all."""
    test_per_class: PositiveInt | None = None
    """Use only this many test images of each class, the first; null: all."""
    validation: Fraction | None = None
    """Fraction of the training images of each class that is held out from training and evaluated separately; null:
    none. The images depend on the data only, and are the same for all methods, seeds and class orders."""
    test_fraction: Fraction = 0.2
    """Fraction of the images that are test images, for an image folder without a test part."""
    skip_bad_images: bool = False
    """Whether damaged image files are skipped; false: they are an error."""
    resize_cache_px: PositiveInt | None = None
    """Shorter side in pixels of resized copies of image files that are stored on disk; null: no copies."""
    transform: TransformSpec = dataclasses.field(default_factory=TransformSpec)


@dataclasses.dataclass(frozen=True)
class NumericsSpec(Spec):
    """Floating-point computation. A run with other values is a different run."""

    precision: PrecisionName = "auto"
    """Precision of the networks. Weights have, and losses are computed with, at least 32 bits. `fp16-mixed` scales the
    losses, and skips steps whose gradients are not finite. `auto`: 16 bits if they are faster by at least 15 % on this
    machine, measured once for each network, else `32-true`; they are `fp16-mixed` on GPUs below compute capability 8.0,
    else `bf16-mixed`. The choice is recorded; runs with little data, and models that learn from photos, use 32
    bits."""
    fold: bool = True
    """Whether batch norm is folded into convolutions where nothing is trained (teacher, herding, evaluation)."""
    compile: Literal["none", "frozen", "all", "cuda-graphs"] = "none"
    """Networks that `torch.compile` compiles: none, those that are not trained, or all. `cuda-graphs`: all, and the
    backbone in training is launched as one CUDA graph (`mode="reduce-overhead"`), on CUDA only."""


@dataclasses.dataclass(frozen=True)
class RuntimeSpec(Spec):
    """Where and how a run is executed. Other values give the same run, up to rounding."""

    device: Device = "auto"
    """Device; `auto`: CUDA or MPS if available, else the CPU."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads; 0: the value of the environment variable `OMP_NUM_THREADS` if it is set, else the number of cores
    that the process may use, divided among the runs of `--jobs`. It is recorded, and a resumed run keeps it."""
    devices: PositiveInt = 1
    """Processes per machine, which share each batch."""
    nodes: PositiveInt = 1
    """Number of machines."""
    workers: PositiveInt = 2
    """Threads that decode image files."""
    device_images_mb: NonNegativeFloat = 1000.0
    """Megabytes up to which the images of a split that are in memory are copied to a GPU once, as bytes, and augmented
    there; 0: batches are copied. Images with `data.transform.augment` are augmented on the CPU."""
    eval_batch_size: PositiveInt = 128
    """Images per batch in passes without gradients. A larger batch needs more memory."""
    memory_mb: NonNegativeFloat = 50.0
    """Megabytes of exemplar images stored with the model of a run, so that it can keep learning; 0: none."""
    frozen_cache_dir: str | None = None
    """Folder in which the outputs of frozen stages are stored for other runs; null: they are stored for this run."""
    log: Literal["tensorboard", "wandb", "mlflow"] | None = None
    """Service to which losses, accuracies and settings are logged during the run; null: none."""


@dataclasses.dataclass(frozen=True)
class CheckpointSpec(Spec):
    """Checkpoints."""

    minutes: NonNegativeFloat = 5.0
    """Minutes between two checkpoints within a task; 0: a checkpoint after every step."""


@functools.cache
def _adapter(part: type) -> TypeAdapter[Any]:
    return TypeAdapter(part)


def _build_parts(value: Any, path: str, kind: str, known: Mapping[str, type]) -> dict[str, Any]:
    """Build a loss or an extension from each entry of a mapping; null removes one.

    Args:
        value: Settings of each part by its name.
        path: Section of the settings, for messages.
        kind: What the parts are, for messages.
        known: Classes by name.

    Raises:
        ValueError: With all problems in one message.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{path} must map names to settings.")
    parts: dict[str, Any] = {}
    problems = []
    for name, options in value.items():
        if name not in known:
            problems.append(f"there is no {kind} {name!r}{suggest(str(name), known)}")
            continue
        try:
            parts[name] = None if options is None else _adapter(known[name]).validate_json(as_json(options))
        except ValidationError as error:
            problems += explain(error, known_keys(), (path, name))
    if problems:
        raise ValueError("; ".join(problems))
    return parts


def build_predictor(name: str, options: Mapping[str, Any] | None = None) -> Predictor:
    """Build a predictor on features from its settings.

    Args:
        name: Name in `PREDICTORS`.
        options: Settings that differ from the defaults.

    Raises:
        ValidationError: If an option is unknown or invalid.
    """
    predictor: Predictor = TypeAdapter(PREDICTORS[name]).validate_json(as_json(options or {}))
    return predictor


class Settings(BaseModel):
    """All settings of a run."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    method: str
    """Name of the method, with or without add-ons (argument of the commands)."""
    dataset: str
    """Name of the dataset (argument of the commands)."""
    recipe: Literal["released", "printed"] = "released"
    """Preset of the released code, or of the text of the CSCCT paper (`--recipe`)."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of everything random (`--seed`)."""
    protocol: ProtocolSpec = ProtocolSpec()
    data: DataSpec = DataSpec()
    network: NetworkSpec = NetworkSpec()
    loss: dict[str, Any] = {}
    train: Stage = Stage(epochs=DEFAULT_EPOCHS)
    """Training on each task."""
    finetune: Finetune | None = None
    stages: dict[Annotated[str, StringConstraints(pattern="^[a-z][a-z0-9_-]*$")], Finetune | None] = {}
    extension: dict[str, Any] = {}
    memory: MemorySpec = MemorySpec()
    predict: PredictSpec = PredictSpec()
    numerics: NumericsSpec = NumericsSpec()
    runtime: RuntimeSpec = RuntimeSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    plugins: dict[str, str] = {}
    """Hashes of the source files of the plugins that define parts of the run. They are recorded, not set."""

    @field_validator("loss", mode="before")
    @classmethod
    def _build_terms(cls, value: Any) -> dict[str, Term | None]:
        return _build_parts(value, "loss", "loss", TERMS)

    @field_validator("extension", mode="before")
    @classmethod
    def _build_extension(cls, value: Any) -> dict[str, Extension | None]:
        extensions = _build_parts(value, "extension", "extension", EXTENSIONS)
        active = [name for name, extension in extensions.items() if extension is not None]
        if len(active) > 1:
            raise ValueError(f"a run has at most one extension, not {' and '.join(active)}: set one of them to null.")
        return extensions

    @field_validator("train", "finetune", "stages", mode="after")
    @classmethod
    def _build_stage_terms(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict):
            return {name: cls._with_terms(stage, f"stages.{name}") for name, stage in value.items()}
        return cls._with_terms(value, str(info.field_name))

    @staticmethod
    def _with_terms(stage: Stage | None, path: str) -> Stage | None:
        if stage is None or stage.loss is None:
            return stage
        return dataclasses.replace(stage, loss=_build_parts(stage.loss, f"{path}.loss", "loss", TERMS))

    @property
    def active_extension(self) -> Extension | None:
        """The extension of the run, with its settings."""
        return next((extension for extension in self.extension.values() if extension is not None), None)

    @property
    def active_stages(self) -> dict[str, Stage]:
        """All stages of a task in order, by the section that configures them."""
        finetune = {"finetune": self.finetune} if self.finetune is not None else {}
        later = {f"stages.{name}": stage for name, stage in self.stages.items() if stage is not None}
        return {"train": self.train, **finetune, **later}

    @field_validator("predict", mode="after")
    @classmethod
    def _complete_options(cls, value: PredictSpec) -> PredictSpec:
        """Check the settings of predictors and fill in their defaults; null removes a predictor."""
        named = {name: options for name, options in value.options.items() if options is not None}
        if value.predictor in PREDICTORS and value.predictor not in DEFAULT_PREDICTORS:
            named.setdefault(value.predictor, {})
        complete: dict[str, dict[str, Any] | None] = {}
        problems = []
        for name, options in named.items():
            if name not in PREDICTORS:
                problems.append(f"there is no predictor {name!r} with settings{suggest(name, PREDICTORS)}")
                continue
            try:
                complete[name] = dataclasses.asdict(build_predictor(name, options))
            except ValidationError as error:
                problems += explain(error, known_keys(), ("predict", "options", name))
        if problems:
            raise ValueError("; ".join(problems))
        return dataclasses.replace(value, options=complete)

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for term in self.loss.values() if term is not None)

    @property
    def predictors(self) -> dict[str, Predictor]:
        """The predictors on features that are evaluated, without those of the network itself."""
        names = dict.fromkeys([*DEFAULT_PREDICTORS, *self.predict.options])
        options = self.predict.options
        return {name: build_predictor(name, options.get(name)) for name in names if name not in NETWORK_PREDICTORS}

    def dump(self) -> Raw:
        """Return plain values, as stored in `config.yaml`. Without plugins, the section `plugins` is omitted."""
        plain: Raw = self.model_dump(mode="json", exclude=None if self.plugins else {"plugins"})
        if not self.predict.options:  # as before 0.4
            del plain["predict"]["options"]
        return {"cscct_version": __version__, **plain}


def configurable_predictors() -> list[str]:
    """Return the names of the predictors with settings."""
    return [name for name, predictor in PREDICTORS.items() if dataclasses.fields(predictor)]


def as_json(raw: Any) -> str:
    """Return settings as JSON text. Strict validation converts mappings to dataclasses and lists to tuples only in
    JSON."""
    return json.dumps(raw, default=lambda value: value.item() if hasattr(value, "item") else str(value))


def known_keys() -> list[str]:
    """Return the dotted names of all settings and sections."""
    tree: Raw = Settings(method="", dataset="", finetune=Finetune(epochs=1)).model_dump(exclude={"plugins"})
    tree["loss"] = {name: dataclasses.asdict(term()) for name, term in TERMS.items()}
    tree["stages"] = {"NAME": dataclasses.asdict(Finetune(epochs=1))}
    tree["extension"] = {name: dataclasses.asdict(extension()) for name, extension in EXTENSIONS.items()}
    tree["predict"]["options"] = {name: dataclasses.asdict(PREDICTORS[name]()) for name in configurable_predictors()}
    names: list[str] = []

    def walk(node: Raw, path: str) -> None:
        for key, value in node.items():
            names.append(path + key)
            if isinstance(value, dict):
                walk(value, f"{path}{key}.")

    walk(tree, "")
    return names
