"""A model folder taught by a folder of images: made or loaded, taught, and stored as a new version."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..nets.efficientnet import VARIANTS, weights_file
from .estimator import IncrementalClassifier
from .images import Problem, read_folder
from .labels import check_is_text
from .report import LearnReport
from .store import ModelFolder, Version, is_model_folder, is_run_folder

SCRATCH = "lucir-resnet"  # what is trained where pretrained weights are not wanted: small images, a small network


@dataclass(frozen=True)
class TeachingOptions:
    """What may be said about a model when it is taught; None is the default of a new one, or as an old one has it."""

    predictor: str | None = None
    finetune: str | None = None
    backbone: str | None = None
    from_scratch: bool = False
    memory_mb: float | None = None
    device: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Those of them that were given, as parameters of `IncrementalClassifier`."""
        given = {name: value for name, value in asdict(self).items() if name != "from_scratch" and value is not None}
        return {"backbone": SCRATCH, "finetune": "always", **given} if self.from_scratch else given


@dataclass(frozen=True)
class Taught:
    """A model folder after it was taught."""

    path: Path
    version: int
    classes: int  # in all
    images: int  # in all
    finetuned: bool  # then only images held back from fine-tuning tell the accuracy
    report: LearnReport

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {**asdict(self), "path": str(self.path), "report": self.report.as_dict()}


@dataclass(frozen=True)
class Plan:
    """What a folder of images would teach: images of new and of known classes."""

    new: dict[str, int]
    known: dict[str, int]
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def count_classes(number: int) -> str:
    """`1 class`, `2 classes`."""
    return f"{number} {'class' if number == 1 else 'classes'}"


def exists(path: Path) -> bool:
    """Whether there is a model in the folder. One that holds something else is refused."""
    if is_run_folder(path):
        raise UserError(f"{path} holds a run, which cannot be taught or changed: choose another folder for the model.")
    if is_model_folder(path):
        return True
    if path.exists() and (not path.is_dir() or ModelFolder(path).has_other_files()):
        raise UserError(f"{path} is no model and holds something else: choose another folder for the model.")
    return False


def existing(path: Path) -> ModelFolder:
    """The model in a folder, which must be there."""
    if not exists(path):
        raise UserError(f"There is no model in {path}: `cscct learn {path} IMAGE_DIR` makes one.")
    return ModelFolder(path)


def current_version(folder: ModelFolder) -> Version:
    """The version that the folder is at."""
    return next(one for one in folder.versions() if one.current)


def standing(path: Path) -> str:
    """A sentence on what a folder holds, for who has just interrupted something."""
    if not is_model_folder(path):
        return f"There is no model in {path} yet."
    version = current_version(ModelFolder(path))
    return f"The model in {path} is whole, at version {version.number} with {count_classes(len(version.classes))}."


def teach(
    path: Path, images: Path, options: TeachingOptions, message: str = "", progress: Progress = no_progress
) -> Taught:
    """Teach the model in a folder the classes in a folder of images, and store it as a new version."""
    check_is_text(message)  # now, and not after everything is learned
    folder = ModelFolder(path)
    before = folder.current() if exists(path) else 0
    model = _new(options) if not before else _with_options(folder.load(device=options.device or "auto"), options)
    model.learn(images, progress=progress)
    number = folder.commit(model, message, based_on=before)
    total = sum(one.count for one in model.statistics_.values())
    return Taught(path, number, len(model.classes_), total, bool(model.tuned_), model.report_)


def _new(options: TeachingOptions) -> IncrementalClassifier:
    model = IncrementalClassifier(**options.parameters())
    if model.backbone in VARIANTS:
        try:
            weights_file(model.backbone)
        except UserError as error:
            raise UserError(
                f"{error} Or train a network from nothing, which needs many images: --from-scratch."
            ) from error
    return model


def _with_options(model: IncrementalClassifier, options: TeachingOptions) -> IncrementalClassifier:
    if model.backbone is None:
        raise UserError("This model reads features, not images: use it in Python, by IncrementalClassifier.load.")
    wanted = options.backbone or (SCRATCH if options.from_scratch else model.backbone)
    if wanted != model.backbone:
        raise UserError(
            f"This model has the backbone {model.backbone}, and a model keeps its backbone: leave out --backbone and "
            "--from-scratch, or make a model in another folder."
        )
    model.set_params(**{name: value for name, value in options.parameters().items() if name != "device"})
    return model


def plan(path: Path, images: Path) -> Plan:
    """What `teach` would learn."""
    listing = read_folder(images)
    known = {str(label) for label in current_version(ModelFolder(path)).classes} if exists(path) else set()
    counts = Counter(listing.labels)
    return Plan(
        {label: count for label, count in counts.items() if label not in known},
        {label: count for label, count in counts.items() if label in known},
        listing.problems,
    )
