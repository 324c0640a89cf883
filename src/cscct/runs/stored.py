"""What a `result.json` has to hold, so that a damaged one is noticed where it is read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ..metrics import Summary, cumulative


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _TaskEntry(_Stored):
    classes: list[str]
    accuracy: dict[str, float]
    seconds: float


class _StoredResult(_Stored):
    status: Literal["running", "finished", "failed"]
    method: str
    dataset: str
    seed: int
    headline: str
    tasks: list[_TaskEntry]
    task_sizes: list[int]
    matrix: dict[str, list[list[float]]]
    summary: dict[str, dict[str, float | None]]

    @model_validator(mode="after")
    def _fits_together(self) -> _StoredResult:
        done, names = len(self.tasks), [name for task in self.tasks for name in task.classes]
        if self.status == "finished" and done != len(self.task_sizes):
            raise ValueError("it is called finished, and tasks are missing")
        if done:
            cumulative(self.matrix[self.headline], self.task_sizes)  # shapes and sizes
            _ = [self.summary[self.headline][name] for name in Summary.__annotations__]
            _ = [task.accuracy[self.headline] for task in self.tasks]
            if len(self.matrix[self.headline]) != done or not all(task.classes for task in self.tasks):
                raise ValueError("tasks and accuracies do not fit together")
        if len(set(names)) != len(names):
            raise ValueError("a class name stands twice")
        return self


def check_result(result: Any) -> None:
    """Raises a `ValueError` that says in a few words what is wrong with a stored result."""
    if not isinstance(result, dict):
        raise ValueError("it does not hold the result of a run")
    try:
        _StoredResult.model_validate(result)
    except KeyError as error:
        raise ValueError(f"it lacks {error}") from error
    except ValidationError as error:
        finding = error.errors()[0]
        place = ".".join(map(str, finding["loc"]))
        raise ValueError(f"{place}: {finding['msg']}" if place else finding["msg"]) from error
