"""The table of results of a comparison, a sweep or a report: one layout for the terminal, files and notebooks."""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..runs.files import write_text
from .groups import Group
from .settings import PREDICTIONS, distinguishing, show, with_prediction
from .statistics import METRICS, Difference, Spread, SummaryRow, spread_over_seeds, summarise

HEADERS = dict(zip(METRICS, ("average incremental", "last", "APT", "ACT", "forgetting"), strict=True))
FITTED = ("lda", "ridge")  # predictions with columns of their own in CSV files
DECIMALS = 4  # in CSV files; significant digits of what is smaller than 1
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a formula of a spreadsheet begins


@dataclass(frozen=True, repr=False)
class ResultsTable:
    """A row for each group: method, settings that differ, seeds, metrics and paired difference; percent throughout."""

    rows: tuple[SummaryRow, ...]
    settings: tuple[str, ...]  # dotted names of those that differ between the rows

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as compare.json and sweep.json hold them."""
        groups = [row.group for row in self.rows]
        datasets = dict.fromkeys(str(group.settings["dataset"]) for group in groups)
        seeds = sorted({seed for group in groups for seed in group.seeds})
        return {"dataset": ", ".join(datasets), "seeds": seeds, "methods": [self._row_dict(row) for row in self.rows]}

    def _row_dict(self, row: SummaryRow) -> dict[str, Any]:
        return {
            **row_values(row),
            "settings": {name: row.group.effective.get(name) for name in self.settings},
            "pairs": row.pairs,
            "group": row.group.label,
        }

    def to_json(self) -> str:
        """JSON, with all digits."""
        return json.dumps(self.as_dict(), indent=1) + "\n"

    def to_csv(self) -> str:
        """CSV: one line for each group, numbers with four decimals."""
        metrics = [f"{name}_{part}" for name in METRICS for part in ("mean", "sd")]
        head = ["method", "headline", "seeds", *metrics, "against", "gain", "gain_low", "gain_high"]
        other = ["other_prediction", *(f"other_{name}" for name in metrics)]
        fitted = [f"{head}_{name}" for head in FITTED for name in metrics]
        lines: list[list[Any]] = [[*head, *self.settings, "pairs", "group", *other, *fitted]]
        for row in self.rows:
            group, gain = row.group, row.gain
            cells: list[Any] = [group.method, group.headline, len(group.runs)]
            cells += _metric_cells(row.metrics)
            cells += [gain.against, gain.mean, gain.low, gain.high] if gain else [None] * 4
            cells += [_setting(group.effective.get(name)) for name in self.settings]
            lines.append([*cells, row.pairs, group.label, *_other_cells(group)])
        return csv_text(lines)

    def to_markdown(self) -> str:
        """A Markdown table, numbers with two decimals."""
        header, *lines = ([cell.replace("|", "\\|") for cell in line] for line in self.cells())
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        rule = ["-" * width for width in widths]
        return "".join(
            f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n"
            for line in (header, rule, *lines)
        )

    def to_latex(self) -> str:
        """A LaTeX tabular, numbers with two decimals."""
        header, *lines = ([_latex(cell) for cell in line] for line in self.cells())
        columns = "l" * (1 + len(self.settings)) + "r" * (len(header) - 1 - len(self.settings))
        body = [" & ".join(line) + r" \\" for line in (header, *lines)]
        rules = [r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
        tabular = [rf"\begin{{tabular}}{{{columns}}}", *rules, r"\end{tabular}"]
        return "\n".join(["% needs \\usepackage{booktabs}", *tabular, ""])

    def cells(self) -> list[list[str]]:
        """The table in words, as people read it; the first line has the names of the columns."""
        differences = any(row.gain for row in self.rows)
        lines = [["method", *self.settings, "seeds", *HEADERS.values()]]
        lines[0] += ["paired difference [95 % interval]"] if differences else []
        for row in self.rows:
            line = [method_words(row.group), *(_words(row.group.effective.get(name)) for name in self.settings)]
            line += [str(len(row.group.runs)), *map(spread_words, row.metrics.values())]
            lines.append(line + ([difference_words(row.gain)] if differences else []))
        return lines

    def write(self, folder: Path, name: str) -> list[str]:
        """`NAME.json`, `NAME.csv`, `results.tex` and `results.md`; returns the names of the files."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{name}.json": self.to_json(), f"{name}.csv": self.to_csv()}
        files |= {"results.tex": self.to_latex(), "results.md": self.to_markdown()}
        for file, text in files.items():
            write_text(folder / file, text)
        return list(files)

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        """For notebooks."""
        header, *lines = self.cells()
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def results_table(groups: Sequence[Group], *, against_first: bool = False) -> ResultsTable:
    """The table of these groups.

    against_first: a group without a counterpart of its own is compared with the first one.
    """
    names = distinguishing([group.effective for group in groups])
    return ResultsTable(tuple(summarise(groups, against_first=against_first)), tuple(names))


def row_values(row: SummaryRow) -> dict[str, Any]:
    """A row's method, number of seeds, metrics and difference as plain values."""
    return {
        "method": row.group.method,
        "headline": row.group.headline,
        "seeds": len(row.group.runs),
        "metrics": {name: asdict(value) if value else None for name, value in row.metrics.items()},
        "gain": asdict(row.gain) if row.gain else None,
    }


def _other_cells(group: Group) -> list[Any]:
    """Classifier or nearest mean, whichever is not the method's own, with its metrics; then LDA and ridge."""
    found = predictions(group)
    other = next(head for head in PREDICTIONS if head != group.headline)
    named = [other if other in found else None]
    return named + [cell for head in (other, *FITTED) for cell in _metric_cells(found.get(head, {}))]


def _metric_cells(metrics: Mapping[str, Spread | None]) -> list[Any]:
    """Mean and standard deviation of each metric."""
    found = [metrics.get(name) for name in METRICS]
    return [cell for value in found for cell in ((value.mean, value.deviation) if value else (None, None))]


def predictions(group: Group) -> dict[str, dict[str, Spread | None]]:
    """The metrics with each of the predictions that all runs of a group have stored."""
    stored = [head for head in PREDICTIONS if all(head in run.result["summary"] for run in group.runs)]
    return {head: {name: spread_over_seeds(group, name, head) for name in METRICS} for head in stored if group.runs}


def csv_text(lines: Sequence[Sequence[Any]]) -> str:
    """Lines of cells as CSV; numbers are rounded, NaN is an empty cell, and no text is a formula."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[_csv_cell(cell) for cell in line] for line in lines])
    return out.getvalue()


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, str):  # a spreadsheet takes what follows an apostrophe for text
        return f"'{cell}" if cell.startswith(FORMULA) else cell
    if not isinstance(cell, float):
        return cell
    if cell != cell:
        return ""
    return round(cell, DECIMALS) if abs(cell) >= 1 else float(f"{cell:.{DECIMALS}g}")


def flatten(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested entry with dotted names, `ours.metrics.apt.mean`."""
    found: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = " ".join(map(str, value)) if isinstance(value, list) else value
    return found


def _setting(value: Any) -> str:
    """A setting in one cell, with all its digits: a learning rate is not rounded."""
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def method_words(group: Group) -> str:
    """The method, and by what it predicts where it is not the classifier."""
    return with_prediction(group.method, group.method, group.headline)


def spread_words(value: Spread | None) -> str:
    """`61.23 ± 0.45`."""
    if value is None:
        return "-"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def difference_words(gain: Difference | None) -> str:
    """`+1.20 [+0.80, +1.60] vs lucir`."""
    if gain is None:
        return ""
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"{gain.mean:+.2f}{interval} vs {gain.against}"


def _words(value: Any) -> str:
    return "" if value is None else show(value)


def _latex(text: str) -> str:
    names = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    names |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
    return "".join(names.get(letter, letter) for letter in text)
