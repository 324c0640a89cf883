"""The model of a run as a classifier: it predicts as the run does, and learns more classes by their means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..predictors import ClassStatistics
from ..runs.model import TrainedModel, load_model
from .estimator import IncrementalClassifier
from .features import Extraction
from .images import Item, as_items, open_item
from .report import LearnReport

WEIGHT = 20  # images that the mean of a class of a run counts for, when more of the class are learned


class RunFeatures:
    """Features as the network of a run gives them, of images as it reads them."""

    def __init__(self, model: TrainedModel):
        self.model = model

    def extract(self, items: Sequence[Item], progress: Progress = no_progress) -> Extraction:
        """In order. Images that cannot be read are told in `errors`. Equal pictures are not looked for."""
        errors: dict[int, UserError] = {}
        good: dict[int, Path | Image.Image] = {}
        for index, item in enumerate(items):
            try:
                picture = open_item(item)[0]
                good[index] = item if isinstance(item, Path) else picture
            except UserError as error:
                errors[index] = error
        features = torch.from_numpy(self.model.features(list(good.values())))
        progress("reading images", len(items), len(items))
        return Extraction(features, list(good), errors, [str(index).encode() for index in good])


class RunClassifier(IncrementalClassifier):
    """A classifier whose network and first classes are those of a run. It is made by `IncrementalClassifier.load`."""

    @staticmethod
    def of(path: str | Path, device: str = "auto") -> RunClassifier:
        """The model of the finished run in a folder."""
        trained = load_model(path, device=device)
        model = RunClassifier("of a run", predictor="ncm", memory_mb=0, device=device)
        model._run, model._extractor = trained, RunFeatures(trained)  # type: ignore[assignment]
        means = zip(trained.class_names, trained.class_means, strict=True)
        model._keep({name: ClassStatistics.of(mean.expand(WEIGHT, -1)) for name, mean in means})
        note = f"The network and the class means of the run in {path}; more classes are learned by their means."
        model.report_ = LearnReport(new=list(trained.class_names), notes=[note])
        model.exemplars_, model.tuned_, model.history_ = {}, [], []
        return model

    def predict(self, X: Any) -> NDArray[Any]:
        """As the run does, until other classes are learned or some forgotten."""
        if not self._as_learned():
            return super().predict(X)
        place = {name: index for index, name in enumerate(self._run.class_names)}  # classes may have been renamed
        return self.classes_[[place[name] for name in self._run.predict(_readable(X)).tolist()]]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, classes), columns in the order of `classes_`."""
        if self._as_learned():
            return self._run.predict_proba(_readable(X)).astype(np.float64)
        return super().predict_proba(X)

    def save(self, path: str | Path, message: str = "") -> None:
        """Not possible: how a run prepares images is in its settings, which a model folder does not hold."""
        raise UserError(
            "The model of a run is not written to a model folder: it stays in its run folder. Start a model with the "
            "run's weights instead, as IncrementalClassifier(backbone='ARCHITECTURE:RUN_DIR/model.safetensors')."
        )

    save_pretrained = save

    def fit(self, X: Any, y: Any) -> IncrementalClassifier:
        """Not possible: the network of a run is kept, and what it has learned with it."""
        raise UserError("The model of a run cannot be fitted anew: use `learn`, or a new IncrementalClassifier.")

    def _as_learned(self) -> bool:
        self._require_classes()
        return all(step["action"] == "rename" for step in self.history_)

    def _check_values(self) -> None:
        super()._check_values()
        if self.predictor != "ncm" or self.finetune != "never" or self.memory_mb:
            raise UserError(
                "A run keeps the means of its classes alone: more can be learned with predictor='ncm', "
                "finetune='never' and memory_mb=0."
            )


def _readable(images: Any) -> list[Path | Image.Image]:
    """As `TrainedModel` takes them."""
    return [item if isinstance(item, Path) else open_item(item)[0] for item in as_items(images)]
