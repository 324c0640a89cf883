"""The first task's classes in the final feature space, two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from ..analysis.groups import Group
from ..analysis.load import Array, Missing, Run
from ..analysis.statistics import counterpart
from .canvas import WIDTH, ReportFigure, legend_below, legend_columns, new_figure, plain, short, style
from .curves import COLOURS, MARKERS

POINTS = 1500
ITERATIONS = 600
FEWEST = 8  # points from which neighbours can be spoken of
LEGEND = 64  # classes; also the number of pairs of colour and marker


def choose_pair(groups: Sequence[Group]) -> list[tuple[str, Run]]:
    """A base and its counterpart with most of the additions, same seed and settings; else the first two groups. Those
    with the largest first task come first: their picture shows most."""
    ready = sorted((group for group in groups if group.complete), key=lambda group: -group.runs[0].sizes[0])
    for suffix in ("cscct", "csc", "ct"):
        for group in ready:
            base = counterpart(group, ready) if group.method == f"{group.base}+{suffix}" else None
            shared = set(group.seeds) & set(base.seeds) if base else set()
            if base and shared:
                return [(one.label, one.runs[one.seeds.index(min(shared))]) for one in (base, group)]
    return [(group.label, group.runs[0]) for group in ready[:2]]


def feature_map(pair: Sequence[tuple[str, Run]]) -> ReportFigure:
    if not pair:
        raise Missing("Features are stored at the end of the last task, and no run has come there.")
    table: list[list[Any]] = [["group", "seed", "class", "x", "y"]]
    drawn = [_embed(run) for _, run in pair]
    classes = list(dict.fromkeys(name for _, names in drawn for name in names.tolist()))
    looks = {name: (COLOURS[i % 8], MARKERS[(i + i // 8) % 8]) for i, name in enumerate(classes)}
    with style():
        width = WIDTH if len(pair) > 1 else 4.6
        legend = [short(name, 18) for name in classes] if len(classes) <= LEGEND else []
        lines = -(-len(legend) // legend_columns(width, legend)) if legend else 0
        figure = new_figure(width, (3.5 if len(pair) > 1 else 4.2) + 0.17 * lines)
        panels = figure.subplots(1, len(pair), squeeze=False)[0]
        for axes, (label, run), (points, names) in zip(panels, pair, drawn, strict=True):
            for name in classes:
                x, y = points[names == name].T
                colour, marker = looks[name]
                axes.scatter(x, y, s=10, color=colour, marker=marker, linewidths=0, alpha=0.8, rasterized=True)
            axes.set_title(plain(f"{short(label, 44)}, seed {run.seed}"))
            axes.set(xticks=[], yticks=[], aspect="equal")
            axes.set_adjustable("datalim")
            axes.spines[:].set(visible=True, color="0.8")
            rows = zip(names.tolist(), *points.T.tolist(), strict=True)
            table += [[label, run.seed, *row] for row in rows]
        if legend:
            marks = [Line2D([], [], color=c, marker=m, linestyle="", markersize=4.5) for c, m in looks.values()]
            legend_below(figure, marks, legend)
    many = " Colours repeat: colour and marker together tell a class." if len(classes) > len(COLOURS) else ""
    many += " There are more classes than pairs of the two, so pairs repeat too." if len(classes) > LEGEND else ""
    shown = " and ".join(f"{label}, seed {run.seed}" for label, run in pair)
    return ReportFigure(
        "tsne",
        figure,
        table,
        f"t-SNE of test images of the first task's {len(classes)} classes after the last task: {shown}.",
        f"Test images of the first task's classes in the final feature space: {shown}. t-SNE of features of unit "
        f"length; only neighbourhood means something, not distance, and the axes have no unit.{many}",
    )


def _embed(run: Run) -> tuple[Array, Array]:
    """Points and class names."""
    from sklearn.manifold import TSNE

    features, names = _sample(run)
    perplexity = min(30.0, (len(features) - 1) / 3)
    embedding = TSNE(2, perplexity=perplexity, init="pca", max_iter=ITERATIONS, random_state=0, n_jobs=1)
    return embedding.fit_transform(features), names


def _sample(run: Run) -> tuple[Array, Array]:
    """At most so many points, evenly over the classes, of unit length."""
    tensors = run.tensors(len(run.sizes) - 1)
    features, labels = tensors.get("features"), tensors.get("labels")
    if features is None or labels is None or features.ndim != 2 or len(features) != len(labels):
        raise Missing(f"{run.path} holds no features of the first task's classes.")
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= run.sizes[0] or not np.isfinite(features).all():
        raise Missing(f"{run.path} holds features that are not numbers, or of classes that are not the first task's.")
    if len(features) < FEWEST:
        raise Missing(f"{run.path} holds features of {len(features)} images only: too few for t-SNE.")
    each = max(1, POINTS // max(1, len(np.unique(labels))))
    kept = np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))[:POINTS]
    chosen = features[kept].astype(np.float64)
    length = np.linalg.norm(chosen, axis=1, keepdims=True)
    names = np.array(run.classes, dtype=object)[labels[kept]]
    return chosen / np.maximum(length, 1e-12), names
