"""The summary at the top of the page: metrics of each group, with all predictions."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.settings import PREDICTIONS
from ..analysis.statistics import METRICS, Spread, SummaryRow
from ..analysis.tables import predictions
from . import page

COLUMNS = dict(zip(METRICS, ("Average incremental", "Last", "APT", "ACT", "Forgetting"), strict=True))
MEANINGS = {
    "Average incremental": "accuracy on all classes seen so far, averaged over tasks, the first included. "
    "This is the metric that most papers give.",
    "Last": "accuracy on all classes after the last task.",
    "APT": "accuracy on past tasks: after each task from the second on, the mean accuracy on the tasks before it.",
    "ACT": "accuracy on the current task, measured just after it was learned, averaged over tasks.",
    "Forgetting": "best accuracy that a task had before the end minus its accuracy at the end, averaged over all tasks "
    "but the last; lower is better.",
    "Prediction": "by the classifier's scores; by the nearest mean of exemplars (NME): the class whose exemplars have "
    "the mean feature closest to the image's; by linear discriminant analysis (LDA) or ridge regression, fitted to the "
    "features of the exemplars. Methods without training use the features of all training images.",
    "Gain": "in average incremental accuracy over the same method without additions: mean of the differences seed by "
    "seed, in percentage points, with its 95 % confidence interval (Student's t).",
}


def summary_blocks(rows: Sequence[SummaryRow]) -> list[str]:
    """The tables of all predictions and the definitions, as HTML."""
    gains = any(row.gain for row in rows)
    header = ["Method", "Prediction", "Seeds", *COLUMNS.values(), *(["Gain over the base"] if gains else [])]
    cells = [[*_cells(row, row.group.runs[0].headline, row.metrics), *([_gain(row)] if gains else [])] for row in rows]
    about = "All numbers are percent"
    about += "; mean ± standard deviation over seeds." if any(len(row.group.runs) > 1 for row in rows) else "."
    blocks = [page.table(header, cells, text_columns=(0, 1, len(COLUMNS) + 3)), page.paragraph(about)]
    others = [
        (row, head, metrics)
        for row in rows
        for head, metrics in predictions(row.group).items()
        if head != row.group.headline
    ]
    if others:
        blocks.append(page.subheading("The same runs with the other predictions"))
        cells = [_cells(row, head, metrics) for row, head, metrics in others]
        blocks.append(page.table(header[: len(COLUMNS) + 3], cells, text_columns=(0, 1)))
    used = {name: meaning for name, meaning in MEANINGS.items() if name != "Gain" or gains}
    return [*blocks, page.definitions(used)]


def show_spread(value: Spread | None) -> str:
    """Mean ± standard deviation; a dash where there is no value."""
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _cells(row: SummaryRow, head: str, metrics: dict[str, Spread | None]) -> list[str]:
    seeds = str(len(row.group.runs))
    return [row.group.label, PREDICTIONS.get(head, head), seeds, *map(show_spread, metrics.values())]


def _gain(row: SummaryRow) -> str:
    gain = row.gain
    if gain is None:
        return ""
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    seeds = f", {row.pairs} shared seeds" if row.pairs < len(row.group.runs) else ""
    return f"{gain.mean:+.2f}{interval}".replace("-", "−") + f" over {row.group.base}{seeds}"
