"""The current version of a model folder, reloaded when it changes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from ...data.encoding import media_type
from ...errors import RunFailed, UserError
from ..estimator import IncrementalClassifier
from ..labels import nearest
from ..records import Version
from ..store import ModelFolder
from ..unknown import NoveltyCalibration
from ..versions import MODEL, is_model_folder
from .feature_map import feature_map
from .schemas import Answer, ClassInfo, FeatureMap, ScoredLabel, VersionInfo
from .uploads import Upload, image_errors


@dataclass(frozen=True)
class LoadedVersion:
    """A version in memory.

    Attributes:
        number: Number of the version; 0 before the first learning step.
        model: The model; None before the first learning step.
        versions: All versions of the folder, oldest first.
        stamp: State of model.json when the version was loaded.
    """

    number: int
    model: IncrementalClassifier | None
    versions: list[Version]
    stamp: object

    def classes(self) -> list[ClassInfo]:
        """Return the classes of the model with their cross-validated accuracy."""
        if self.model is None:
            return []
        after = (self.report() or {}).get("after", {})
        infos = []
        for label in self.model.classes_.tolist():
            right, count = after.get(str(label), (None, None))
            images = self.model.statistics_[label].count
            exemplars = len(self.model.exemplars_.get(label, ()))
            infos.append(ClassInfo(name=str(label), images=images, exemplars=exemplars, right=right, count=count))
        return infos

    def report(self) -> dict[str, Any] | None:
        """Return the report of the last learning step."""
        report = getattr(self.model, "report_", None)
        return None if report is None else report.as_dict()

    def unknown(self) -> NoveltyCalibration | None:
        """Return how well unknown photos are detected; None if the model has no classes."""
        return self.model.novelty_.calibration if self.model is not None and len(self.model.classes_) else None

    def version_infos(self) -> list[VersionInfo]:
        """Return all versions, newest first."""
        return [_version_info(version) for version in reversed(self.versions)]


class CurrentModel:
    """The last version that was loaded successfully. Thread-safe.

    Args:
        path: Path of the model folder.
    """

    def __init__(self, path: Path) -> None:
        self.folder = ModelFolder(path)
        self.trouble: str | None = None
        self._mutex = threading.Lock()
        self._loaded = LoadedVersion(0, None, [], None)
        self._map: tuple[IncrementalClassifier, FeatureMap] | None = None
        self._map_mutex = threading.Lock()

    def get(self) -> LoadedVersion:
        """Return the current version.

        The first caller that sees a newer version loads it. Concurrent callers get the previous version meanwhile.
        """
        if self._stamp() != self._loaded.stamp and self._mutex.acquire(blocking=self._loaded.model is None):
            try:
                self._load()
            finally:
                self._mutex.release()
        return self._loaded

    def refresh(self) -> None:
        """Load the current version if it changed."""
        with self._mutex:
            self._load()

    def _load(self) -> None:
        stamp = self._stamp()
        if stamp == self._loaded.stamp:
            return
        try:
            exists = is_model_folder(self.folder.path)
            versions = self.folder.versions() if exists else []
            number = next((version.number for version in versions if version.current), 0)
            model = self.folder.load() if exists else None
            if model is not None and model.backbone is None:
                raise UserError(
                    f"The model in {self.folder.path} classifies feature vectors, not images, and cannot be served."
                )
        except (UserError, RunFailed) as error:
            if self._loaded.stamp is None:  # no earlier version to fall back to
                raise
            self.trouble = str(error)
            self._loaded = replace(self._loaded, stamp=stamp)
            return
        self.trouble = None
        self._loaded = LoadedVersion(number, model, versions, stamp)

    def _stamp(self) -> object:
        """Return the state of model.json, which changes whenever another version becomes the current one."""
        try:
            status = (self.folder.path / MODEL).stat()
        except FileNotFoundError:
            return "missing"
        return status.st_mtime_ns, status.st_ino, status.st_size

    def model(self) -> tuple[int, IncrementalClassifier]:
        """Return the current version number and model.

        Raises:
            HTTPException: 409 if the model has no classes.
        """
        loaded = self.get()
        if loaded.model is None or not len(loaded.model.classes_):
            raise HTTPException(409, "The model has no classes: stage photos of a class and learn them first.")
        return loaded.number, loaded.model

    def check_class(self, name: str) -> None:
        """Check that the model has a class.

        Raises:
            HTTPException: 404 if it does not.
        """
        known = self.model()[1].class_names
        if name not in known:
            raise HTTPException(404, f"The model has no class {name!r}. {nearest(name, known)}")

    def classify(self, uploads: Sequence[Upload], top: int) -> tuple[int, list[Answer]]:
        """Classify images.

        Args:
            uploads: Uploaded image files.
            top: Number of classes per image.

        Returns:
            Version number and one answer per image.

        Raises:
            HTTPException: 409 if the model has no classes, 422 if an image cannot be decoded.
        """
        number, model = self.model()
        names = [upload.filename for upload in uploads]
        unknown = model.unknown_refusal() is None
        predictions = model.predict_items([upload.path for upload in uploads], names, top=top, unknown=unknown)
        answers = []
        for upload, prediction in zip(uploads, predictions, strict=True):
            if prediction.error is not None:
                with image_errors(upload.path, upload.filename):
                    raise UserError(prediction.error)
            best = [ScoredLabel(label=label, score=score) for label, score in prediction.best]
            score = prediction.unknown_score
            flag = bool(prediction.unknown)
            answers.append(Answer(filename=upload.filename, predictions=best, unknown=flag, unknown_score=score))
        return number, answers

    def exemplar(self, index: int, number: int) -> tuple[bytes, str]:
        """Return an exemplar and its media type.

        Args:
            index: Position in the list of classes.
            number: Position in the exemplars of the class.

        Raises:
            HTTPException: 404 if the exemplar does not exist.
        """
        model = self.model()[1]
        exemplars = model.exemplars_.get(model.classes_[index], ()) if index < len(model.classes_) else ()
        if number >= len(exemplars):
            raise HTTPException(404, "This exemplar does not exist.")
        return exemplars[number], media_type(exemplars[number])

    def map(self) -> FeatureMap:
        """Return the feature map of the current version."""
        number, model = self.model()
        with self._map_mutex:  # computed once, because it takes several times the memory of the features
            if self._map is None or self._map[0] is not model:
                self._map = model, feature_map(number, model)
            return self._map[1]


def _version_info(version: Version) -> VersionInfo:
    return VersionInfo(
        number=version.number,
        created=str(version.created),
        message=version.message,
        classes=len(version.classes),
        images=version.images,
        current=version.current,
    )
