"""Reports: an HTML page with figures and tables, from stored runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..analysis.differences import Differences, find_differences
from ..analysis.groups import Group, group_runs
from ..analysis.load import find_runs, read_runs
from ..analysis.tables import csv_text, results_table
from ..errors import UserError
from ..runs.files import own_folder, write_text
from .canvas import FigureWriter
from .page import GENERATOR, box, folded, render
from .sections import Sections
from .tables import runs_table

__all__ = ["find_runs", "write_report"]

PAGE = "index.html"


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    log_axis: bool = False,
    tensorboard: bool = False,
    title: str | None = None,
    warn: Callable[[str], None],
) -> Path:
    """Reads the runs in `folders` and writes index.html, summary.csv, runs.csv and figures/ to `out`.

    log_axis: accuracy on a logarithmic axis. tensorboard: event files too. Returns the page's path.
    """
    if tensorboard:
        from .tensorboard import writer_class

        writer_class()  # fails before any work if it is not installed
    groups = group_runs(read_runs(find_runs(folders), warn))
    differences = find_differences(groups)
    notes = _unfinished(groups)
    for sentence in [*notes, *_warnings(differences)]:
        warn(sentence)
    try:
        writer = _prepare(out)
        if tensorboard:
            from .tensorboard import write_events

            write_events(groups, out / "tensorboard", warn)
        text = _compose(groups, differences, notes, writer, log_axis, title)
        write_text(out / PAGE, text)
    except OSError as error:
        raise UserError(f"The report cannot be written to {out}: {error.strerror or error}.") from error
    return out / PAGE


def _prepare(out: Path) -> FigureWriter:
    """The folder of the report, without the figures of an earlier one: they may be of other runs."""
    page = out / PAGE
    known = page.is_file() and GENERATOR in page.read_text(encoding="utf-8", errors="replace")[:2000]
    if page.exists() and not known:
        raise UserError(f"{page} is not a report of cscct, and would be overwritten: choose another folder.")
    own_folder(out / "figures")
    for old in (out / "figures").iterdir() if known else ():
        if old.suffix in (".png", ".svg", ".csv"):
            old.unlink()
    return FigureWriter(out / "figures")


def _compose(
    groups: list[Group],
    differences: Differences,
    notes: list[str],
    writer: FigureWriter,
    log_axis: bool,
    title: str | None,
) -> str:
    table = results_table(groups)
    write_text(writer.folder.parent / "summary.csv", table.to_csv())
    write_text(writer.folder.parent / "runs.csv", csv_text(runs_table(groups)))
    sections = Sections(groups, table.rows, writer, log_axis).build()
    if writer.missing_glyphs:
        notes = [*notes, "Some class names hold characters that no installed font has; figures show boxes for them."]
    runs = [run for group in groups for run in group.runs]
    datasets = list(dict.fromkeys(str(run.settings["dataset"]) for run in runs))
    methods = list(dict.fromkeys(group.method for group in groups))
    named = ", ".join(methods) if len(methods) <= 4 else f"{len(methods)} methods"
    counted = f"{len(runs)} run{'s' if len(runs) > 1 else ''} in {len(groups)} group{'s' if len(groups) > 1 else ''}"
    subtitle = f"{counted}; the runs of a group differ in the seed only." if len(runs) > 1 else str(runs[0].path)
    return render(title or f"{named} on {', '.join(datasets)}", subtitle, _top(differences, notes), sections)


def _top(differences: Differences, notes: Sequence[str]) -> list[str]:
    boxes = []
    if differences.experiments:
        sentence = (
            "These groups are different experiments. Differences between them may be due to the following settings "
            "rather than to the method:"
        )
        boxes.append(box(sentence, differences.experiments, warning=True))
    if notes:
        boxes.append(box("Notes:", notes))
    if differences.training:
        note = f"The methods are trained in different ways ({len(differences.training)} settings)"
        boxes.append(folded(note, box("Settings that the methods bring with them:", differences.training)))
    return boxes


def _warnings(differences: Differences) -> list[str]:
    if not differences.experiments:
        return []
    names = "; ".join(sentence.partition(":")[0] for sentence in differences.experiments)
    return [f"The groups are different experiments: they differ in {names}. The report gives the values."]


def _unfinished(groups: Sequence[Group]) -> list[str]:
    return [run.progress() for group in groups for run in group.runs if not run.finished]
