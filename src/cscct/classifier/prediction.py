"""What a model says of many image files, each on its own: one that cannot be read does not stop the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.registry import Progress, no_progress
from ..errors import UserError

BATCH = 32


class ImageFile(NamedTuple):
    """A file, and what it is called in the answer."""

    path: Path
    name: str


class Model(Protocol):
    """What `cscct.load` gives."""

    class_names: tuple[str, ...]

    def predict_proba(self, images: Any) -> NDArray[Any]: ...

    def features(self, images: Any) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Prediction:
    """Of one image: classes and scores, best first, or what is wrong with it."""

    image: str
    best: tuple[tuple[str, float], ...] = ()
    unknown: bool | None = None  # like nothing learned; None: not asked
    error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As `cscct predict --json` prints it."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        asked = {} if self.unknown is None else {"unknown": self.unknown}
        return {"image": self.image, "predictions": [{"label": n, "score": s} for n, s in self.best], **asked}


def predict_files(
    model: Model, files: Sequence[ImageFile], *, top: int = 5, unknown: bool = False, progress: Progress = no_progress
) -> Iterator[Prediction]:
    """One prediction for each file, in order. unknown: also whether it is like nothing that was learned."""
    if getattr(model, "backbone", "") is None:
        raise UserError("This model reads features, not images: use it in Python, by IncrementalClassifier.load.")
    if not model.class_names:  # or says so itself
        raise UserError("This model has no classes: learn some first.")
    if unknown and not hasattr(model, "unknown"):
        raise UserError("--unknown needs a model that `cscct learn` made; a run does not store what it takes.")
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        try:
            found = _predict(model, batch, top, unknown)
        except UserError:  # of some of them; those are found by asking one by one
            found = [_predict_one(model, file, top, unknown) for file in batch]
        yield from found
        progress("predicting", start + len(batch), len(files))


def _predict_one(model: Model, file: ImageFile, top: int, unknown: bool) -> Prediction:
    try:
        return _predict(model, [file], top, unknown)[0]
    except UserError as error:
        return Prediction(file.name, error=str(error))


def _predict(model: Model, files: Sequence[ImageFile], top: int, unknown: bool) -> list[Prediction]:
    images: Any = [file.path for file in files]
    if unknown:
        images = model.features(images)  # one pass of the network for both questions
    probabilities = model.predict_proba(images)
    strange = model.unknown(images) if unknown else [None] * len(files)  # type: ignore[attr-defined]
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    return [
        Prediction(
            file.name,
            tuple((str(model.class_names[column]), float(row[column])) for column in columns),
            None if new is None else bool(new),
        )
        for file, row, columns, new in zip(files, probabilities, order, strange, strict=True)
    ]
