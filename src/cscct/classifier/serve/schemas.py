"""What the API answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

Name = Annotated[str, Field(min_length=1, max_length=1000)]  # of a class


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


class ClassInfo(BaseModel):
    """A class that the model knows. right of count: photographs recognised in cross-validation at the last step."""

    name: str
    images: int
    exemplars: int = Field(description="photographs kept of it: /api/exemplars/{class_index}/{number}")
    right: int | None = None
    count: int | None = None


class VersionInfo(BaseModel):
    """A state of the model that can be restored."""

    number: int
    created: str
    message: str
    classes: int
    images: int
    current: bool


class ModelInfo(BaseModel):
    """The model that answers now."""

    name: str
    version: int = Field(description="0 while nothing is learned")
    classes: list[ClassInfo]
    versions: list[VersionInfo]
    report: dict[str, Any] | None = Field(None, description="what the last learning step did")
    trouble: str | None = Field(None, description="why a newer version cannot be used")
    limits: dict[str, float]


class Prediction(BaseModel):
    label: str
    score: float


class Answer(BaseModel):
    """What an image shows, best first. unknown: it is like nothing learned."""

    filename: str
    predictions: list[Prediction]
    unknown: bool


class Answers(BaseModel):
    version: int
    answers: list[Answer]


class StagedInfo(BaseModel):
    """A photograph that waits for the next learning step."""

    id: str
    label: str
    filename: str
    bytes: int
    created: float


class StagedList(BaseModel):
    staged: list[StagedInfo]


class JobInfo(BaseModel):
    """The learning step that runs, or the last one."""

    state: Literal["idle", "running", "done", "failed"] = "idle"
    what: str = ""
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None
    error: str | None = None
    version: int | None = None


class MapClass(BaseModel):
    name: str
    x: float
    y: float
    points: list[tuple[float, float]]
    exemplars: int


class FeatureMap(BaseModel):
    """Class means and single photographs, projected onto the plane in which the class means differ most.

    share: how much of the variance of the class means the two axes show.
    """

    version: int
    share: float
    classes: list[MapClass]


class Restore(BaseModel):
    """Which version to go back to, or forward."""

    version: int = Field(ge=1, le=1_000_000_000)


class Forget(BaseModel):
    """Which classes to remove."""

    classes: list[Name] = Field(min_length=1, max_length=1000)


class Rename(BaseModel):
    """Which class to give another name."""

    old: Name
    new: Name
