"""Tables of results: the summary at the top of the page, and runs.csv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.groups import Group
from ..analysis.settings import predictor_title
from ..analysis.statistics import AVERAGE, METRICS, Spread, SummaryRow
from ..analysis.tables import format_difference, format_spread, predictions, stored_predictors
from ..structs import Part
from . import page

COLUMNS = dict(zip(METRICS, ("Average incremental", "Last", "Harmonic", "APT", "ACT", "Forgetting"), strict=True))
MEANINGS = {
    "Average incremental": "accuracy on all classes seen so far, averaged over all tasks including the first. "
    "Most papers report this metric.",
    "Gain": "mean over seeds of the paired difference in average incremental accuracy to the same method without "
    "add-ons, in percentage points, with its 95 % confidence interval (Student's t).",
    "Last": "accuracy on all classes after the last task.",
    "Harmonic": "harmonic mean of the accuracy on all old classes and on the classes of the newest task, averaged over "
    "the tasks from the second on: high only if neither old nor new classes are sacrificed.",
    "APT": "accuracy on past tasks: mean accuracy on all earlier tasks, averaged over the tasks from the second on.",
    "ACT": "accuracy on the current task, measured directly after it was learned, averaged over tasks.",
    "Forgetting": "best accuracy on a task before the last task minus its final accuracy, averaged over all tasks but "
    "the last; lower is better.",
    "Prediction": "by the scores of the classifier; by the nearest mean of exemplars (NME), the class whose exemplars "
    "have the mean feature closest to that of the image; by linear discriminant analysis (LDA) or ridge regression, "
    "fitted to the features of the exemplars. Methods without training use the features of all training images.",
}


def summary_blocks(rows: Sequence[SummaryRow]) -> list[str]:
    """Return the results for all predictors and the definitions of the metrics, as HTML."""
    gains = any(row.gain for row in rows)
    about = "Accuracies in percent"
    about += "; mean ± standard deviation over seeds." if any(len(row.group.runs) > 1 for row in rows) else "."
    cells = [_cells(row, row.group.headline, row.metrics, gains) for row in rows]
    averages = [spread.mean if (spread := row.metrics[AVERAGE]) else None for row in rows]
    table = page.table(_header(gains), cells, text_columns=_text_columns(gains), bars=averages)
    blocks = [page.paragraph(about), table]
    others = [
        _cells(row, head, metrics, False)
        for row in rows
        for head, metrics in predictions(row.group).items()
        if head != row.group.headline
    ]
    if others:
        table = page.table(_header(False), others, text_columns=_text_columns(False))
        blocks.append(page.folded("The same runs with other predictors", table))
    held_out = [_cells(row, row.group.headline, row.validation, False) for row in rows if row.validation]
    if held_out:
        table = page.table(_header(False), held_out, text_columns=_text_columns(False))
        blocks.append(page.folded("The same runs on validation images, which were held out from training", table))
    used = {name: meaning for name, meaning in MEANINGS.items() if name != "Gain" or gains}
    return [*blocks, page.folded("Definitions of the columns", page.definitions(used))]


def runs_table(groups: Sequence[Group]) -> list[list[Any]]:
    """Return the rows of runs.csv, one for each run; the first has the column names."""
    header = ["group", "method", "dataset", "seed", "status", "prediction", "tasks_done", "tasks"]
    columns: list[tuple[Part, str, str]] = [
        ("test", head, name) for head in stored_predictors(groups) for name in METRICS
    ]
    if any("validation" in run.result for group in groups for run in group.runs):
        columns += [("validation", head, name) for _, head, name in columns]
    header += [f"{'' if part == 'test' else 'validation_'}{head}_{name}" for part, head, name in columns]
    table: list[list[Any]] = [[*header, "seconds", "weights_sha256", "folder"]]
    for group in groups:
        for run in group.runs:
            result = run.result
            cells = [group.label, run.method, run.settings["dataset"], run.seed, result["status"], run.headline]
            cells += [len(run.sizes), run.planned]
            cells += [run.metrics(head, part).get(name) for part, head, name in columns]
            seconds = sum(task.get("seconds") or 0.0 for task in result["tasks"])
            table.append([*cells, seconds, result.get("weights_sha256"), str(run.path)])
    return table


# The most important columns come first: a phone shows two of them.
def _header(gains: bool) -> list[str]:
    average, *metrics = COLUMNS.values()
    return ["Method", average, *(["Gain"] if gains else []), *metrics, "Prediction", "Seeds"]


def _text_columns(gains: bool) -> tuple[int, ...]:
    return (0, 2, 8) if gains else (0, 7)


def _cells(row: SummaryRow, head: str, metrics: dict[str, Spread | None], gains: bool) -> list[str]:
    average, *values = map(format_spread, metrics.values())
    gain = [_gain(row)] if gains else []
    return [row.group.label, average, *gain, *values, predictor_title(head), str(len(row.group.runs))]


def _gain(row: SummaryRow) -> str:
    """Return the difference as HTML, with a line break allowed only after its interval."""
    difference, against, reference = format_difference(row.gain).partition(" vs ")
    shared = f", {row.pairs} shared seeds" if row.gain and row.pairs < len(row.group.runs) else ""
    return difference.replace("-", "−").replace(" ", "\N{NO-BREAK SPACE}") + against + reference + shared
