"""Matrices as images: accuracies, confusion, similarities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from ..analysis.groups import Group
from ..analysis.load import Array
from ..analysis.measures import accuracy_matrix, mean_and_sd
from .canvas import LINE, PAGE, Layout, ReportFigure, boundaries, named_ticks, names_fit, new_figure, style

SHARES = [0, 1, 5, 10, 25, 50, 75, 100]
MAX_TASKS = 20  # whose boundaries or numbers are all shown
MAX_NUMBERS = 12  # cells in a row with numbers


def accuracy_limits(groups: Sequence[Group]) -> tuple[float, float]:
    """Return the limits of a colour scale for the accuracies of all groups, in steps of 5."""
    means = [mean_and_sd([accuracy_matrix(run) for run in group.runs])[0] for group in groups]
    values = np.concatenate([mean[np.isfinite(mean)] for mean in means])
    if not len(values):
        return 0.0, 100.0
    low, high = 5 * np.floor(values.min() / 5), 5 * np.ceil(values.max() / 5)
    return float(low - 5 * (low == high) * (low > 0)), float(high + 5 * (low == high == 0))


def accuracy_map(name: str, group: Group, limits: tuple[float, float], layout: Layout = PAGE) -> ReportFigure:
    """Draw the accuracy on each task after each task."""
    mean, sd = mean_and_sd([accuracy_matrix(run) for run in group.runs])
    tasks, seeds = len(mean), len(group.runs)
    table: list[list[Any]] = [["after_task", "on_task", "accuracy_mean", "accuracy_sd", "seeds"]]
    for t, k in zip(*np.tril_indices(tasks), strict=True):
        table.append([int(t) + 1, int(k) + 1, float(mean[t, k]), float(sd[t, k]) if seeds > 1 else "", seeds])
    side = layout.map_side(min(5.2, max(1.8, 0.42 * tasks)))
    with style(layout):
        figure = new_figure(min(layout.width, side + 1.6), side + 0.7)
        axes = figure.add_subplot()
        image = axes.imshow(mean, vmin=limits[0], vmax=limits[1], cmap="viridis", interpolation="none")
        _bare(axes)
        ticks = range(tasks) if tasks <= min(MAX_TASKS, side / LINE) else range(4, tasks, 5)
        axes.set_xticks(ticks, [str(t + 1) for t in ticks])
        axes.set_yticks(ticks, [str(t + 1) for t in ticks])
        axes.set(xlabel="accuracy on task", ylabel="after task")
        if tasks <= min(MAX_NUMBERS, side / LINE):
            _numbers(axes, mean, image)
        figure.colorbar(image, ax=axes, label="accuracy (%)", shrink=0.9)
    how = f"mean over {seeds} seeds" if seeds > 1 else f"seed {group.seeds[0]}"
    return ReportFigure(
        name,
        figure,
        table,
        f"Accuracy matrix of {group.label} over {tasks} tasks; the first task is at {mean[0, 0]:.1f} % when learned "
        f"and at {mean[-1, 0]:.1f} % at the end.",
        f"{group.label}, {how}. Horizontal: the task that is tested. Vertical: the last task learned. Colour: accuracy "
        "in percent.",
    )


def _numbers(axes: Axes, matrix: Array, image: AxesImage) -> None:
    """Write values into the cells, black on light colours and white on dark colours."""
    for t, k in np.argwhere(np.isfinite(matrix)).tolist():
        value = matrix[t, k]
        luminance = np.dot(image.to_rgba(np.array([value]))[0, :3], (0.299, 0.587, 0.114))
        ink = "black" if luminance > 0.5 else "white"
        axes.text(k, t, f"{value:.0f}", ha="center", va="center", fontsize=8, color=ink)


def _bare(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=2)


def _task_lines(axes: Axes, sizes: Sequence[int], colour: str, above: int = 0) -> None:
    """Draw lines where tasks begin.

    Args:
        axes: Axes of the map.
        sizes: Number of classes of each task.
        colour: Colour of the lines.
        above: Number of first classes that have no row.
    """
    places = boundaries(sizes)
    if len(places) > MAX_TASKS:  # a grid would hide the map
        places = [places[0], places[-1]]
    rows, columns = axes.get_ylim()[0], axes.get_xlim()[1]
    for place in places:
        if place < columns:
            axes.axvline(place - 0.5, color=colour, linewidth=0.9)
        if 0 < place - above < rows:
            axes.axhline(place - above - 0.5, color=colour, linewidth=0.9)


def confusion_map(name: str, group: Group, shares: Array, layout: Layout = PAGE) -> ReportFigure:
    """Draw the predicted classes of the test images of each true class, after the last task."""
    run = group.comparable[0]
    n, old = len(shares), sum(run.sizes[:-1])
    table: list[list[Any]] = [["true_class", "predicted_class", "share_percent"]]
    table += [[run.classes[i], run.classes[j], float(shares[i, j])] for i in range(n) for j in range(n)]
    figure = confusion_figure(shares, run.classes, run.sizes, layout)
    return ReportFigure(
        name,
        figure,
        table,
        f"Confusion map of {group.label} after the last task, {n} classes, of which {n - old} are new. On average "
        f"{np.nanmean(np.diag(shares)):.1f} % of a class is right.",
        f"{group.label}. {group.averaging} Horizontal: predicted class. Vertical: true class. Colour: share of the "
        "true class's test images.",
    )


def confusion_figure(shares: Array, classes: Sequence[str], sizes: Sequence[int], layout: Layout = PAGE) -> Figure:
    """Draw the share of each predicted class, in percent of the true class.

    Args:
        shares: Shares, shape (classes, classes).
        classes: Names of the classes.
        sizes: Number of classes of each task.
        layout: Layout of the figure.
    """
    n = len(shares)
    side = layout.map_side(min(5.4, max(2.4, 0.21 * n)))
    with style(layout):
        figure = new_figure(min(layout.width, side + 1.6), side + 0.7)
        axes = figure.add_subplot()
        # The square root makes the small shares off the diagonal visible.
        image = axes.imshow(shares, norm=PowerNorm(0.5, 0, 100), cmap="viridis", interpolation="none")
        _bare(axes)
        _task_lines(axes, sizes, "white")
        for axis in "xy":
            named_ticks(axes, axis, classes, side)
        what = "class" if names_fit(n, side) else "class, in order of learning"
        axes.set(xlabel=f"predicted {what}", ylabel=f"true {what}")
        figure.colorbar(image, ax=axes, label="share of the true class (%)", ticks=SHARES, shrink=0.9)
    return figure


def similarity_limits(matrices: Sequence[Array]) -> tuple[float, float]:
    """Return the limits of a colour scale: symmetric about zero if a cosine is negative, else from zero."""
    values = np.concatenate([np.empty(0), *(matrix[np.isfinite(matrix)] for matrix in matrices)])
    if not len(values):
        return 0.0, 1.0
    top = min(1.0, max(0.1, float(np.ceil(np.abs(values).max() * 10) / 10)))
    return (-top, top) if values.min() < 0 else (0.0, top)


def similarity_map(
    name: str, group: Group, matrix: Array, limits: tuple[float, float], layout: Layout = PAGE
) -> ReportFigure:
    """Draw the cosines of the mean features of later and earlier classes."""
    run = group.comparable[0]
    rows, columns = matrix.shape
    first = run.sizes[0]
    later, earlier = run.classes[first:], run.classes[:columns]
    table: list[list[Any]] = [["later_class", "earlier_class", "cosine"]]
    table += [[later[i], earlier[j], float(matrix[i, j])] for i, j in np.argwhere(np.isfinite(matrix))]
    cell = min(0.24, layout.map_side(5.4) / columns, layout.map_side(5.4) / rows)
    width, height = layout.map_side(max(2.2, cell * columns)), max(1.2, cell * rows)
    with style(layout):
        figure = new_figure(min(layout.width, width + 1.8), height + 0.8)
        axes = figure.add_subplot()
        scale = colormaps["RdBu_r" if limits[0] < 0 else "cividis"].with_extremes(bad="0.88")  # white is a zero
        image = axes.imshow(matrix, vmin=limits[0], vmax=limits[1], cmap=scale, interpolation="none")
        _bare(axes)
        _task_lines(axes, run.sizes, "0.35" if limits[0] < 0 else "white", above=first)
        named_ticks(axes, "x", earlier, width)
        named_ticks(axes, "y", later, height, offset=first)
        fits = names_fit(columns, width) and names_fit(rows, height)
        what = "class" if fits else "class, in order of learning"
        axes.set(xlabel=f"earlier {what}", ylabel=f"later {what}")
        figure.colorbar(image, ax=axes, label="cosine")
    return ReportFigure(
        name,
        figure,
        table,
        f"Map of the similarity of {rows} later to {columns} earlier classes of {group.label}; mean cosine "
        f"{np.nanmean(matrix):.2f}, largest {np.nanmax(matrix):.2f}.",
        f"{group.label}. {group.averaging} Horizontal: earlier classes. Vertical: later classes. Colour: cosine of "
        "their mean features.",
    )
