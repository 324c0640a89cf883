"""Files made from stored runs: the HTML report with its figures and tables, and the results of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..analysis.differences import Differences, find_differences
from ..analysis.groups import Group, group_plan, group_runs
from ..analysis.load import find_runs, read_runs
from ..analysis.plots import save_curves
from ..analysis.tables import ResultsTable, csv_text, results_table
from ..errors import UserError
from ..storage import make_folder, write_text
from ..studies.plan import PlannedRun
from .canvas import FigureWriter
from .page import GENERATOR, box, difference_list, folded, paragraph, render
from .sections import Sections
from .summary import runs_table

__all__ = ["find_runs", "write_comparison", "write_report"]

INDEX = "index.html"
FIGURE_SUFFIXES = (".png", ".svg", ".csv", ".pdf")


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    log_axis: bool = False,
    pdf: bool = False,
    tensorboard: bool = False,
    title: str | None = None,
    warn: Callable[[str], None],
) -> Path:
    """Write a report of stored runs: index.html, summary.csv, runs.csv and the folder figures.

    Args:
        folders: Run folders, or folders that contain them.
        out: Folder of the report. A report in it is replaced.
        log_axis: Whether accuracy curves have a logarithmic accuracy axis.
        pdf: Whether figures are also written as PDF, in the width and with the font size of a column of a paper.
        tensorboard: Whether TensorBoard event files are also written.
        title: Title of the page; by default methods and datasets.
        warn: Called with each warning.

    Returns:
        Path of the page.

    Raises:
        UserError: If there are no runs, a run is damaged, or the report cannot be written.
    """
    if tensorboard:
        from .tensorboard import writer_class

        writer_class()  # fails before any work if TensorBoard is not installed
    groups = group_runs(read_runs(find_runs(folders), warn))
    differences = find_differences(groups)
    notes = [run.progress() for group in groups for run in group.runs if not run.finished]
    for sentence in [*notes, *_warnings(differences)]:
        warn(sentence)
    try:
        writer = _prepare(out, pdf)
        if tensorboard:
            from .tensorboard import write_events

            write_events(groups, out / "tensorboard", warn)
        write_text(out / INDEX, _compose(groups, differences, notes, writer, log_axis, title))
    except OSError as error:
        raise UserError(f"The report cannot be written to {out}: {error.strerror or error}.") from error
    return out / INDEX


def write_comparison(plan: Sequence[PlannedRun], folder: Path) -> tuple[ResultsTable, str, list[str]]:
    """Write the results of a comparison: tables in four formats, and curves.png.

    Returns:
        The table, a title with the protocol, and the names of the files in `folder`.
    """
    groups = list(group_plan(plan).values())
    table = results_table(groups, against_first=True)
    settings, seeds = plan[0].settings, len({run.settings.seed for run in plan})
    title = f"{settings.dataset}, {settings.protocol}, {seeds} seed{'s' if seeds > 1 else ''}"
    files = [*table.write(folder, "compare"), "curves.png"]
    save_curves(groups, title, folder / "curves.png")
    return table, title, files


def _prepare(out: Path, pdf: bool) -> FigureWriter:
    """Create the folder and delete the figures of an earlier report, which may show different runs."""
    page = out / INDEX
    is_report = page.is_file() and GENERATOR in page.read_text(encoding="utf-8", errors="replace")[:2000]
    if page.exists() and not is_report:
        raise UserError(f"{page} is not a report of cscct and would be overwritten: choose another folder.")
    make_folder(out / "figures")
    for path in (out / "figures").iterdir() if is_report else ():
        if path.suffix in FIGURE_SUFFIXES:
            path.unlink()
    return FigureWriter(out / "figures", pdf)


def _compose(
    groups: list[Group],
    differences: Differences,
    notes: list[str],
    writer: FigureWriter,
    log_axis: bool,
    title: str | None,
) -> str:
    """Write tables and figures, and return the page."""
    table = results_table(groups)
    write_text(writer.folder.parent / "summary.csv", table.to_csv())
    write_text(writer.folder.parent / "runs.csv", csv_text(runs_table(groups)))
    sections = Sections(groups, table.rows, writer, log_axis).build()
    if writer.missing_glyphs:
        notes = [*notes, "Some names contain characters that no installed font has; figures show boxes for them."]
    runs = [run for group in groups for run in group.runs]
    datasets = list(dict.fromkeys(str(run.settings["dataset"]) for run in runs))
    methods = list(dict.fromkeys(group.method for group in groups))
    named = ", ".join(methods) if len(methods) <= 4 else f"{len(methods)} methods"
    counted = f"{len(runs)} run{'s' if len(runs) > 1 else ''} in {len(groups)} group{'s' if len(groups) > 1 else ''}"
    subtitle = f"{counted}. Runs of a group differ only in the seed." if len(runs) > 1 else str(runs[0].path)
    title = title or f"{named} on {', '.join(datasets)}"
    return render(
        title, subtitle, sections, warnings=_warning_boxes(differences), notes=_note_boxes(differences, notes)
    )


def _warning_boxes(differences: Differences) -> list[str]:
    if not differences.experiments:
        return []
    about = "Differences between their accuracies may be due to these settings rather than to the method."
    summary = f"Different experiments: {_names(differences)} differ"
    return [folded(summary, paragraph(about) + difference_list(differences.experiments), warning=True)]


def _note_boxes(differences: Differences, notes: Sequence[str]) -> list[str]:
    boxes = [box("Notes:", notes)] if notes else []
    if differences.training:
        count = len(differences.training)
        summary = f"The methods differ in {count} training setting{'s' if count > 1 else ''}"
        boxes.append(folded(summary, difference_list(differences.training)))
    return boxes


def _warnings(differences: Differences) -> list[str]:
    if not differences.experiments:
        return []
    return [f"The groups are different experiments: {_names(differences)} differ. The report lists the values."]


def _names(differences: Differences) -> str:
    """Return the names of the settings in which experiments differ."""
    names = [difference.name for difference in differences.experiments]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
