"""Table of results of a comparison, a sweep or a report, for the terminal, files and notebooks."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, install_hint
from ..features import DEFAULT_PREDICTORS, NETWORK_PREDICTORS
from ..jsontext import to_json
from ..storage import write_text
from .groups import Group
from .settings import distinguishing, show, with_prediction
from .statistics import AVERAGE, METRICS, Difference, Spread, SummaryRow, spread_over_seeds, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

HEADERS = dict(zip(METRICS, ("average incremental", "last", "harmonic", "APT", "ACT", "forgetting"), strict=True))
VALIDATION_HEADER = "average incremental (validation)"
DECIMALS = 4  # in CSV files; significant digits of numbers below 1
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters of spreadsheet formulas


@dataclass(frozen=True, repr=False)
class ResultsTable:
    """Results of several groups of runs. All values are percent.

    Attributes:
        rows: Results of each group: metrics over seeds and paired difference.
        settings: Dotted names of the settings that differ between the groups.
    """

    rows: tuple[SummaryRow, ...]
    settings: tuple[str, ...]

    @property
    def has_validation(self) -> bool:
        """Whether a group has validation images."""
        return any(row.validation for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as stored in compare.json and sweep.json."""
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
        """Return the table as JSON, with all digits."""
        return to_json(self.as_dict(), indent=1) + "\n"

    def to_csv(self) -> str:
        """Return the table as CSV: a line for each group, numbers with four decimals."""
        records = self._records()
        for record in records:  # learning rates and other settings are not rounded
            record |= {name: _setting(record[name]) for name in self.settings}
        return csv_text([list(records[0]), *(list(record.values()) for record in records)])

    def to_frame(self) -> DataFrame:
        """Return a pandas DataFrame with the rows and columns of the CSV file, with all digits.

        Raises:
            UserError: If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UserError(f"to_frame needs pandas, which is not installed: {install_hint('pandas')}.") from error
        return pandas.DataFrame(self._records())

    def _records(self) -> list[dict[str, Any]]:
        """Each row by column name."""
        records = []
        for row in self.rows:
            group, gain = row.group, row.gain
            record: dict[str, Any] = {"method": group.method, "headline": group.headline, "seeds": len(group.runs)}
            record |= _metric_columns(row.metrics, "")
            record |= _metric_columns(row.validation, "validation_") if self.has_validation else {}
            record |= {"against": gain.against if gain else None, "gain": gain.mean if gain else None}
            record |= {f"gain_{end}": getattr(gain, end) if gain else None for end in ("low", "high")}
            record |= {name: group.effective.get(name) for name in self.settings}
            records.append({**record, "pairs": row.pairs, "group": group.label, **_other_columns(group)})
        return records

    def plot(self, kind: str = "curves", *, metric: str = AVERAGE, ax: Axes | None = None) -> Axes:
        """Plot the results of the groups that have finished runs.

        Args:
            kind: `"curves"` for the accuracy after each task, with a band of one standard deviation over seeds;
                `"bars"` for one metric, with its 95 % confidence interval (Student's t over seeds).
            metric: Metric of the bars: `average_incremental_accuracy`, `last_accuracy`, `harmonic_mean`, `apt`, `act`
                or `forgetting`.
            ax: Axes to draw into; by default those of a new figure.

        Returns:
            The axes.

        Raises:
            UserError: If `kind` or `metric` is unknown.
        """
        from .plots import plot_rows

        return plot_rows(self.rows, kind, metric, ax)

    def to_markdown(self) -> str:
        """Return a Markdown table, numbers with two decimals."""
        header, *lines = ([cell.replace("|", "\\|") for cell in line] for line in self.cells())
        widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
        rule = ["-" * width for width in widths]
        return "".join(
            f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |\n"
            for line in (header, rule, *lines)
        )

    def to_latex(self) -> str:
        """Return a LaTeX tabular, numbers with two decimals."""
        header, *lines = ([_latex(cell) for cell in line] for line in self.cells())
        columns = "l" * (1 + len(self.settings)) + "r" * (len(header) - 1 - len(self.settings))
        body = [" & ".join(line) + r" \\" for line in (header, *lines)]
        rules = [r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule"]
        tabular = [rf"\begin{{tabular}}{{{columns}}}", *rules, r"\end{tabular}"]
        return "\n".join(["% needs \\usepackage{booktabs}", *tabular, ""])

    def cells(self) -> list[list[str]]:
        """Return the formatted cells of the table; the first row has the column names."""
        differences = any(row.gain for row in self.rows)
        lines = [["method", *self.settings, "seeds", *HEADERS.values()]]
        lines[0] += [VALIDATION_HEADER] if self.has_validation else []
        lines[0] += ["paired difference [95 % interval]"] if differences else []
        for row in self.rows:
            line = [with_prediction(row.group.method, row.group.method, row.group.headline)]
            line += [
                "" if name not in row.group.effective else show(row.group.effective[name]) for name in self.settings
            ]
            line += [str(len(row.group.runs)), *map(format_spread, row.metrics.values())]
            line += [format_spread(row.validation.get(AVERAGE))] if self.has_validation else []
            lines.append(line + ([format_difference(row.gain)] if differences else []))
        return lines

    def write(self, folder: Path, name: str) -> list[str]:
        """Write the table as JSON, CSV, LaTeX and Markdown.

        Args:
            folder: Folder of the files.
            name: Name of the JSON and CSV files, without suffix.

        Returns:
            The names of the files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{name}.json": self.to_json(), f"{name}.csv": self.to_csv()}
        files |= {"results.tex": self.to_latex(), "results.md": self.to_markdown()}
        for file, text in files.items():
            write_text(folder / file, text)
        return list(files)

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        """Return the table as HTML, for notebooks."""
        header, *lines = self.cells()
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def results_table(groups: Sequence[Group], *, against_first: bool = False) -> ResultsTable:
    """Return the table of these groups.

    Args:
        groups: The groups.
        against_first: Compare groups without a counterpart with the first group.
    """
    names = distinguishing([group.effective for group in groups])
    return ResultsTable(tuple(summarise(groups, against_first=against_first)), tuple(names))


def row_values(row: SummaryRow) -> dict[str, Any]:
    """Return method, number of seeds, metrics and difference of a row as plain values."""
    validation = {name: asdict(value) if value else None for name, value in row.validation.items()}
    return {
        "method": row.group.method,
        "headline": row.group.headline,
        "seeds": len(row.group.runs),
        "metrics": {name: asdict(value) if value else None for name, value in row.metrics.items()},
        **({"validation": validation} if validation else {}),
        "gain": asdict(row.gain) if row.gain else None,
    }


def _other_columns(group: Group) -> dict[str, Any]:
    """Return the metrics of the other one of classifier and nearest mean, then those of the other predictors of all
    runs."""
    stored = predictions(group)
    second = next(head for head in NETWORK_PREDICTORS if head != group.headline)
    columns = {"other_prediction": second if second in stored else None}
    fitted = [head for head in DEFAULT_PREDICTORS if head not in NETWORK_PREDICTORS]
    for prefix, head in (("other_", second), *((f"{head}_", head) for head in fitted)):
        columns |= _metric_columns(stored.get(head, {}), prefix)
    return columns


def _metric_columns(metrics: Mapping[str, Spread | None], prefix: str) -> dict[str, Any]:
    """Return mean and standard deviation of each metric."""
    columns: dict[str, Any] = {}
    for name in METRICS:
        spread = metrics.get(name)
        columns[f"{prefix}{name}_mean"] = spread.mean if spread else None
        columns[f"{prefix}{name}_sd"] = spread.deviation if spread else None
    return columns


def predictions(group: Group) -> dict[str, dict[str, Spread | None]]:
    """Return the metrics of each predictor that all runs of a group have stored."""
    stored = [head for head in stored_predictors([group]) if all(head in run.result["summary"] for run in group.runs)]
    return {head: {name: spread_over_seeds(group, name, head) for name in METRICS} for head in stored if group.runs}


def stored_predictors(groups: Sequence[Group]) -> list[str]:
    """Return the names of the predictors that some run has stored, those of every run first."""
    names = [head for group in groups for run in group.runs for head in run.result["summary"]]
    return list(dict.fromkeys([*DEFAULT_PREDICTORS, *names]))


def csv_text(lines: Sequence[Sequence[Any]]) -> str:
    """Return rows of cells as CSV. Numbers are rounded, NaN is an empty cell, and text is never a formula."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[_csv_cell(cell) for cell in line] for line in lines])
    return out.getvalue()


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, list):
        cell = " ".join(map(str, cell))
    if isinstance(cell, str):  # spreadsheets treat the rest of a cell after an apostrophe as text
        return f"'{cell}" if cell.startswith(FORMULA) else cell
    if not isinstance(cell, float):
        return cell
    if cell != cell:
        return ""
    return round(cell, DECIMALS) if abs(cell) >= 1 else float(f"{cell:.{DECIMALS}g}")


def _setting(value: Any) -> str:
    """Return a setting as text with all digits."""
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def format_spread(value: Spread | None) -> str:
    """Return mean and standard deviation as in `61.23 ± 0.45`, or `-`."""
    if value is None:
        return "-"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def format_difference(gain: Difference | None) -> str:
    """Return a difference as in `+1.20 [+0.80, +1.60] vs lucir`, or an empty string."""
    if gain is None:
        return ""
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    return f"{gain.mean:+.2f}{interval} vs {gain.against}"


def _latex(text: str) -> str:
    names = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    names |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
    return "".join(names.get(letter, letter) for letter in text)
