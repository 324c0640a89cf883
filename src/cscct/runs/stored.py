"""Validation of a stored `result.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from ..metrics import StoredSummary, cumulative
from ..storage import CHECKSUM, json_sha256


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _TaskEntry(_Stored):
    classes: list[str]
    accuracy: dict[str, float]
    seconds: float


class _Accuracies(_Stored):
    task_sizes: list[int]
    matrix: dict[str, list[list[float]]]
    summary: dict[str, dict[str, float | None]]

    def check(self, predictor: str, done: int) -> None:
        """Raise an error if the accuracies of a predictor after `done` tasks are incomplete."""
        cumulative(self.matrix[predictor], self.task_sizes)  # shapes and sizes
        _ = [self.summary[predictor][name] for name in StoredSummary.__annotations__]
        if len(self.matrix[predictor]) != done:
            raise ValueError("tasks and accuracies do not match")


class _StoredResult(_Accuracies):
    status: Literal["running", "finished", "failed"]
    method: str
    dataset: str
    seed: int
    headline: str
    tasks: list[_TaskEntry]
    validation: _Accuracies | None = None

    @model_validator(mode="after")
    def _consistent(self) -> _StoredResult:
        done, names = len(self.tasks), [name for task in self.tasks for name in task.classes]
        if self.status == "finished" and done != len(self.task_sizes):
            raise ValueError("the status is finished, but tasks are missing")
        if done:
            for accuracies in filter(None, (self, self.validation)):
                accuracies.check(self.headline, done)
            _ = [task.accuracy[self.headline] for task in self.tasks]
            if not all(task.classes for task in self.tasks):
                raise ValueError("tasks and accuracies do not match")
        if len(set(names)) != len(names):
            raise ValueError("a class name occurs twice")
        return self


def check_result(result: Any) -> None:
    """Raise a `ValueError` if a stored result is incomplete or inconsistent. The message is a clause."""
    if not isinstance(result, dict):
        raise ValueError("it does not contain the result of a run")
    try:
        _StoredResult.model_validate(result)
    except KeyError as error:
        raise ValueError(f"{error} is missing") from error
    except ValidationError as error:
        finding = error.errors()[0]
        place = ".".join(map(str, finding["loc"]))
        raise ValueError(f"{place}: {finding['msg']}" if place else finding["msg"]) from error


def result_sha256(result: Mapping[str, Any]) -> str:
    """Return the checksum of a result without times and environment."""
    tasks = [{key: value for key, value in task.items() if key != "seconds"} for task in result["tasks"]]
    rest = {key: value for key, value in result.items() if key not in (CHECKSUM, "environment", "tasks")}
    return json_sha256([rest, tasks])


def check_result_sha256(result: Any) -> None:
    """Raise a `ValueError` if the checksum of a stored result differs. Results of version 0.2 have none."""
    try:
        changed = CHECKSUM in result and result[CHECKSUM] != result_sha256(result)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("it does not contain the result of a run") from error
    if changed:
        raise ValueError("the checksum of its content differs")
