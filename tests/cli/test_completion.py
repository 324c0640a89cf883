"""Shell completion."""

import subprocess
from collections.abc import Callable

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run luc", ["lucir", "lucir+csc", "lucir+ct", "lucir+cscct", "lucir+balanced", "lucir+cwd"]),
        ("run lucir cifar100", ["cifar100"]),
        ("run lucir digits --set train.schedule.f", ["train.schedule.factor="]),
        ("data check imagenet", ["imagenet-subset"]),
        ("conf", ["config"]),
        ("for", ["forget"]),
        ("learn model images --meth", ["--method"]),
    ],
)
def test_names_are_completed(line: str, expected: list[str], cscct: Call) -> None:
    line = f"cscct {line}"
    done = cscct(_CSCCT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split()) - 1))
    assert done.stdout.split() == expected, done.stderr
