"""t-SNE of the first task's classes in the final feature space, two runs side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from ..analysis.groups import Group
from ..analysis.load import Array, Missing, Run
from ..analysis.statistics import counterpart
from .canvas import WIDTH, ReportFigure, legend_below, legend_height, new_figure, plain, short, style
from .curves import COLOURS, MARKERS

POINTS = 1500
ITERATIONS = 600
FEWEST = 8  # different points that t-SNE needs
TITLE = 44  # letters in a line above a panel
LEGEND = 64  # classes; also the number of pairs of colour and marker


def choose_pair(groups: Sequence[Group]) -> list[tuple[str, Run]]:
    """A base method and its variant with most of the additions, same seed and settings; else the first two groups.
    Groups with the largest first task come first: their figure shows most."""
    ready = sorted((group for group in groups if group.complete), key=lambda group: -group.runs[0].sizes[0])
    for suffix in ("cscct", "csc", "ct"):
        for group in ready:
            base = counterpart(group, ready) if group.method == f"{group.base}+{suffix}" else None
            shared = set(group.seeds) & set(base.seeds) if base else set()
            if base and shared:
                return [(one.label, one.runs[one.seeds.index(min(shared))]) for one in (base, group)]
    return [(group.label, group.runs[0]) for group in ready[:2]]


def feature_map(pair: Sequence[tuple[str, Run]]) -> ReportFigure:
    """A panel for each run of `pair`, which holds labels and runs."""
    if not pair:
        raise Missing("Features are stored at the end of the last task, and no run has finished it.")
    table: list[list[Any]] = [["group", "seed", "class", "x", "y"]]
    drawn = [_embed(run) for _, run in pair]
    classes = list(dict.fromkeys(name for _, names in drawn for name in names.tolist()))
    looks = {name: (COLOURS[i % 8], MARKERS[(i + i // 8) % 8]) for i, name in enumerate(classes)}
    with style():
        width = WIDTH if len(pair) > 1 else 4.6
        legend = [short(name, 18) for name in classes] if len(classes) <= LEGEND else []
        below = legend_height(width, legend) if legend else 0
        titles = [textwrap.fill(f"{label}, seed {run.seed}", TITLE) for label, run in pair]
        above = 0.16 * max(title.count("\n") for title in titles)
        figure = new_figure(width, (3.4 if len(pair) > 1 else 4.1) + below + above)
        panels = figure.subplots(1, len(pair), squeeze=False)[0]
        for axes, title, (label, run), (points, names) in zip(panels, titles, pair, drawn, strict=True):
            for name in classes:
                x, y = points[names == name].T
                colour, marker = looks[name]
                axes.scatter(x, y, s=10, color=colour, marker=marker, linewidths=0, alpha=0.8, rasterized=True)
            axes.set_title(plain(title))
            axes.set(xticks=[], yticks=[], aspect="equal")
            axes.set_adjustable("datalim")
            axes.spines[:].set(visible=True, color="0.8")
            rows = zip(names.tolist(), *points.T.tolist(), strict=True)
            table += [[label, run.seed, *row] for row in rows]
        if legend:
            marks = [Line2D([], [], color=c, marker=m, linestyle="", markersize=4.5) for c, m in looks.values()]
            legend_below(figure, marks, legend)
    many = " Colours repeat: colour and marker together identify a class." if len(classes) > len(COLOURS) else ""
    many += " There are more classes than such pairs, so pairs repeat too." if len(classes) > LEGEND else ""
    shown = " and ".join(f"{label}, seed {run.seed}" for label, run in pair)
    return ReportFigure(
        "tsne",
        figure,
        table,
        f"t-SNE of test images of the first task's {len(classes)} classes after the last task: {shown}.",
        f"t-SNE of test images of the first task's classes in the final feature space: {shown}. Each point is an "
        "image, its features scaled to unit length. Points that are close have similar features; larger distances and "
        f"the two axes have no meaning.{many}",
    )


def _embed(run: Run) -> tuple[Array, Array]:
    """Points and class names. t-SNE crashes the process on features without spread: they are refused before."""
    from sklearn.manifold import TSNE

    features, names = _sample(run)
    different = len(np.unique(features.round(5), axis=0))
    if different < FEWEST:
        raise Missing(
            f"{run.path} holds features of {len(features)} images with {different} different value"
            f"{'s' if different > 1 else ''}: t-SNE needs at least {FEWEST}."
        )
    perplexity = min(30.0, (len(features) - 1) / 3)
    embedding = TSNE(2, perplexity=perplexity, init="pca", max_iter=ITERATIONS, random_state=0, n_jobs=1)
    return embedding.fit_transform(features), names


def _sample(run: Run) -> tuple[Array, Array]:
    """Features of unit length and class names of at most POINTS images, equally many of each class."""
    tensors = run.tensors(len(run.sizes) - 1)
    features, labels = tensors.get("features"), tensors.get("labels")
    if features is None or labels is None or features.ndim != 2 or len(features) != len(labels):
        raise Missing(f"{run.path} holds no features of the first task's classes.")
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= run.sizes[0] or not np.isfinite(features).all():
        raise Missing(f"{run.path} holds features that are not numbers, or of classes that are not the first task's.")
    each = max(1, POINTS // max(1, len(np.unique(labels))))
    kept = np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))[:POINTS]
    chosen = features[kept].astype(np.float64)
    length = np.linalg.norm(chosen, axis=1, keepdims=True)
    names = np.array(run.classes, dtype=object)[labels[kept]]
    return chosen / np.maximum(length, 1e-12), names
