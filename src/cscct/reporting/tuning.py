"""Figures of tuning: the history of the objective and the importance of each setting."""

from __future__ import annotations

from typing import Any

from matplotlib.artist import Artist
from matplotlib.ticker import MaxNLocator

from ..analysis.plots import COLOURS
from ..analysis.tuning import TuningResult
from ..storage import make_folder
from .canvas import PAGE, FigureWriter, ReportFigure, legend_below, legend_height, new_figure, style

KINDS = {"complete": ("complete trial", "o", COLOURS[0]), "pruned": ("pruned trial", "x", COLOURS[3])}


def write_tuning(result: TuningResult) -> list[str]:
    """Write tables, best settings and figures of a study to its folder.

    Returns:
        Names of the files and of the folder with the figures.
    """
    files = result.write()
    writer = FigureWriter(make_folder(result.path / "figures"))
    figures = [history(result)] if any(trial.value is not None for trial in result.trials) else []
    figures += [importance(result)] if result.importance else []
    for figure in figures:
        writer.write(figure)
    return [*files, "figures"] if figures else files


def history(result: TuningResult) -> ReportFigure:
    """Draw the objective of each trial and the best one so far."""
    name = result.metric.replace("_", " ")
    table: list[list[Any]] = [["trial", "state", result.metric, "best_so_far"]]
    best: list[tuple[int, float]] = []
    for trial in result.trials:
        if trial.state == "complete" and trial.value is not None:
            best.append((trial.number, max(trial.value, best[-1][1] if best else trial.value)))
        table.append([trial.number, trial.state, trial.value, best[-1][1] if best else None])
    with style(PAGE):
        labels = [label for label, *_ in KINDS.values()] + ["best so far"]
        figure = new_figure(PAGE.width, PAGE.height + legend_height(PAGE.width, labels))
        axes = figure.add_subplot()
        handles: list[Artist] = []
        for state, (_, marker, colour) in KINDS.items():
            # The value of a pruned trial is of fewer tasks: it is drawn on the lower edge, without a value.
            points = [
                (t.number, t.value if state == "complete" else 0.02)
                for t in result.trials
                if t.state == state and t.value is not None
            ]
            transform = axes.transData if state == "complete" else axes.get_xaxis_transform()
            values = zip(*points, strict=True) if points else ([], [])
            handles += axes.plot(*values, marker, color=colour, markersize=5, transform=transform)
        handles += axes.step(*zip(*best, strict=True) if best else ([], []), where="post", color=COLOURS[1])
        axes.set(xlabel="trial", ylabel="objective on validation images (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
        legend_below(figure, handles, labels)
    summary = (
        f"Best: {result.best.value:.1f} % in trial {result.best.number}." if result.best else "No trial is complete."
    )
    about = f"{name[0].upper()}{name[1:]} on validation images against the number of the trial"
    return ReportFigure(
        "history",
        figure,
        table,
        f"{about}. {summary}",
        f"{about}. Pruned trials have no value: they are marked on the lower edge.",
    )


def importance(result: TuningResult) -> ReportFigure:
    """Draw a bar with the importance of each tuned setting."""
    table: list[list[Any]] = [["setting", "importance"], *map(list, result.importance.items())]
    with style(PAGE):
        figure = new_figure(PAGE.width, 1.0 + 0.35 * len(result.importance))
        axes = figure.add_subplot()
        for place, share in enumerate(result.importance.values()):
            axes.barh(place, share, 0.6, color=COLOURS[0])
            axes.text(share + 0.01, place, f"{share:.2f}", va="center", fontsize=8)
        axes.set_yticks(range(len(result.importance)), list(result.importance), parse_math=False, fontsize=8)
        axes.set(xlabel="importance (share of the variance)", xlim=(0, 1.1), ylim=(len(result.importance) - 0.5, -0.5))
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    shares = ", ".join(f"{key} {share:.2f}" for key, share in result.importance.items())
    caption = "Share of each setting in the variance of the objective over complete trials (fANOVA)."
    return ReportFigure("importance", figure, table, f"Bars of the importance of settings: {shares}.", caption)
