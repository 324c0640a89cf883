"""The predicting half of a model: its parts and its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.inputs import Item, as_items, item_name
from ..data.registry import Progress, no_progress
from ..errors import RunFailed, UserError
from ..features import ClassStatistics, FittedPredictor
from .labels import Label
from .reader import ImageOutputs, NetworkReader
from .state import ModelState
from .training import TrainingState
from .unknown import FALSE_ALARMS, NoveltyDetector

if TYPE_CHECKING:
    from .suggest import Suggestion


@dataclass(frozen=True)
class ImagePrediction:
    """Prediction for one image.

    Attributes:
        image: Name of the image.
        best: Labels and probabilities, best first.
        unknown: Whether the image resembles no class; None if not requested or not possible.
        unknown_score: Score that `unknown` follows from: high for images that resemble no class.
        error: Why the image could not be read; then the rest is empty.
    """

    image: str
    best: tuple[tuple[str, float], ...] = ()
    unknown: bool | None = None
    unknown_score: float | None = None
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, as `cscct predict --json` prints it."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        unknown = {} if self.unknown is None else {"unknown": self.unknown, "unknown_score": self.unknown_score}
        return {"image": self.image, "predictions": [{"label": n, "score": s} for n, s in self.best], **unknown}


class Model:
    """A fitted model: a network, class statistics and a predictor. `IncrementalClassifier` is a `Model` that learns."""

    backbone: str | nn.Module | None
    state_: ModelState
    classes_: NDArray[Any]
    n_features_in_: int
    _novelty: NoveltyDetector | None

    @property
    def statistics_(self) -> dict[Label, ClassStatistics]:
        """Statistics of the features of each class."""
        return self.state_.statistics

    @property
    def exemplars_(self) -> dict[Label, list[bytes]]:
        """Stored images of each class, encoded as JPEG or PNG."""
        return self.state_.exemplars

    @property
    def predictor_(self) -> FittedPredictor | None:
        """Predictor on features; None for the classifier of the network."""
        return self.state_.completed.predictor

    @property
    def reader_(self) -> NetworkReader:
        """The network and the format of its images."""
        if self.state_.reader is None:
            raise UserError("This model reads features, not images: it has no network.")
        return self.state_.reader

    @property
    def training_(self) -> TrainingState | None:
        """State of a network that comes from a run or was trained; else None."""
        return self.state_.training

    @property
    def tuned_(self) -> list[Label]:
        """Labels of the classes whose images the network was trained on."""
        return [] if self.training_ is None else list(self.training_.labels)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Labels as text, in the order of `classes_`."""
        self._require_classes()
        return tuple(str(label) for label in self.classes_.tolist())

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the label of each image.

        Args:
            X: Images: uint8 or float (0 to 1) arrays or tensors, (n, channels, height, width) or
                (n, height, width, channels), PIL images, paths, a folder, a torch dataset or a list of these. With
                `backbone=None` a matrix of features.

        Returns:
            (n,) labels.
        """
        indices = self.log_probabilities(self._outputs(X)).argmax(dim=1).numpy()
        return self.classes_[indices]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict class probabilities.

        Args:
            X: As for `predict`.

        Returns:
            (n, classes), columns in the order of `classes_`. Those of training-free predictors are calibrated on
            left-out images; those of a network's own classifier are the softmax of its logits.
        """
        probabilities: NDArray[np.float64] = self.log_probabilities(self._outputs(X)).exp().numpy()
        return probabilities

    def top(self, images: Any, k: int = 5) -> list[list[tuple[Label, float]]]:
        """Return the k most probable labels of each image with their probabilities, best first.

        Args:
            images: As for `predict`.
            k: Number of labels per image.
        """
        return self._best(self.log_probabilities(self._outputs(images)), k)

    def unknown(self, images: Any, rate: float = FALSE_ALARMS) -> NDArray[np.bool_]:
        """Return whether each image resembles none of the classes.

        Args:
            images: As for `predict`.
            rate: Share of images of known classes that may be reported, too.

        Raises:
            UserError: The model has too few images for this rate.
        """
        self._require_classes()
        threshold = self.novelty_.calibration.threshold(rate)
        return self.unknown_scores(images) > threshold

    def unknown_refusal(self, rate: float = FALSE_ALARMS) -> str | None:
        """Return why unknown images cannot be detected, or None.

        Args:
            rate: Share of false alarms.
        """
        self._require_classes()
        return self.novelty_.calibration.refusal(rate)

    def unknown_scores(self, images: Any) -> NDArray[np.float64]:
        """Return a score for each image that is high if it resembles none of the classes.

        Args:
            images: As for `predict`.
        """
        outputs = self._outputs(images)
        scores: NDArray[np.float64] = self.novelty_.scores(outputs.features, self.log_probabilities(outputs)).numpy()
        return scores

    def features(self, images: Any) -> NDArray[np.float32]:
        """Return the features of images, (n, d): the signed pooled vectors that predictors, herding and losses read.

        Args:
            images: As for `predict`.
        """
        features: NDArray[np.float32] = self._outputs(images).features.numpy()
        return features

    def predict_items(
        self,
        items: Sequence[Item],
        names: Sequence[str],
        *,
        top: int = 5,
        unknown: bool | float = False,
        progress: Progress = no_progress,
    ) -> Iterator[ImagePrediction]:
        """Predict images one after another; an unreadable image does not stop the others.

        Args:
            items: The images.
            names: Name of each image in its prediction.
            top: Number of labels per image.
            unknown: Whether to report images that resemble no class, or the share of false alarms.
            progress: Called with a description, the number of images done and the total.
        """
        self._require_classes()
        size = 4 * self.reader_.batch_size  # the reader decodes some images while the network runs on others
        rate = FALSE_ALARMS if unknown is True else float(unknown)
        threshold = self.novelty_.calibration.threshold(rate) if rate else None
        for start in range(0, len(items), size):
            done = partial(_progress_from, progress, start, len(items))
            outputs = self.reader_.read(items[start : start + size], done)
            log_probabilities = self.log_probabilities(outputs)
            best = iter(self._best(log_probabilities, top))
            scores: Iterator[float | None] = iter([None] * len(outputs.readable))
            if threshold is not None:
                scores = iter(self.novelty_.scores(outputs.features, log_probabilities).tolist())
            for index, name in enumerate(names[start : start + size]):
                if index in outputs.errors:
                    yield ImagePrediction(name, error=str(outputs.errors[index]))
                else:
                    score = next(scores)
                    flag = None if score is None or threshold is None else score > threshold
                    yield ImagePrediction(name, tuple((str(label), p) for label, p in next(best)), flag, score)

    def suggest(self, images: Any, count: int = 20) -> list[Suggestion]:
        """Rank unlabelled images by how useful their labels are: unsure predictions, and images that differ.

        Args:
            images: As for `predict`.
            count: Number of images to suggest.

        Returns:
            Suggestions, best first, followed by unreadable images with their error.
        """
        from .suggest import suggest_items

        self._require_classes()
        items = as_items(images, self.reader_.format.channels)
        return suggest_items(self, items, [item_name(items, index) for index in range(len(items))], count)

    def export(self, out: str | Path, to: str = "onnx") -> Path:
        """Write the model to one file for other programs, with normalisation, classifier and class names.

        Args:
            out: The file; an existing one is replaced.
            to: `onnx`, or `pt2` for `torch.export`.

        Returns:
            The path of the file.

        Raises:
            RunFailed: The file gives other probabilities than the model; it is not kept.
        """
        from .export import export

        self._require_classes()
        return export(self, to, Path(out))

    def _outputs(self, images: Any) -> ImageOutputs:
        """Features and logits of images, from one pass of the network."""
        self._require_classes()
        if self.backbone is None:
            from sklearn.utils.validation import validate_data

            X = validate_data(self, images, dtype=np.float32, reset=False)
            return ImageOutputs(torch.from_numpy(np.array(X)), torch.empty(len(X), 0))
        outputs = self.reader_.read(as_items(images, self.reader_.format.channels))
        outputs.raise_first_error()
        return outputs

    def log_probabilities(self, outputs: ImageOutputs) -> Tensor:
        """Return log-probabilities, (n, classes) float64.

        Args:
            outputs: Outputs of the network for n images.
        """
        if self.predictor_ is None:
            values = outputs.logits.double().log_softmax(dim=1)
        else:
            values = self.predictor_.log_probabilities(outputs.features)
        if not bool(values.isfinite().all()):
            raise RunFailed("The model computed values that are not finite: its weights are damaged or too large.")
        return values

    @property
    def novelty_(self) -> NoveltyDetector:
        """Detector of images that resemble none of the classes; computed when first needed."""
        if self._novelty is None:
            self._novelty = NoveltyDetector(list(self.statistics_.values()), self.state_.completed.novelty)
        return self._novelty

    def _best(self, log_probabilities: Tensor, k: int) -> list[list[tuple[Label, float]]]:
        probabilities = log_probabilities.exp().numpy()
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
        labels = self.classes_.tolist()
        return [[(labels[i], float(row[i])) for i in best] for row, best in zip(probabilities, order, strict=True)]

    def _require_classes(self) -> None:
        if not hasattr(self, "classes_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("This model has learned nothing yet: call learn or fit first.")
        if not len(self.classes_):
            raise UserError("This model has no classes: learn some first.")


def _progress_from(progress: Progress, start: int, total: int, _: str, done: int, __: int) -> None:
    """Report the progress of reading a part of the images as that of predicting all of them."""
    progress("predicting", start + done, total)
