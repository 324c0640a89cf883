"""Accuracy against a setting that was varied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist

from ..analysis.plots import line_style
from ..analysis.settings import label_groups
from ..analysis.statistics import AVERAGE, SummaryRow
from .canvas import PAGE, Layout, ReportFigure, legend_below, legend_height, new_figure, style
from .figures import ERROR_BAR

LOGARITHMIC = 20  # ratio of the largest to the smallest value from which on the axis is logarithmic


@dataclass(frozen=True)
class Sweep:
    """Groups of one method that differ in one numeric setting.

    Attributes:
        setting: Dotted name of the setting.
        label: Name of the line.
        values: Values of the setting in increasing order.
        rows: Results for each value.
    """

    setting: str
    label: str
    values: list[float]
    rows: list[SummaryRow]


def find_sweeps(rows: Sequence[SummaryRow]) -> dict[str, list[Sweep]]:
    """Return the sweeps over each setting for which a method has several values."""
    complete = [row for row in rows if row.group.complete and row.metrics[AVERAGE]]
    settings = dict.fromkeys(name for row in complete for name, value in row.group.effective.items() if _numeric(value))
    sweeps = {setting: _sweeps_over(setting, complete) for setting in settings}
    return {setting: lines for setting, lines in sweeps.items() if lines}


def _numeric(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sweeps_over(setting: str, rows: Sequence[SummaryRow]) -> list[Sweep]:
    families: dict[str, list[SummaryRow]] = {}
    for row in rows:
        if _numeric(row.group.effective.get(setting)):
            families.setdefault(json.dumps(_other_settings(setting, row), sort_keys=True), []).append(row)
    members = [family for family in families.values() if len(family) > 1]
    labels = label_groups([_other_settings(setting, family[0]) for family in members], [""] * len(members))
    return [_sweep(setting, label, family) for label, family in zip(labels, members, strict=True)]


def _other_settings(setting: str, row: SummaryRow) -> dict[str, Any]:
    """All other settings, without the learning-rate schedule if the number of epochs varies."""
    section, _, name = setting.partition(".")
    follows = (f"{section}.schedule.",) if name == "epochs" else ()
    flat = row.group.effective
    return {key: value for key, value in flat.items() if key != setting and not key.startswith(follows)}


def _sweep(setting: str, label: str, family: Sequence[SummaryRow]) -> Sweep:
    rows = sorted(family, key=lambda row: float(row.group.effective[setting]))
    return Sweep(setting, label, [row.group.effective[setting] for row in rows], rows)


def sweep_figure(name: str, sweeps: Sequence[Sweep], layout: Layout = PAGE) -> ReportFigure:
    """Draw the average incremental accuracy against one setting, a line for each method."""
    setting, labels = sweeps[0].setting, [sweep.label for sweep in sweeps]
    table: list[list[Any]] = [["method", setting, f"{AVERAGE}_mean", f"{AVERAGE}_sd", "seeds"]]
    with style(layout):
        figure = new_figure(layout.width, layout.height + legend_height(layout.width, labels))
        axes = figure.add_subplot()
        handles: list[Artist] = []
        for i, sweep in enumerate(sweeps):
            spreads = [spread for row in sweep.rows if (spread := row.metrics[AVERAGE])]
            deviations = [spread.deviation or 0.0 for spread in spreads]
            means = [spread.mean for spread in spreads]
            handles.append(axes.errorbar(sweep.values, means, deviations, capsize=3, **line_style(i))[0])
            for value, spread, row in zip(sweep.values, spreads, sweep.rows, strict=True):
                table.append([sweep.label, value, spread.mean, spread.deviation, len(row.group.runs)])
        values = sorted({value for sweep in sweeps for value in sweep.values})
        logarithmic = values[0] > 0 and values[-1] / values[0] >= LOGARITHMIC
        if logarithmic:
            axes.set_xscale("log")
            axes.minorticks_off()
        if len(values) <= 10:
            axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set(xlabel=setting, ylabel="average incremental accuracy (%)")
        axes.grid()
        legend_below(figure, handles, labels)
    bars = f" Vertical bars: {ERROR_BAR}." if any(len(row.group.runs) > 1 for s in sweeps for row in s.rows) else ""
    best = "; ".join(_best(sweep) for sweep in sweeps[:8])
    return ReportFigure(
        name,
        figure,
        table,
        f"Average incremental accuracy against {setting}. {best}.",
        f"Effect of {setting}, all other settings being equal. Horizontal: its value"
        f"{', on a logarithmic axis' if logarithmic else ''}. Vertical: accuracy on all classes seen, averaged over "
        f"tasks; mean over seeds.{bars}",
    )


def _best(sweep: Sweep) -> str:
    means = [spread.mean if (spread := row.metrics[AVERAGE]) else 0.0 for row in sweep.rows]
    best = max(range(len(means)), key=means.__getitem__)
    return f"{sweep.label} is best at {sweep.values[best]:g} with {means[best]:.1f} %"
