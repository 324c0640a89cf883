"""A classifier that keeps learning: new classes at any time, more images of known ones, and forgetting on request."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from ..data.registry import Progress
from ..errors import UserError
from ..learn.device import choose_device
from ..progress import default_display
from .conventions import ClassifierConventions
from .labels import Label, as_label, as_labels, check_one_kind, select_labels
from .learning import learn_step
from .model import Model
from .networks import build_reader
from .parameters import AUTO, DEFAULT_TRAINED, check_parameters, resolve_method, training_free_predictor
from .report import LearnReport
from .review import ReviewPhoto, suspicious
from .state import ModelState, fit_predictor, predictor_name
from .step import refitted
from .training_images import TrainingImages, read_training_images

EMPTY = ModelState(None, {}, None, {}, None)


class IncrementalClassifier(Model, ClassifierConventions):
    """Image classifier that learns classes one after another, or many at once, and keeps all it has learned.

    With a training-free method (`lda`, `ncm`, `ridge`, ...), a pretrained network computes features and the classifier
    is computed from their statistics: the order in which classes and images arrive does not matter, and a forgotten
    class leaves nothing behind. With any other method (`lucir+cscct`, `podnet`, ...), the network is trained on new
    classes with exemplars of the known ones, as in a run.

    scikit-learn's conventions hold, with these exceptions: `classes_` is in the order of learning (sorted within a
    call); `partial_fit` accepts new classes at any time; labels are strings or integers; except with `backbone=None`, X
    are images and not a matrix.

    Args:
        backbone: Name of a network; a module of your own; or None if X are features.
        method: How classes are learned: `lda`, `ncm`, `ridge`, `ranpac`, `fecam` or another registered predictor (no
            training), a method that trains such as `lucir+cscct`, or `auto`, which compares `lda` with training on
            held-out images and keeps the better one.
        memory_per_class: Images of each class that are stored in the model.
        memory_mb: Limit of the stored images in megabytes; 0 stores none.
        image_size: Side in pixels of the images that the network reads. Default: that of its training.
        device: `auto`, `cpu`, `cuda` or `mps`.
        batch_size: Images per forward pass.
        random_state: Seed of training, and of random features.
        predictor: Deprecated; use `method`.
        finetune: Deprecated; use `method`.

    Attributes:
        classes_: Labels in the order of learning, which is that of the columns of `predict_proba`.
        statistics_: Statistics of the features of each class.
        exemplars_: Stored images of each class, encoded as JPEG or PNG.
        report_: Report of the last `learn` or `forget`.
        history_: What was done so far, step by step.

    Example:
        >>> import numpy as np
        >>> from cscct import IncrementalClassifier
        >>> model = IncrementalClassifier(backbone=None)  # X are features
        >>> model = model.learn(np.eye(4), ["cat", "cat", "dog", "dog"])
        >>> model = model.learn(np.eye(4)[:2] + 1, ["bird", "bird"])
        >>> model.class_names
        ('cat', 'dog', 'bird')
    """

    def __init__(
        self,
        backbone: str | nn.Module | None = "efficientnet-lite0",
        *,
        method: str = "lda",
        memory_per_class: int = 20,
        memory_mb: float = 50.0,
        image_size: int | None = None,
        device: str = "auto",
        batch_size: int = 32,
        random_state: int = 0,
        predictor: str | None = None,
        finetune: str | None = None,
    ):
        self.backbone = backbone
        self.method = method
        self.memory_per_class = memory_per_class
        self.memory_mb = memory_mb
        self.image_size = image_size
        self.device = device
        self.batch_size = batch_size
        self.random_state = random_state
        self.predictor = predictor
        self.finetune = finetune

    report_: LearnReport
    history_: list[dict[str, Any]]

    def learn(
        self,
        images: Any,
        labels: Any = None,
        *,
        evaluate: bool = True,
        progress: Progress | None = None,
        quiet: bool = False,
    ) -> Self:
        """Learn new classes, or more images of known ones. Images that were learned before are left out.

        Args:
            images: Images as for `predict`, a folder with one folder of images per class (perhaps in `train`, next to
                `val` or `test`, which are not read), or a CSV file with the columns `path` and `label`. Unreadable
                files are left out and listed in the report.
            labels: One label per image, or one for all; None for class folders, CSV files and labelled datasets.
            evaluate: Whether to measure the accuracy. Methods that train always measure it.
            progress: Called with a description, the number of images done and the total. Default: a progress bar in
                terminals and notebooks.
            quiet: Whether to show no progress bar.

        Returns:
            The model; what happened is in `report_`.

        Raises:
            UserError: The input or a parameter is invalid. The model is unchanged.
        """
        if progress is None:
            with default_display(quiet) as display:
                return self.learn(images, labels, evaluate=evaluate, progress=display.reading)
        started = time.perf_counter()
        check_parameters(self)
        fitted = hasattr(self, "state_")
        if not fitted:
            self.state_ = EMPTY
        try:
            if self.backbone is not None and self.state_.reader is None:
                device = torch.device(choose_device(self.device))
                reader = build_reader(copy.deepcopy(self.backbone), self.image_size, device, self.batch_size)
                self.state_ = replace(self.state_, reader=reader)
            training_images = self._read(images, labels, progress)
            state, report = learn_step(self, training_images, progress, evaluate=evaluate)
        except BaseException:
            if not fitted:
                del self.state_
            raise
        self.restore_state(state)
        self.report_ = replace(report, seconds=round(time.perf_counter() - started, 3))
        entry = {"action": "learn", "classes": len(report.new), "images": len(training_images.labels)}
        self.history_ = [*getattr(self, "history_", []), entry]
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from scratch: everything learned before is dropped.

        Args:
            X: Images or features, as for `learn`.
            y: Labels, as for `learn`.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        return self.learn(X, y)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Learn, as `learn` does.

        Args:
            X: Images or features.
            y: Labels.
            classes: Optional; if given, all labels must be among them.
        """
        if classes is not None:
            allowed = {as_label(label) for label in np.asarray(classes).tolist()}
            invalid = {as_label(label) for label in np.asarray(y).ravel().tolist()} - allowed
            if invalid:
                names = ", ".join(sorted(map(str, invalid))[:5])
                raise ValueError(f"y contains labels that are not in classes: {names}.")
        return self.learn(X, y)

    def forget(self, labels: Any) -> Self:
        """Remove classes.

        A model that was never trained is afterwards as if it had never learned them. A trained network keeps what it
        learned from their images in its weights, and a warning says so.

        Args:
            labels: One label or several.
        """
        self._require_classes()
        removed = select_labels(labels, self.classes_.tolist())
        state = self.state_.completed if self.state_.training is not None else self.state_
        kept = [index for index, label in enumerate(state.statistics) if label not in removed]
        statistics = {label: stats for label, stats in state.statistics.items() if label not in removed}
        exemplars = {label: images for label, images in state.exemplars.items() if label not in removed}
        notes = _traces(removed, self.tuned_)
        reader, training = state.reader, state.training
        if training is not None and reader is not None:
            network = copy.deepcopy(reader.network)
            if network.head.classes == len(state.statistics):
                network.head.keep(kept)
            reader = reader.with_network(network)
            means = training.means[kept] if len(training.means) == len(state.statistics) else training.means
            stored = {label: rows for label, rows in training.stored.items() if label not in removed}
            trained = [label for label in training.labels if label not in removed]
            training = replace(training, means=means, stored=stored, labels=trained)
        photos = {label: members for label, members in state.photos.items() if label not in removed}
        evaluation = None if state.evaluation is None else state.evaluation.keep_classes(kept)
        new_state = ModelState(reader, statistics, None, exemplars, training, photos, evaluation)
        report = LearnReport()
        if statistics and training is None:
            new_state, report = refitted(self, new_state)
        elif statistics and training is not None and state.predictor is not None:
            name = self.candidates()[0] or predictor_name(self, training)
            new_state = replace(new_state, predictor=fit_predictor(name, new_state, self.random_state))
        self.restore_state(new_state)
        self.report_ = replace(report, forgotten=[str(label) for label in removed], notes=notes)
        self.history_ = [*self.history_, {"action": "forget", "classes": len(removed)}]
        return self

    def rename(self, names: Mapping[Any, Any]) -> Self:
        """Rename classes.

        Args:
            names: `{old label: new label}`.
        """
        self._require_classes()
        select_labels(list(names), self.classes_.tolist())
        new = {as_label(old): as_label(name) for old, name in names.items()}
        renamed = [new.get(label, label) for label in self.statistics_]
        if len(set(renamed)) < len(renamed):
            duplicate = next(label for label in renamed if renamed.count(label) > 1)
            raise UserError(f"Two classes would have the name {duplicate!r}: choose another name.")
        check_one_kind((), renamed)
        state = self.state_
        training = state.training
        if training is not None:
            stored = {new.get(label, label): rows for label, rows in training.stored.items()}
            training = replace(training, labels=[new.get(label, label) for label in training.labels], stored=stored)
        self.restore_state(
            replace(
                state,
                statistics=dict(zip(renamed, state.statistics.values(), strict=True)),
                exemplars={new.get(label, label): images for label, images in state.exemplars.items()},
                photos={new.get(label, label): members for label, members in state.photos.items()},
                training=training,
            )
        )
        self.report_ = self.report_.renamed({str(old): str(name) for old, name in new.items()})
        self.history_ = [*self.history_, {"action": "rename", "classes": len(new)}]
        return self

    def review(self) -> list[ReviewPhoto]:
        """Return the photos that look mislabelled or are not recognised, most suspicious first."""
        self._require_classes()
        return suspicious(self.state_)

    def save(self, path: str | Path, message: str = "", *, keep_versions: int | None = None) -> None:
        """Write the model to a folder, as its newest version.

        Args:
            path: The folder; it is created if it does not exist.
            message: Stored with the version.
            keep_versions: Number of versions that the folder keeps, this one included; 0: all. Default: as before.
        """
        from .store import ModelFolder

        self._require_classes()
        ModelFolder(path).commit(self, message, keep_versions=keep_versions)

    @staticmethod
    def load(
        path: str | Path, version: int | None = None, *, backbone: nn.Module | None = None, device: str = "auto"
    ) -> IncrementalClassifier:
        """Load a model from a model folder or from the folder of a finished run.

        Args:
            path: The folder.
            version: Version to load. Default: the current one.
            backbone: The module, for a model that was made with one; its weights come from the folder.
            device: `auto`, `cpu`, `cuda` or `mps`.
        """
        from .versions import StoredVersions

        return StoredVersions(path).load(version, backbone=backbone, device=device)

    save_pretrained = save
    from_pretrained = load

    def restore_state(self, state: ModelState) -> None:
        """Set the fitted state, for example from a file."""
        self.state_ = state
        self.classes_ = np.array(list(state.statistics))
        self._novelty = None  # computed when first needed

    def candidates(self) -> tuple[str, str]:
        """Return the training-free predictor and the training method that `method` stands for; at least one is set.

        Returns:
            `("lda", "")`, `("", "lucir+cscct")` or, for `auto`, `("lda", "lucir+cscct")`.
        """
        method = resolve_method(self)
        if training_free_predictor(method):
            return method, ""
        if method == AUTO:
            free = self.predictor or "lda"
            trains = self.finetune and self.method != AUTO and not training_free_predictor(self.method)
            return free, self.method if trains else DEFAULT_TRAINED
        return "", method

    def _read(self, images: Any, labels: Any, progress: Progress) -> TrainingImages:
        if self.backbone is None:
            from sklearn.utils.multiclass import check_classification_targets
            from sklearn.utils.validation import validate_data

            X, y = validate_data(self, images, labels, dtype=np.float32, reset=not hasattr(self, "classes_"))
            check_classification_targets(y)
            return TrainingImages(torch.from_numpy(np.array(X)), as_labels(y, len(X)))
        state = self.state_
        return read_training_images(self.reader_, images, labels, state.statistics, state.photos, progress)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.backbone is None
        return tags


def _traces(removed: list[Label], trained: list[Label]) -> list[str]:
    """Warn that a network which was trained on images of removed classes keeps what it learned from them."""
    names = [str(label) for label in removed if label in trained]
    if not names:
        return []
    text = (
        f"The network was trained on images of {', '.join(names)}, and its weights keep what it learned from them. "
        "Only a model that learns the other classes from scratch is free of it."
    )
    warnings.warn(text, stacklevel=3)
    return [text]
