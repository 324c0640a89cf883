"""What the shell completes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("run luc", ["lucir", "lucir+csc", "lucir+ct", "lucir+cscct", "lucir+balanced"]),
        ("run lucir cif", ["cifar100"]),
        ("run lucir digits --set train.schedule.f", ["train.schedule.factor="]),
        ("data check imagenet", ["imagenet-subset"]),
        ("conf", ["config"]),
        ("for", ["forget"]),
        ("learn model images --pred", ["--predictor"]),
    ],
)
def test_names_are_completed(words: str, expected: list[str], cscct: Call) -> None:
    line = f"cscct {words}"
    done = cscct(_CSCCT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split()) - 1))
    assert done.stdout.split() == expected, done.stderr
