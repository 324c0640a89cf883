"""t-SNE of the classes of the first task in the final feature space, for two runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.lines import Line2D

from ..analysis.groups import Group
from ..analysis.load import Array, MissingDataError, StoredRun
from ..analysis.plots import COLOURS, MARKERS
from ..analysis.statistics import counterpart
from .canvas import PAGE, Layout, ReportFigure, legend_below, legend_height, new_figure, plain, short, style

MAX_POINTS = 1500
ITERATIONS = 600
MIN_POINTS = 8  # different points that t-SNE needs
TITLE_LETTER = 0.08  # inches: average width of a letter of a title
MAX_LEGEND = 64  # classes; also the number of pairs of colour and marker


@dataclass(frozen=True)
class Embedding:
    """Two-dimensional embedding of test images of a run.

    Attributes:
        label: Label of the group.
        seed: Seed of the run.
        points: Positions, (images, 2).
        names: Class name of each image, (images,).
    """

    label: str
    seed: int
    points: Array
    names: Array

    @property
    def title(self) -> str:
        """Label of the group, and the seed."""
        return f"{self.label}, seed {self.seed}"


def choose_pair(groups: Sequence[Group]) -> list[tuple[str, StoredRun]]:
    """Return the labels and runs to compare.

    These are a base method and its variant with most add-ons, with the same seed and settings, else the first two
    groups. Groups with the largest first task are preferred.
    """
    complete = sorted((group for group in groups if group.complete), key=lambda group: -group.runs[0].sizes[0])
    for suffix in ("cscct", "csc", "ct"):
        for group in complete:
            base = counterpart(group, complete) if group.method == f"{group.base}+{suffix}" else None
            shared = set(group.seeds) & set(base.seeds) if base else set()
            if base and shared:
                return [(each.label, each.runs[each.seeds.index(min(shared))]) for each in (base, group)]
    return [(group.label, group.runs[0]) for group in complete[:2]]


def embed_runs(pair: Sequence[tuple[str, StoredRun]]) -> list[Embedding]:
    """Return the embedding of each run.

    Args:
        pair: Labels and runs.

    Raises:
        MissingDataError: If there is no run, or its features cannot be embedded.
    """
    if not pair:
        raise MissingDataError("Features are stored at the end of the last task, and no run has finished it.")
    return [Embedding(label, run.seed, *_embed(run)) for label, run in pair]


def feature_map(embeddings: Sequence[Embedding], layout: Layout = PAGE) -> ReportFigure:
    """Draw a panel for each embedding."""
    table: list[list[Any]] = [["group", "seed", "class", "x", "y"]]
    classes = list(dict.fromkeys(name for each in embeddings for name in each.names.tolist()))
    styles = {name: (COLOURS[i % 8], MARKERS[(i + i // 8) % 8]) for i, name in enumerate(classes)}
    panels = len(embeddings)
    with style(layout):
        width = layout.width if panels > 1 else min(layout.width, 4.6)
        legend = [short(name, 18) for name in classes] if len(classes) <= MAX_LEGEND else []
        below = legend_height(width, legend) if legend else 0
        titles = [textwrap.fill(each.title, int(width / panels / TITLE_LETTER)) for each in embeddings]
        above = 0.16 * max(title.count("\n") for title in titles)
        figure = new_figure(width, width * (0.49 if panels > 1 else 0.9) + below + above)
        size = 10 * (width / PAGE.width if panels > 1 else 1)
        for axes, title, each in zip(figure.subplots(1, panels, squeeze=False)[0], titles, embeddings, strict=True):
            for name in classes:
                x, y = each.points[each.names == name].T
                colour, marker = styles[name]
                axes.scatter(x, y, s=size, color=colour, marker=marker, linewidths=0, alpha=0.8, rasterized=True)
            axes.set_title(plain(title))
            axes.set(xticks=[], yticks=[], aspect="equal")
            axes.set_adjustable("datalim")
            axes.spines[:].set(visible=True, color="0.8")
            rows = zip(each.names.tolist(), *each.points.T.tolist(), strict=True)
            table += [[each.label, each.seed, *row] for row in rows]
        if legend:
            markers = [Line2D([], [], color=c, marker=m, linestyle="", markersize=4.5) for c, m in styles.values()]
            legend_below(figure, markers, legend)
    many = " Colours repeat: colour and marker together identify a class." if len(classes) > len(COLOURS) else ""
    many += " There are more classes than such pairs, so pairs repeat too." if len(classes) > MAX_LEGEND else ""
    shown = " and ".join(each.title for each in embeddings)
    return ReportFigure(
        "tsne",
        figure,
        table,
        f"t-SNE of test images of the first task's {len(classes)} classes after the last task: {shown}.",
        f"t-SNE of test images of the first task's classes in the final feature space: {shown}. Each point is an "
        "image, its features scaled to unit length. Points that are close have similar features; larger distances and "
        f"the two axes have no meaning.{many}",
    )


def _embed(run: StoredRun) -> tuple[Array, Array]:
    """Positions and class names. Features without spread are rejected, because t-SNE would crash the process."""
    from sklearn.manifold import TSNE

    features, names = _sample(run)
    different = len(np.unique(features.round(5), axis=0))
    if different < MIN_POINTS:
        raise MissingDataError(
            f"{run.path} has features of {len(features)} images with {different} different value"
            f"{'s' if different > 1 else ''}: t-SNE needs at least {MIN_POINTS}."
        )
    perplexity = min(30.0, (len(features) - 1) / 3)
    embedding = TSNE(2, perplexity=perplexity, init="pca", max_iter=ITERATIONS, random_state=0, n_jobs=1)
    return embedding.fit_transform(features), names


def _sample(run: StoredRun) -> tuple[Array, Array]:
    """Features of unit length and class names of at most MAX_POINTS images, balanced over classes."""
    tensors = run.tensors(len(run.sizes) - 1)
    features, labels = tensors.get("features"), tensors.get("labels")
    if features is None or labels is None or features.ndim != 2 or len(features) != len(labels):
        raise MissingDataError(f"{run.path} has no features of the first task's classes.")
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= run.sizes[0] or not np.isfinite(features).all():
        raise MissingDataError(
            f"{run.path} has features that are not finite, or of classes that are not in the first task."
        )
    each = max(1, MAX_POINTS // max(1, len(np.unique(labels))))
    kept = np.sort(np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)]))[:MAX_POINTS]
    chosen = features[kept].astype(np.float64)
    length = np.linalg.norm(chosen, axis=1, keepdims=True)
    names = np.array(run.classes, dtype=object)[labels[kept]]
    return chosen / np.maximum(length, 1e-12), names
