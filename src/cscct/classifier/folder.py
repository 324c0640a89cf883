"""Operations on the model in a folder: learn, forget, rename and describe. The CLI, Python and the web UI share them.

A folder is either a model folder or the folder of a finished run; both are treated alike.
"""

from __future__ import annotations

import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..data.inputs import InputProblem
from ..data.labelled import scan_labelled, similar_names
from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..nets.efficientnet import VARIANTS, weights_file
from .estimator import IncrementalClassifier
from .labels import Label, check_is_text, nearest
from .report import LearnReport
from .review import ReviewPhoto, renamed_photos
from .store import ModelFolder
from .versions import StoredVersions, is_model_folder, is_run_folder


@dataclass(frozen=True)
class LearnOptions:
    """Parameters of a model that a learning step may set; None keeps the default, or what the model has.

    Attributes:
        method: How classes are learned; see `IncrementalClassifier`.
        backbone: The network of a new model.
        memory_mb: Limit of the stored images in megabytes.
        device: `auto`, `cpu`, `cuda` or `mps`.
    """

    method: str | None = None
    backbone: str | None = None
    memory_mb: float | None = None
    device: str | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the options that are set, as parameters of `IncrementalClassifier`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class LearnResult:
    """A model folder after a learning step.

    Attributes:
        path: The folder.
        version: Number of the new version.
        classes: Number of classes in total.
        images: Number of images in total.
        method: How the model learns.
        trained: Whether the network was trained; then accuracies are measured on held-out images only.
        report: What the step did.
        changed: Whether there is a new version. There is none if all images were known.
        review: Photos that look mislabelled or are not recognised, most suspicious first.
    """

    path: Path
    version: int
    classes: int
    images: int
    method: str
    trained: bool
    report: LearnReport
    changed: bool = True
    review: tuple[ReviewPhoto, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "path": str(self.path), "report": self.report.as_dict()}


@dataclass(frozen=True)
class LearnPlan:
    """What a folder of images would add to a model: images of new and of known classes."""

    new: dict[str, int]
    known: dict[str, int]
    problems: tuple[InputProblem, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class ForgetResult:
    """A model folder after classes were removed.

    Attributes:
        path: The folder.
        version: Number of the current version.
        classes: Number of remaining classes.
        forgotten: Names of the removed classes.
        older: Versions that still exist.
        notes: What could not be removed.
    """

    path: Path
    version: int
    classes: int
    forgotten: tuple[str, ...]
    older: tuple[int, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**asdict(self), "path": str(self.path)}

    def message(self) -> str:
        """Return the result as text."""
        names = ", ".join(self.forgotten)
        lines = [f"Removed {names}. Version {self.version} of {self.path} has {count_classes(self.classes)}."]
        if self.older:
            command = shlex.join([str(self.path), *self.forgotten])
            lines.append(
                "Earlier versions still contain what was removed; `cscct undo` restores it. To remove it for good: "
                f"`cscct forget {command} --purge-history`."
            )
        else:
            lines.append("No earlier version is left.")
        return "\n".join([*lines, *self.notes])


def count_classes(number: int) -> str:
    """Return `1 class` or `2 classes`."""
    return f"{number} {'class' if number == 1 else 'classes'}"


def check_is_model(path: Path) -> None:
    """Check that a folder contains a model or a run.

    Raises:
        UserError: It contains neither.
    """
    if not path.is_dir():
        raise UserError(f"There is no folder {path}: name a model folder (`cscct learn` creates one) or a run folder.")
    if not is_model_folder(path):
        raise UserError(f"{path} contains neither a model (`cscct learn` creates one) nor a run.")


def existing_model(path: Path) -> ModelFolder:
    """Return the model in a folder.

    Raises:
        UserError: There is none.
    """
    if not _model_exists(path):
        raise UserError(f"There is no model in {path}: `cscct learn {path} IMAGE_DIR` creates one.")
    return ModelFolder(path)


def change_model(path: Path, change: Callable[[IncrementalClassifier], str]) -> int:
    """Change the model in a folder, and store it as a new version.

    Args:
        path: The folder.
        change: Changes the model and returns a description of the change.

    Returns:
        Number of the new version.

    Raises:
        UserError: There is no model.
        RunFailed: Another process changed the model in the meantime, or writing fails.
    """
    folder = existing_model(path)
    before = folder.current()
    model = folder.load()
    message = change(model)
    return folder.commit(model, message, based_on=before)


def _model_exists(path: Path) -> bool:
    """Whether a folder contains a model. A folder with other files is an error."""
    if is_model_folder(path):
        return True
    if path.exists() and (not path.is_dir() or StoredVersions(path).has_other_files()):
        raise UserError(f"{path} is not a model and contains other files: choose another folder for the model.")
    return False


def interruption_message(path: Path) -> str:
    """Return what a folder contains, for a user who interrupted a command."""
    if not is_model_folder(path):
        return f"There is no model in {path} yet."
    try:
        version = StoredVersions(path).current_version()
    except UserError as error:
        return str(error)
    return f"The model in {path} is unchanged: version {version.number} with {count_classes(len(version.classes))}."


def learn_images(
    path: Path,
    images: Any,
    labels: Any = None,
    *,
    options: LearnOptions | None = None,
    message: str = "",
    keep_versions: int | None = None,
    evaluate: bool = True,
    always_commit: bool = False,
    progress: Progress = no_progress,
    rename_problem: Callable[[InputProblem], InputProblem] | None = None,
) -> LearnResult:
    """Teach the model in a folder, and store it as a new version. A model is created if there is none.

    Images that the model knows are left out. If all are known and no option changes, no version is made.

    Args:
        path: The folder.
        images: A folder with one folder per class, a CSV file, or images as `IncrementalClassifier.learn` accepts them.
        labels: Labels of the images; strings are converted to the label type of the model.
        options: Parameters to set.
        message: Stored with the version.
        keep_versions: Number of versions that the folder keeps, this one included; 0: all. Default: as before.
        evaluate: Whether to measure the accuracy.
        always_commit: Whether to make a version even if nothing changed.
        progress: Called with a description, the number of images done and the total.
        rename_problem: Changes how the report and the list of photos name images.

    Raises:
        UserError: The input or an option is invalid. The model is unchanged.
    """
    check_is_text(message)  # before the work, not after it
    options = options or LearnOptions()
    folder = ModelFolder(path)
    exists = _model_exists(path)
    before = folder.current()
    device = options.device or "auto"
    model = folder.load(device=device) if exists else _new_model(options)
    parameters = dict(model.get_params(deep=False))
    model = _with_options(model, options) if exists else model
    if labels is not None:
        known: Sequence[Label] = model.classes_.tolist() if exists else ()
        labels = [own_label(label, known) for label in labels]
    model.learn(images, labels, evaluate=evaluate, progress=progress)
    if rename_problem is not None:
        problems = [rename_problem(problem) for problem in model.report_.problems]
        model.report_ = replace(model.report_, problems=problems)
        model.restore_state(renamed_photos(model.state_, lambda name: rename_problem(InputProblem("", name, "")).path))
    changed = always_commit or bool(model.report_.images) or model.get_params(deep=False) != parameters or not exists
    number = folder.commit(model, message, based_on=before, keep_versions=keep_versions) if changed else before
    total = sum(stats.count for stats in model.statistics_.values())
    method = next(filter(None, reversed(model.candidates())))
    trained, review = bool(model.tuned_), tuple(model.review())
    return LearnResult(path, number, len(model.classes_), total, method, trained, model.report_, changed, review)


def own_label(text: Any, known: Sequence[Label]) -> Any:
    """Return a label in the type of the labels of a model, where the input is text."""
    if not isinstance(text, str):
        return text
    same = [label for label in known if str(label) == text]
    numbers = any(isinstance(label, int) for label in known)
    return same[0] if same else int(text) if numbers and text.isdecimal() else text


def _new_model(options: LearnOptions) -> IncrementalClassifier:
    model = IncrementalClassifier(**options.parameters())
    if model.backbone in VARIANTS:
        try:
            weights_file(model.backbone)
        except UserError as error:
            raise UserError(
                f"{error} Or train a network from scratch, which needs many images: --backbone lucir-resnet --method "
                "lucir+cscct."
            ) from error
    return model


def _with_options(model: IncrementalClassifier, options: LearnOptions) -> IncrementalClassifier:
    if model.backbone is None:
        raise UserError("This model reads features, not images: use it in Python, with cscct.load.")
    if options.backbone is not None and options.backbone != model.backbone:
        raise UserError(
            f"This model has the backbone {model.backbone}, which cannot be changed: omit --backbone, or create a "
            "model in another folder."
        )
    wanted = {name: value for name, value in options.parameters().items() if name not in ("device", "backbone")}
    if "method" in wanted:
        wanted |= {"predictor": None, "finetune": None}
    model.set_params(**wanted)
    return model


def plan_learning(path: Path, images: Path, every: float | None = None) -> LearnPlan:
    """Return what `learn_images` would learn from a folder of class folders or a CSV file.

    Args:
        path: The folder of the model.
        images: The folder or CSV file.
        every: Interval between frames of videos in seconds; None leaves videos out.
    """
    files = scan_labelled(images, every=every)
    known = {str(label) for label in StoredVersions(path).current_version().classes} if _model_exists(path) else set()
    counts = Counter(files.labels)
    return LearnPlan(
        {label: count for label, count in counts.items() if label not in known},
        {label: count for label, count in counts.items() if label in known},
        (*files.problems, *similar_names(counts, known)),
    )


def forget_classes(path: Path, names: Sequence[str], *, purge_history: bool = False) -> ForgetResult:
    """Remove classes from the model in a folder, as a new version.

    Args:
        path: The folder.
        names: Names of the classes.
        purge_history: Whether to remove all earlier versions too. Names of classes that only they contain are valid.

    Raises:
        UserError: There is no model, or no class of a name.
    """
    folder = existing_model(path)
    if purge_history and is_run_folder(path):
        raise UserError(
            f"{path} is a run, whose model and result are kept: use `cscct forget` without --purge-history."
        )
    before = folder.current()
    model = folder.load()
    wanted = list(dict.fromkeys(names))
    present = {str(label): label for label in model.classes_.tolist()}
    past = {str(label) for version in folder.versions() for label in version.classes} if purge_history else set()
    for name in wanted:
        if name not in present and name not in past:
            raise UserError(f"There is no class {name!r} in this model. {nearest(name, list(present))}")
    removed = [present[name] for name in wanted if name in present]
    notes: tuple[str, ...] = ()
    if removed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the notes say the same
            model.forget(removed)
        notes = tuple(model.report_.notes)
        folder.commit(model, f"{count_classes(len(removed))} forgotten", based_on=before)
    if purge_history:
        folder.discard_history()
    current = folder.current()
    older = tuple(version.number for version in folder.versions() if not version.current)
    return ForgetResult(path, current, len(model.classes_), tuple(wanted), older, notes)


def rename_class(path: Path, old: str, new: str) -> int:
    """Rename a class of the model in a folder.

    Returns:
        Number of the new version.

    Raises:
        UserError: There is no class `old`, or `new` exists or is not a valid name.
    """

    def rename(model: IncrementalClassifier) -> str:
        labels = {str(label): label for label in model.classes_.tolist()}
        if old == new and old in labels:
            raise UserError(f"The class {old!r} already has this name: choose another one.")
        label: Label = new
        if isinstance(labels.get(old, old), int):
            try:
                label = int(new)
            except ValueError:
                raise UserError(f"The labels of this model are integers, and {new!r} is not one.") from None
        model.rename({labels.get(old, old): label})
        return f"{old} renamed to {new}"

    return change_model(path, rename)
