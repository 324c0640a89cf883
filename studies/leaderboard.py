"""Writes docs/leaderboard.md from studies/records. `--check` only compares.

Runs accumulate: methods without a record are named below the table, and intervals are over the seeds there are.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from read_records import LAST, RECORDS, Row, by_seed, markdown, read

from cscct.analysis.statistics import AVERAGE, half_interval, spread
from cscct.methods import METHODS, parse_method
from cscct.yamltext import read_config

STUDIES = Path(__file__).parent
PAGE = STUDIES.parent / "docs" / "leaderboard.md"
# Title, studies with the methods, and records. Of two records of a method, the first one counts.
PARTS = (
    ("From scratch", ("leaderboard", "leaderboard-foster"), ("leaderboard",)),
    (
        "Pretrained top",
        ("leaderboard-pretrained", "leaderboard-pretrained-linear", "pretrained"),
        ("leaderboard-pretrained", "pretrained"),
    ),
)
HEADER = ("method", "family", "seeds", "average", "last", "parameters", "kept", "seconds")
INTRODUCTION = """# Leaderboard

<!-- Written by studies/leaderboard.py from studies/records: run `make evidence`. -->

Every method in two settings that one core can afford, sorted by average incremental accuracy. The values are not those
of the papers, which train larger networks for longer: compare methods within a table only. Runs are added as they
finish; a single seed orders methods only roughly.

- *average*, *last*: average incremental accuracy and accuracy after the last task on all classes, in percent, with the
  predictor of the method; mean over seeds, with a 95 % interval (Student's t) from two seeds on.
- *parameters*: of the final network, including parts that grew. *kept*: what is kept for the next task besides this
  network: exemplars as 8-bit pixels, stored targets and the state of the extension.
- *seconds*: median time of all tasks but the first on one core. The machine was shared with other work, so it is an
  upper bound.
"""
SETTINGS = {
    "From scratch": """20 classes of CIFAR-100 in order seed-1993, 10 first and then 5 a task; all 500 training images a
class, ResNet-20, 20 epochs a task, 20 exemplars a class. Seeds change weights and batches. Optimiser, batch size and
additional stages are those of each method's recipe for CIFAR-100; schedules are scaled to 20 epochs, and FOSTER's
compression to 15. Commands: `cscct sweep studies/leaderboard.yaml` and `cscct sweep studies/leaderboard-foster.yaml`.
The copy of CIFAR-100 has its test images in another order than the published file, which `cscct` warns about.
""",
    "Pretrained top": """All 100 classes of CIFAR-100 at 96 pixels, 50 first and then 10 a task; 100 training images a
class, the upper part of EfficientNet-Lite0, 20 exemplars a class. Seeds change class order, weights and batches. Runs
of [the study of CSCCT](evidence.md) in the same setting are included; they recorded no parameters, memory and time.
The learning rate is 0.05 for cosine classifiers and `icarl-bce`, and 0.01 for other linear ones, which diverge at 0.05.
Commands:
`cscct sweep studies/leaderboard-pretrained.yaml` and `cscct sweep studies/leaderboard-pretrained-linear.yaml`.
""",
}


def methods_of(studies: Sequence[str]) -> list[str]:
    """Return the methods of several studies, each once."""
    return list(dict.fromkeys(name for study in studies for name in read_config(STUDIES / f"{study}.yaml")["methods"]))


def rows_of(records: Sequence[str]) -> list[Row]:
    """Return the finished runs in several records that exist, with one row for each method and seed."""
    rows: dict[tuple[str, str], Row] = {}
    for name in records:
        for row in read(name) if (RECORDS / f"{name}.csv").exists() else ():
            rows.setdefault((row["method"], row["seed"]), row)
    return list(rows.values())


def table(methods: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the table of the methods with finished runs, the best one first.

    Args:
        methods: Names of the methods.
        rows: Finished runs.
    """
    averages = {method: list(by_seed(rows, method, AVERAGE).values()) for method in methods}
    lines = []
    for method in sorted(filter(averages.get, methods), key=lambda name: -spread(averages[name]).mean):
        last = list(by_seed(rows, method, LAST).values())
        costs = (
            median(rows, method, "parameters", lambda value: f"{value:,.0f}"),
            median(rows, method, "kept_bytes", lambda value: f"{value / 1e6:.2f} MB"),
            median(rows, method, "seconds_after_first", lambda value: f"{value:.0f}"),
        )
        family, seeds = parse_method(method)[0].family, str(len(averages[method]))
        lines.append([f"`{method}`", family, seeds, with_interval(averages[method]), with_interval(last), *costs])
    return markdown(HEADER, lines)


def with_interval(values: Sequence[float]) -> str:
    """Return the mean and its 95 % interval, such as `61.2 [58.9, 63.5]`, or the value of one seed."""
    stats = spread(values)
    half = half_interval(stats.deviation, len(values))
    return f"{stats.mean:.1f}" + ("" if half is None else f" [{stats.mean - half:.1f}, {stats.mean + half:.1f}]")


def median(rows: Sequence[Row], method: str, column: str, text: Callable[[float], str]) -> str:
    """Return the median of a column as a text; empty if no run of the method recorded it."""
    recorded = [float(row[column]) for row in rows if row["method"] == method and row.get(column)]
    return text(statistics.median(recorded)) if recorded else ""


def page() -> str:
    """Return the page as Markdown."""
    text = INTRODUCTION
    for title, studies, records in PARTS:
        methods, rows = methods_of(studies), rows_of(records)
        run = {row["method"] for row in rows}
        notes = ""
        for note, names in (
            ("Not run yet", [name for name in methods if name not in run]),
            ("Not part of this table", sorted(METHODS.keys() - set(methods))),
        ):
            notes += f"\n{note}: {', '.join(f'`{name}`' for name in names)}.\n" if names else ""
        results = table(methods, rows) if run else "No run has finished yet.\n"
        text += f"\n## {title}\n\n{SETTINGS[title]}\n{results}{notes}"
    return text


def main() -> int:
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
