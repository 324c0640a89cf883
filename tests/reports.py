"""Reports of synthetic runs, written once per session for all tests that only read them.

Test modules import the fixtures they use.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from cscct.reporting import write_report
from synthetic import make_run

NAMES = ['<b>"a&b"</b>', "$x_1$ and $y$", "_hidden", "数字", "a very long name of a class that does not end", *"56789"]
FIXED = "data.order=natural"


@dataclass(frozen=True)
class Report:
    runs: Path
    out: Path
    warnings: list[str]

    @property
    def html(self) -> str:
        return (self.out / "index.html").read_text(encoding="utf-8")


@cache
def _two_groups(folder: Path) -> Report:
    """Two groups of two seeds with the same class order and unusual class names, and an unfinished run."""
    for method in ("lucir+cscct", "lucir"):
        for seed in (1, 2):
            make_run(folder / "runs" / f"{method}-seed{seed}", method, "digits", FIXED, seed=seed, names=NAMES)
    make_run(folder / "runs" / "cut", "lucir", "digits", FIXED, seed=3, names=NAMES, done=2, status="running")
    warnings: list[str] = []
    write_report([folder / "runs"], folder / "out", title="<i>Title</i>", warn=warnings.append)
    return Report(folder / "runs", folder / "out", warnings)


@cache
def _one_run(folder: Path) -> Report:
    make_run(folder / "run", "podnet+cscct")
    warnings: list[str] = []
    write_report([folder / "run"], folder / "out", log_axis=True, warn=warnings.append)
    return Report(folder / "run", folder / "out", warnings)


@pytest.fixture(scope="session", name="report")
def report_fixture(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return _two_groups(tmp_path_factory.getbasetemp() / "two-groups")


@pytest.fixture(scope="session", name="one_run")
def one_run_fixture(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return _one_run(tmp_path_factory.getbasetemp() / "one-run")
