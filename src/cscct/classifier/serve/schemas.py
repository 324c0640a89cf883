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
