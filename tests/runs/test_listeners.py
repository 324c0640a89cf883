"""Listeners: which methods of which objects are called."""

from typing import Any

import pytest

from cscct.errors import UserError
from cscct.runs.listeners import Listener, Listeners


class Steps:
    """Records two events. Other public attributes are ignored."""

    epoch = 3  # not a method

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def step(self, *arguments: Any) -> None:
        self.calls.append(("step", *arguments))

    def skipped(self, images: int) -> None:
        self.calls.append(("skipped", images))

    def unrelated(self) -> None:
        raise AssertionError("not a method of a listener")


def test_each_listener_gets_the_events_it_has_methods_for() -> None:
    first, second = Steps(), Steps()
    both: Any = Listeners([first, Listener(), second])
    both.step("task", "train", 0, 1, 64, {})
    both.epoch({})
    both.skipped(5)
    assert first.calls == second.calls == [("step", "task", "train", 0, 1, 64, {}), ("skipped", 5)]


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (object(), r"no method of a listener: define at least one of run_started, .*found_finished"),
        (print, "no method of a listener"),
        (Steps, r"the class Steps: pass an object, Steps\(\)"),
    ],
)
def test_objects_that_are_no_listeners_are_user_errors(member: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Listeners([Listener(), member])
