"""Validation of result.json."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cscct.runs.stored import check_result
from synthetic import make_run

CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "method": lambda result: result.pop("method"),
    "status": lambda result: result.update(status="done"),
    "tasks are missing": lambda result: result["tasks"].pop(),
    "do not match": lambda result: result["tasks"][0].update(classes=[]),
    "tasks.1.accuracy": lambda result: result["tasks"][1].update(accuracy=None),
    "'apt' is missing": lambda result: result["summary"][result["headline"]].pop("apt"),
    "'elsewhere' is missing": lambda result: result.update(headline="elsewhere"),
    "occurs twice": lambda result: result["tasks"][1].update(classes=result["tasks"][0]["classes"]),
    "accuracy matrix": lambda result: result["matrix"][result["headline"]][1].pop(),
    "task_sizes": lambda result: result["task_sizes"].__setitem__(0, 0),
}


@pytest.mark.parametrize("message", CHANGES)
def test_an_inconsistent_result_is_rejected(message: str, tmp_path: Path) -> None:
    result = make_run(tmp_path / "run")
    check_result(result)
    changed = copy.deepcopy(result)
    CHANGES[message](changed)
    with pytest.raises(ValueError, match=message):
        check_result(changed)


def test_a_result_without_a_finished_task_is_accepted(tmp_path: Path) -> None:
    check_result(make_run(tmp_path / "run", done=0, status="running"))
