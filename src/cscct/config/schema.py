"""The settings of a run: typed and strict. `layers.py` fills them in, `checks.py` judges them as a whole."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
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

from .. import __version__
from ..losses import TERMS, Term
from ..methods import suggest
from ..specs import Finetune, Fraction, MemorySpec, NetworkSpec, PredictSpec, Spec, Stage, TransformSpec
from ..yamltext import Raw
from .messages import explain

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
class NumericsSpec(Spec):
    """How numbers are computed: a run with other values is another run."""

    precision: Literal["32-true", "bf16-mixed"] = "32-true"  # of the networks; losses have at least 32 bits
    fold: bool = True  # batch norm folded into convolutions where nothing is trained: the teacher, herding, testing
    compile: Literal["none", "frozen", "all"] = "none"  # by torch.compile: networks that do not train, or all


@dataclasses.dataclass(frozen=True)
class RuntimeSpec(Spec):
    """Where a run is carried out. Another value gives the same run, up to rounding."""

    device: Device = "auto"
    threads: Annotated[int, Field(ge=0, le=1024)] = 0  # 0: as many as there are cores
    devices: PositiveInt = 1  # processes on a machine, which share each batch
    nodes: PositiveInt = 1  # machines
    workers: PositiveInt = 2  # threads that decode image files
    eval_batch_size: PositiveInt = 128  # for passes without gradients: more only needs more memory
    trunk_cache: str | None = None  # a folder in which the outputs of frozen stages are kept for other runs


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
    numerics: NumericsSpec = NumericsSpec()
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
                terms[name] = None if options is None else _adapter(name).validate_json(as_json(options))
            except ValidationError as error:
                problems += explain(error, known_keys(), ("loss", name))
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


def as_json(raw: Any) -> str:
    """Strict validation takes mappings for dataclasses and lists for tuples only from JSON."""
    return json.dumps(raw, default=lambda value: value.item() if hasattr(value, "item") else str(value))


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
