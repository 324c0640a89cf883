"""Request and response schemas of the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

ClassName = Annotated[str, Field(min_length=1, max_length=1000)]


class ErrorDetail(BaseModel):
    """Error response."""

    detail: str = Field(description="Error message.")


class ClassInfo(BaseModel):
    """A class of the model."""

    name: str
    images: int = Field(description="Number of learned images.")
    exemplars: int = Field(description="Number of stored exemplars: /api/exemplars/{class_index}/{number}.")
    right: int | None = Field(None, description="Correct predictions in cross-validation after the last learning step.")
    count: int | None = Field(None, description="Images tested in cross-validation after the last learning step.")


class VersionInfo(BaseModel):
    """A stored version of the model."""

    number: int
    created: str = Field(description="Creation time (ISO 8601).")
    message: str
    classes: int = Field(description="Number of classes.")
    images: int = Field(description="Number of learned images.")
    current: bool


class ModelInfo(BaseModel):
    """The current model."""

    name: str = Field(description="Name of the model folder.")
    version: int = Field(description="Number of the current version; 0 before the first learning step.")
    classes: list[ClassInfo]
    versions: list[VersionInfo] = Field(description="All versions, newest first.")
    report: dict[str, Any] | None = Field(None, description="Report of the last learning step.")
    detects_unknown: bool = Field(description="Whether there are enough photos to detect unknown ones.")
    unknown_detection: float | None = Field(
        None, description="Share of photos of other classes that is expected to be detected; null if not estimated."
    )
    trouble: str | None = Field(None, description="Why a newer version could not be loaded.")
    limits: dict[str, float] = Field(description="Request limits of the server.")


class ScoredLabel(BaseModel):
    """A predicted class and its probability."""

    label: str
    score: float


class Answer(BaseModel):
    """Predictions for an image."""

    filename: str
    predictions: list[ScoredLabel] = Field(description="Most probable classes, best first.")
    unknown: bool = Field(description="Whether the image resembles none of the classes.")
    unknown_score: float | None = Field(
        None, description="Score that is high for images that resemble no class; null if there are too few photos."
    )


class Answers(BaseModel):
    """Predictions for all images of a request."""

    version: int = Field(description="Number of the version that made the predictions.")
    answers: list[Answer] = Field(description="One answer per image, in the order of the request.")


class StagedInfo(BaseModel):
    """A photo staged for the next learning step."""

    id: str
    label: str
    filename: str
    bytes: int
    created: float = Field(description="Upload time (Unix timestamp).")


class StagedList(BaseModel):
    """Staged photos."""

    revision: int = Field(description="Increases with every change of the staged photos.")
    staged: list[StagedInfo]


class JobInfo(BaseModel):
    """State of the running or last learning step."""

    state: Literal["idle", "running", "done", "failed"] = "idle"
    what: str = Field("", description="Current phase.")
    done: int = Field(0, description="Processed items of the current phase.")
    total: int = Field(0, description="Total items of the current phase.")
    seconds: float = Field(0.0, description="Elapsed time.")
    seconds_left: float | None = Field(None, description="Estimated remaining time of the current phase.")
    error: str | None = Field(None, description="Why the learning step failed.")
    version: int | None = Field(None, description="Number of the new version.")


class ServerState(BaseModel):
    """What pages poll to follow changes that others make."""

    version: int = Field(description="Number of the current version.")
    trouble: str | None = Field(None, description="Why a newer version could not be loaded.")
    staged_revision: int = Field(description="Increases with every change of the staged photos.")
    job: JobInfo


class MapClass(BaseModel):
    """A class in the feature map."""

    name: str
    x: float = Field(description="Position of the class mean.")
    y: float = Field(description="Position of the class mean.")
    points: list[tuple[float, float]] = Field(description="Positions of individual images.")
    exemplars: int = Field(description="Number of stored exemplars.")


class FeatureMap(BaseModel):
    """Two-dimensional projection of class means and individual images."""

    version: int = Field(description="Number of the projected version.")
    share: float = Field(description="Fraction of the variance explained by the two axes.")
    classes: list[MapClass]


class Restore(BaseModel):
    """Request to make a version the current one."""

    version: int = Field(ge=1, le=1_000_000_000)


class Forget(BaseModel):
    """Request to remove classes."""

    classes: list[ClassName] = Field(min_length=1, max_length=1000)


class Rename(BaseModel):
    """Request to rename a class."""

    old: ClassName
    new: ClassName


class Merge(BaseModel):
    """Request to merge classes into another class."""

    classes: list[ClassName] = Field(min_length=1, max_length=1000)
    into: ClassName


PhotoId = Annotated[str, Field(min_length=4, max_length=64)]


class Photos(BaseModel):
    """Request to change learned photos."""

    ids: list[PhotoId] = Field(min_length=1, max_length=1000)


class MovePhotos(Photos):
    """Request to move learned photos to a class."""

    label: ClassName


class PhotoInfo(BaseModel):
    """A learned photo."""

    id: str = Field(description="Identity; empty for photos of models of earlier versions, which cannot be changed.")
    name: str = Field(description="Name of the file.")
    label: str
    predicted: str = Field(description="The class to which a classifier computed without the photo assigns it.")
    probability: float = Field(description="Probability of `label`.")
    predicted_probability: float = Field(description="Probability of `predicted`.")
    kind: str = Field(description="`mislabelled`, `not recognised`, `recognised` or `not tested`.")
    confirmed: bool = Field(description="Whether the user confirmed the label.")


class PhotoList(BaseModel):
    """A part of a list of learned photos."""

    version: int = Field(description="Number of the version.")
    total: int = Field(description="Number of photos in the whole list.")
    photos: list[PhotoInfo]


class NeighbourInfo(BaseModel):
    """A stored image that resembles a photo: /api/exemplars/{class_index}/{number}."""

    label: str
    class_index: int
    number: int
    similarity: float = Field(description="Cosine of the features.")


class ExplanationInfo(BaseModel):
    """The stored images that resemble a photo most."""

    version: int = Field(description="Number of the version.")
    label: str = Field(description="The most probable class.")
    probability: float
    same: list[NeighbourInfo] = Field(description="Images of this class, most similar first.")
    others: list[NeighbourInfo] = Field(description="Images of other classes, most similar first.")


class Export(BaseModel):
    """Request to export the model."""

    format: Literal["onnx", "pt2"] = "onnx"


class QueuedInfo(BaseModel):
    """A photo of the list of `cscct suggest` that the server was started with."""

    number: int = Field(description="Position in the list: /api/queue/{number}.")
    name: str = Field(description="Name of the file.")
    label: str = Field(description="The most probable class when the list was made.")


class QueueInfo(BaseModel):
    """Photos to label."""

    photos: list[QueuedInfo]
