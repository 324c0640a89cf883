"""Reads the records in studies/records, computes statistics over seeds and formats them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from cscct.analysis.statistics import AVERAGE, Difference, paired, spread

RECORDS = Path(__file__).parent / "records"
NAMES = {"icarl": "iCaRL", "lucir": "LUCIR", "podnet": "PODNet"}
BASES = tuple(NAMES)
REGIMES = {"from-scratch": "from scratch", "pretrained": "pretrained top", "digits": "digits"}
PREDICTIONS = {"classifier": "classifier", "nme": "nearest means", "lda": "LDA", "ridge": "ridge regression"}
LAST, HARMONIC = "last_accuracy", "harmonic mean of means"
Row = dict[str, str]


def read(name: str, variants: bool = False) -> list[Row]:
    """Return the finished runs of a study.

    Args:
        name: Name of the study.
        variants: Whether to include runs with settings that differ from the study.
    """
    return [row for row in read_csv(name) if row["status"] == "finished" and (variants or not row["variant"])]


def read_csv(name: str) -> list[Row]:
    """Return all rows of a file."""
    with (RECORDS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by_seed(rows: Sequence[Row], method: str, metric: str) -> dict[str, float]:
    """Return a metric of a method for each seed. Raise a `ValueError` if a seed has several rows."""
    selected = [row for row in rows if row["method"] == method and row[metric]]
    values = {row["seed"]: float(row[metric]) for row in selected}
    if len(values) < len(selected):
        raise ValueError(f"{method} has several rows for a seed: select variants and settings first.")
    return values


def common_seeds(rows: Sequence[Row], method: str, reference: str) -> int:
    """Return the number of seeds that two methods have in common."""
    return len(by_seed(rows, method, AVERAGE).keys() & by_seed(rows, reference, AVERAGE).keys())


def paired_by_seed(values: dict[str, float], reference: dict[str, float], name: str) -> Difference | None:
    """Return the paired difference over common seeds, or None without any. `name` is that of the reference."""
    seeds = sorted(values.keys() & reference.keys())
    return paired([values[seed] for seed in seeds], [reference[seed] for seed in seeds], name) if seeds else None


def difference(rows: Sequence[Row], method: str, reference: str, metric: str) -> Difference | None:
    """Return the paired difference between two methods."""
    return paired_by_seed(by_seed(rows, method, metric), by_seed(rows, reference, metric), reference)


def gain(rows: Sequence[Row], method: str, base: str) -> Difference | None:
    """Return the gain over the base in average incremental accuracy."""
    return difference(rows, method, base, gain_metric(rows, base))


def gain_metric(rows: Sequence[Row], base: str) -> str:
    """Return the metric that compares the variants of a base.

    With +balanced, the presets of iCaRL change the predictor from nearest means to the classifier, which is not a gain
    of the loss. All variants of iCaRL are therefore compared with the predictor that is better for plain iCaRL.
    """
    return best_metric(rows, base, ("nme", "classifier")) if base == "icarl" else AVERAGE


def best_metric(rows: Sequence[Row], method: str, predictors: Iterable[str]) -> str:
    """Return the average incremental accuracy of the predictor with which it is highest."""
    metrics = [f"{predictor}.{AVERAGE}" for predictor in predictors]
    return max(metrics, key=lambda metric: sum(by_seed(rows, method, metric).values()))


def gain_at_best(rows: Sequence[Row], method: str, base: str) -> Difference | None:
    """Return the gain over the base, each with its best predictor."""
    metrics = {name: best_metric(rows, name, PREDICTIONS) for name in (method, base)}
    selected = [{**row, "best": row[metrics[row["method"]]]} for row in rows if row["method"] in metrics]
    return difference(selected, method, base, "best")


def gains_by_seed(rows: Sequence[Row], method: str, base: str) -> dict[str, float]:
    """Return the gain in average incremental accuracy for each common seed."""
    values, reference = by_seed(rows, method, AVERAGE), by_seed(rows, base, AVERAGE)
    return {seed: values[seed] - reference[seed] for seed in values.keys() & reference.keys()}


def with_harmonic(rows: Iterable[Row]) -> list[Row]:
    """Return rows with the harmonic mean of APT and of the mean accuracy on new tasks, which is ACT without the first.

    Records of earlier versions do not have the accuracies from which `cscct.metrics.summarize` computes a harmonic
    mean for each task; this one is slightly larger.
    """
    completed = []
    for row in rows:
        tasks, first = int(row["tasks"]), float(row["curve"].split()[0])
        old, new = float(row["apt"]), (int(row["tasks"]) * float(row["act"]) - first) / (tasks - 1)
        completed.append({**row, HARMONIC: str(2 * old * new / (old + new))})
    return completed


def first_task_only(rows: Sequence[Row]) -> list[Row]:
    """Return rows for a network that stops learning after the first task.

    With the same number of test images per class, its accuracy is that of the first task times the share of its
    classes among those seen.
    """
    stopped = []
    for row in rows:
        first, base, step = float(row["curve"].split()[0]), int(row["B"]), int(row["C"])
        curve = [first * base / (base + i * step) for i in range(int(row["tasks"]))]
        stopped.append({**row, AVERAGE: str(sum(curve) / len(curve)), LAST: str(curve[-1])})
    return stopped


def mean(rows: Sequence[Row], method: str, metric: str) -> str:
    """Return mean and standard deviation over seeds, such as `89.20 ± 0.40`, or an empty text without runs."""
    values = list(by_seed(rows, method, metric).values())
    if not values:
        return ""
    stats = spread(values)
    return f"{stats.mean:.2f}" + (f" ± {stats.deviation:.2f}" if stats.deviation else "")


def interval(gain: Difference | None) -> str:
    """Return mean and confidence interval, such as `+0.31 [-0.12, +0.74]`, or an empty text for None."""
    if gain is None:
        return ""
    if gain.low is None or gain.high is None:
        return f"{signed(gain.mean)} (one seed)"
    if gain.high - gain.low < 0.005:  # training-free methods end with the same model in every class order
        return signed(gain.mean)
    return f"{signed(gain.mean)} [{signed(gain.low)}, {signed(gain.high)}]"


def signed(value: float) -> str:
    """Return a value with sign and two digits, without a negative zero."""
    return f"{round(value, 2) + 0.0:+.2f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
