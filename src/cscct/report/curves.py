"""Pictures of results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = "osD^vP*X"


def accuracy_curves(results: Mapping[str, Sequence[Mapping[str, Any]]], title: str, path: Path) -> None:
    """Accuracy on all classes seen after each task: mean over seeds, a band of one standard deviation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for i, (method, runs) in enumerate(results.items()):
        headline = runs[0]["headline"]
        curves = [[task["accuracy"][headline] for task in run["tasks"]] for run in runs]
        columns = list(zip(*curves, strict=True))
        sizes = [len(task["classes"]) for task in runs[0]["tasks"]]
        seen = [sum(sizes[: t + 1]) for t in range(len(sizes))]
        mean = [statistics.fmean(column) for column in columns]
        colour = COLOURS[i % len(COLOURS)]
        label = f"{method} (nearest mean)" if headline == "nme" else method
        axes.plot(seen, mean, color=colour, marker=MARKERS[i % len(MARKERS)], markersize=5, label=label)
        if len(runs) > 1:
            sd = [statistics.stdev(column) for column in columns]
            low, high = zip(*((m - s, m + s) for m, s in zip(mean, sd, strict=True)), strict=True)
            axes.fill_between(seen, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="classes seen", ylabel="accuracy on all classes seen (%)", title=title)
    axes.set_ylim(top=min(101.0, axes.get_ylim()[1]))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def plot_run(result: Mapping[str, Any], ax: Axes | None = None) -> Axes:
    """Accuracy on all classes seen after each task of one run, into `ax` or a new figure."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6, 4), layout="constrained").add_subplot()
    sizes = [len(task["classes"]) for task in result["tasks"]]
    seen = [sum(sizes[: t + 1]) for t in range(len(sizes))]
    label = f"{result['method']} (nearest mean)" if result["headline"] == "nme" else str(result["method"])
    ax.plot(seen, [task["accuracy"][result["headline"]] for task in result["tasks"]], marker="o", label=label)
    ax.set(xlabel="classes seen", ylabel="accuracy on all classes seen (%)")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax
