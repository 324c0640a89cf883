"""The model that answers: the current version of a folder, loaded again when there is a newer one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from ...errors import RunFailed, UserError
from ..estimator import IncrementalClassifier
from ..labels import nearest
from ..store import MODEL, ModelFolder, Version, is_model_folder
from .feature_map import feature_map
from .schemas import Answer, ClassInfo, FeatureMap, Prediction, VersionInfo
from .uploads import Upload, explained


@dataclass(frozen=True)
class Loaded:
    """A version in memory. model: None while nothing is learned. stamp: of the file that told which one is current."""

    number: int
    model: IncrementalClassifier | None
    versions: list[Version]
    stamp: object

    def classes(self) -> list[ClassInfo]:
        if self.model is None:
            return []
        after = (self.report() or {}).get("after", {})
        found = []
        for label in self.model.classes_.tolist():
            right, count = after.get(str(label), (None, None))
            images = self.model.statistics_[label].count
            kept = len(self.model.exemplars_.get(label, ()))
            found.append(ClassInfo(name=str(label), images=images, exemplars=kept, right=right, count=count))
        return found

    def report(self) -> dict[str, Any] | None:
        """What the last learning step did."""
        report = getattr(self.model, "report_", None)
        return None if report is None else report.as_dict()

    def version_infos(self) -> list[VersionInfo]:
        """Newest first."""
        return [_version_info(one) for one in reversed(self.versions)]


class CurrentModel:
    """Keeps the last version that could be loaded. Its methods may be called from several threads."""

    def __init__(self, path: Path) -> None:
        self.folder = ModelFolder(path)
        self.trouble: str | None = None
        self._mutex = threading.Lock()
        self._loaded = Loaded(0, None, [], None)

    def get(self) -> Loaded:
        """Whoever finds a newer version loads it; others are answered by the one before meanwhile."""
        if self._stamp() != self._loaded.stamp and self._mutex.acquire(blocking=self._loaded.model is None):
            try:
                self._load()
            finally:
                self._mutex.release()
        return self._loaded

    def refresh(self) -> None:
        """Loads the newest version before it returns."""
        with self._mutex:
            self._load()

    def _load(self) -> None:
        stamp = self._stamp()
        if stamp == self._loaded.stamp:
            return
        try:
            versions = self.folder.versions() if is_model_folder(self.folder.path) else []
            number = next((one.number for one in versions if one.current), 0)
            model = self.folder.load(number) if number else None
            if model is not None and model.backbone is None:
                raise UserError(f"The model in {self.folder.path} reads features, not images: it cannot be served.")
        except (UserError, RunFailed) as error:
            if self._loaded.stamp is None:  # nothing to answer with
                raise
            self.trouble = str(error)
            self._loaded = replace(self._loaded, stamp=stamp)
            return
        self.trouble = None
        self._loaded = Loaded(number, model, versions, stamp)

    def _stamp(self) -> object:
        """Changes whenever another version becomes the current one."""
        try:
            found = (self.folder.path / MODEL).stat()
        except FileNotFoundError:
            return "nothing"
        return found.st_mtime_ns, found.st_ino, found.st_size

    def model(self) -> tuple[int, IncrementalClassifier]:
        """The number of the version that answers, and the model."""
        loaded = self.get()
        if loaded.model is None or not len(loaded.model.classes_):
            raise HTTPException(409, "The model has no classes: add photographs to a class, and learn them.")
        return loaded.number, loaded.model

    def check_class(self, name: str) -> None:
        """Refuses the name of a class that the model does not know."""
        known = self.model()[1].class_names
        if name not in known:
            raise HTTPException(404, f"There is no class {name!r} in this model. {nearest(name, known)}")

    def classify(self, uploads: Sequence[Upload], top: int) -> tuple[int, list[Answer]]:
        """The number of the version that answers, and an answer an image."""
        number, model = self.model()
        answers = []
        for upload in uploads:
            with explained(upload.path, upload.filename):
                features = model.features([upload.path])
                (best,), (unknown,) = model.top(features, k=top), model.unknown(features)
            found = [Prediction(label=str(label), score=score) for label, score in best]
            answers.append(Answer(filename=upload.filename, predictions=found, unknown=bool(unknown)))
        return number, answers

    def exemplar(self, index: int, number: int) -> bytes:
        """A photograph that was kept, as JPEG."""
        model = self.model()[1]
        kept = model.exemplars_.get(model.classes_[index], ()) if index < len(model.classes_) else ()
        if number >= len(kept):
            raise HTTPException(404, "No photograph with this number is kept of this class.")
        return kept[number]

    def map(self) -> FeatureMap:
        number, model = self.model()
        return feature_map(number, model)


def _version_info(version: Version) -> VersionInfo:
    return VersionInfo(
        number=version.number,
        created=str(version.created),
        message=version.message,
        classes=len(version.classes),
        images=version.images,
        current=version.current,
    )
