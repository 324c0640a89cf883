"""A classifier that keeps learning: new classes at any time, more images of known ones, and forgetting on request."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..learn.device import choose_device
from ..predictors import PREDICTORS, ClassStatistics, LinearPredictor
from .checks import check_settings
from .features import FeatureExtractor, backbone_module, transform_for
from .finetune import what_stays
from .images import as_items
from .inputs import Given, read_given
from .labels import Label, as_label, as_labels, check_one_kind, chosen
from .learning import learned
from .report import LearnReport
from .unknown import NoveltyDetector


class IncrementalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns classes of images one after another, or many at once, and keeps all it has learned.

    A pretrained network turns images into features; a predictor that needs no training (`lda`, `ncm` or `ridge`) reads
    exact sums of them. So the order in which classes and images come does not matter, and a class that is forgotten
    leaves nothing behind (unless the network was fine-tuned with its images, which `forget` then says).

    Images are uint8 or float (0 to 1) arrays (n, channels, height, width) or (n, height, width, channels), PIL images,
    paths, lists of these, or a folder; what predicts also takes what `features` gave. scikit-learn's conventions hold,
    with these exceptions: `classes_` is in the order of learning (sorted within a call); `partial_fit` takes new
    classes at any time; labels are texts or whole numbers; except with `backbone=None`, X are images and not a matrix.

    Args:
        backbone: The name of a pretrained network; a module of your own; or None, if X are features already.
        predictor: `lda`, `ncm` or `ridge`.
        finetune: `never`, `auto` (the network's last stages are trained, and this is kept if it is better on images
            held back from it) or `always`.
        method: How fine-tuning is done.
        memory_per_class: Images of each class that are kept in the model.
        memory_mb: What these may take in all, in megabytes; 0 keeps no image.
        image_size: Side in pixels of what the network reads; by default what it was trained with.
        device: `auto`, `cpu`, `cuda` or `mps`.
        batch_size: Images that the network reads at a time.
        random_state: Seed of fine-tuning.

    Attributes:
        classes_: Labels in the order of learning, which is that of the columns of `predict_proba`.
        statistics_: For each label the sums that predictors read.
        exemplars_: For each label the images that are kept, as JPEG.
        report_: What the last `learn` or `forget` did.
        tuned_: Labels of the classes with whose images the network was fine-tuned.
        history_: What was done so far, step by step.
    """

    def __init__(
        self,
        backbone: str | nn.Module | None = "efficientnet-lite0",
        *,
        predictor: str = "lda",
        finetune: str = "never",
        method: str = "lucir+cscct",
        memory_per_class: int = 20,
        memory_mb: float = 50.0,
        image_size: int | None = None,
        device: str = "auto",
        batch_size: int = 32,
        random_state: int = 0,
    ):
        self.backbone = backbone
        self.predictor = predictor
        self.finetune = finetune
        self.method = method
        self.memory_per_class = memory_per_class
        self.memory_mb = memory_mb
        self.image_size = image_size
        self.device = device
        self.batch_size = batch_size
        self.random_state = random_state

    classes_: NDArray[Any]
    statistics_: dict[Label, ClassStatistics]
    exemplars_: dict[Label, list[bytes]]
    report_: LearnReport
    history_: list[dict[str, Any]]
    tuned_: list[Label]
    _predictor: LinearPredictor | None
    _novelty: NoveltyDetector | None

    # Learning

    def learn(self, images: Any, labels: Any = None, *, progress: Progress | None = None) -> Self:
        """Learn new classes, or more images of known ones. What came of it is in `report_`.

        Args:
            images: Images, or a folder with a folder of images for each class; files of it that cannot be read are told
                in the report and left out.
            labels: One for each image, or one for all; None for a folder of class folders.
            progress: Called with what is being done, how many are done, of how many.
        """
        started = time.perf_counter()
        self._check_values()
        if self.backbone is not None and not hasattr(self, "classes_"):
            module = backbone_module(copy.deepcopy(self.backbone))
            self._set_backbone(module, transform_for(self.backbone, module, self.image_size))
        given = self._given(images, labels, progress or no_progress)
        step = learned(self, given, progress or no_progress)
        if step.backbone is not None:
            self._set_backbone(step.backbone, self._extractor.transform)
        self._keep(step.statistics, step.head)
        self.exemplars_, self.tuned_ = step.exemplars, step.tuned
        self.report_ = replace(step.report, seconds=round(time.perf_counter() - started, 3))
        entry = {"action": "learn", "classes": len(step.report.new), "images": len(given.labels)}
        self.history_ = [*getattr(self, "history_", []), entry]
        return self

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from nothing: what was learned before is dropped."""
        for name in [name for name in vars(self) if name.endswith("_") or name in ("_predictor", "_extractor")]:
            delattr(self, name)
        return self.learn(X, y)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """The same as `learn`. classes: not needed; if given, labels have to be among them."""
        if classes is not None:
            allowed = {as_label(one) for one in np.asarray(classes).tolist()}
            strange = sorted(str(one) for one in {as_label(one) for one in np.asarray(y).ravel().tolist()} - allowed)
            if strange:
                raise ValueError(f"y has labels that are not in classes: {', '.join(strange[:5])}.")
        return self.learn(X, y)

    def forget(self, labels: Any) -> Self:
        """Remove classes: afterwards the model is as if it had never learned them."""
        self._require_classes()
        gone = chosen(labels, self.classes_.tolist())
        self._keep({label: one for label, one in self.statistics_.items() if label not in gone})
        self.exemplars_ = {label: one for label, one in self.exemplars_.items() if label not in gone}
        notes = what_stays(gone, self.tuned_)
        self.report_ = LearnReport(forgotten=[str(label) for label in gone], notes=notes)
        self.history_ = [*self.history_, {"action": "forget", "classes": len(gone)}]
        return self

    def rename(self, names: Mapping[Any, Any]) -> Self:
        """Give classes other labels: `{old: new}`."""
        self._require_classes()
        chosen(list(names), self.classes_.tolist())
        new = {as_label(old): as_label(name) for old, name in names.items()}
        renamed = [new.get(label, label) for label in self.statistics_]
        if len(set(renamed)) < len(renamed):
            twice = next(label for label in renamed if renamed.count(label) > 1)
            raise UserError(f"Two classes would be called {twice!r}: choose another name.")
        check_one_kind((), renamed)
        self.exemplars_ = {new.get(label, label): one for label, one in self.exemplars_.items()}
        self.tuned_ = [new.get(label, label) for label in self.tuned_]
        self._keep(dict(zip(renamed, self.statistics_.values(), strict=True)))
        self.report_ = self.report_.renamed({str(old): str(name) for old, name in new.items()})
        self.history_ = [*self.history_, {"action": "rename", "classes": len(new)}]
        return self

    # Predicting

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of each image."""
        scores = self._head().scores(self._features(X).double())
        return self.classes_[scores.argmax(dim=1).numpy()]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, classes), columns in the order of `classes_`."""
        head = self._head()
        found: NDArray[np.float64] = head.probabilities(self._features(X).double()).numpy()
        return found

    def top(self, images: Any, k: int = 5) -> list[list[tuple[Label, float]]]:
        """The k most probable labels of each image with their probabilities, best first."""
        probabilities = self.predict_proba(images)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
        labels = self.classes_.tolist()
        return [[(labels[i], float(row[i])) for i in best] for row, best in zip(probabilities, order, strict=True)]

    def unknown(self, images: Any) -> NDArray[np.bool_]:
        """Whether each image is like nothing that was learned."""
        self._require_classes()
        if self._novelty is None:
            self._novelty = NoveltyDetector(list(self.statistics_.values()))
        found: NDArray[np.bool_] = self._novelty.unknown(self._features(images)).numpy()
        return found

    def features(self, images: Any) -> NDArray[np.float32]:
        """(n, dimensions): what the network says of the images."""
        self._require_classes()
        found: NDArray[np.float32] = self._features(images).numpy()
        return found

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels as texts, in the order of `classes_`."""
        self._require_classes()
        return tuple(str(label) for label in self.classes_.tolist())

    # On disk

    def save(self, path: str | Path, message: str = "") -> None:
        """Write the model to a folder, as its newest version."""
        from .store import ModelFolder

        self._require_classes()
        ModelFolder(path).commit(self, message)

    @staticmethod
    def load(
        path: str | Path, version: int | None = None, *, backbone: nn.Module | None = None, device: str = "auto"
    ) -> IncrementalClassifier:
        """The model in a folder. That of a run predicts as the run does, and learns more classes by their means.

        Args:
            path: Where `save` or `cscct learn` wrote it, or the folder of a finished run.
            version: By default the current one.
            backbone: The module, for a model that was made with one; its weights come from the folder.
            device: `auto`, `cpu`, `cuda` or `mps`.
        """
        from .store import ModelFolder, is_run_folder

        if is_run_folder(path):
            from .from_run import RunClassifier

            return RunClassifier.of(path, device)
        return ModelFolder(path).load(version, backbone=backbone, device=device)

    save_pretrained = save
    from_pretrained = load

    # Within

    def _keep(self, statistics: dict[Label, ClassStatistics], head: LinearPredictor | None = None) -> None:
        """The state that follows from the statistics. head: the predictor, where it is known already."""
        self.statistics_ = statistics
        self.classes_ = np.array(list(statistics))
        if head is None and statistics:
            head = PREDICTORS[self.predictor](list(statistics.values()))
        self._predictor = head
        self._novelty = None  # made when it is asked for

    def _check_values(self) -> None:
        check_settings(self)

    def _set_backbone(self, module: nn.Module, transform: Any) -> None:
        device = torch.device(choose_device(self.device))
        self._extractor = FeatureExtractor(module, transform, device, self.batch_size)

    def _given(self, images: Any, labels: Any, progress: Progress) -> Given:
        if self.backbone is None:
            X, y = validate_data(self, images, labels, dtype=np.float32, reset=not hasattr(self, "classes_"))
            check_classification_targets(y)
            return Given(torch.from_numpy(np.array(X)), as_labels(y, len(X)))
        return read_given(self._extractor, images, labels, getattr(self, "statistics_", {}), progress)

    def _features(self, images: Any) -> Tensor:
        if self.backbone is None:
            return torch.from_numpy(np.array(validate_data(self, images, dtype=np.float32, reset=False)))
        width = self.statistics_[self.classes_.tolist()[0]].total.shape
        if isinstance(images, np.ndarray) and images.dtype == np.float32 and images.shape[1:] == width:
            return torch.from_numpy(images)  # what `features` gave; a grey image may be as wide
        found = self._extractor.extract(as_items(images))
        if found.errors:
            raise next(iter(found.errors.values()))
        return found.features

    def _require_classes(self) -> None:
        check_is_fitted(self, "classes_")
        if not len(self.classes_):
            raise UserError("This model has no classes any more: learn some first.")

    def _head(self) -> LinearPredictor:
        """In 64 bits, in which what is said of an image does not depend on those beside it."""
        self._require_classes()
        assert self._predictor is not None
        head = self._predictor
        return replace(head, weight=head.weight.double(), bias=head.bias.double())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.backbone is None
        return tags
