"""The paper's results: the published numbers, and for each the run that gives ours.

`published.csv` holds them as they are printed, a row each; what the print contradicts is told in docs/reproducing.md.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, cast

from ..config import merge, resolve, tuned_for
from ..errors import UserError
from ..methods import suggest
from ..runs.folder import RunFolder
from ..studies.grid import with_linear_rate
from ..studies.plan import PlannedRun
from ..yamltext import Raw
from .scales import SCALES, USUAL_BATCH

Variant = Literal["base", "CSC", "CT", "CSCCT"]
VARIANTS: tuple[Variant, ...] = ("base", "CSC", "CT", "CSCCT")
DATASETS = {"CIFAR100": "cifar100", "ImageNet-Subset": "imagenet-subset"}


@dataclass(frozen=True)
class Cell:
    """One published number, or one that the paper shows only in a picture (`published` is None)."""

    dataset: str
    base: str
    variant: Variant
    B: int
    C: int
    batch_size: int
    memory: int
    published: float | None = None
    printed_gain: float | None = None  # as the paper prints it beside the number; not always the difference

    @property
    def method(self) -> str:
        return self.base if self.variant == "base" else f"{self.base}+{self.variant.lower()}"

    @property
    def column(self) -> tuple[str, str, int, int, int, int]:
        """What the cells of one column and base have in common: gains are taken within it."""
        return (self.dataset, self.base, self.B, self.C, self.batch_size, self.memory)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the paper."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    shows: Literal["average_incremental_accuracy", "apt-act", "tsne", "phases"] = "average_incremental_accuracy"


@cache
def published() -> tuple[tuple[str, Cell], ...]:
    """Every cell with the table that prints it."""
    text = (resources.files("cscct") / "paper" / "published.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    gains = {_place(row): float(row["value"]) for row in rows if row["variant"] == "CSCCT_printed_gain"}
    found = []
    for row in rows:
        if row["variant"] in VARIANTS:
            cell = Cell(
                dataset=DATASETS[row["dataset"]],
                base=row["base_method"].lower(),
                variant=cast(Variant, row["variant"]),
                B=int(row["B"]),
                C=int(row["C"]),
                batch_size=int(row["batch_size"]),
                memory=int(row["memory_per_class"]),
                published=float(row["value"]),
                printed_gain=gains.get(_place(row)) if row["variant"] == "CSCCT" else None,
            )
            found.append((row["table"], cell))
    return tuple(found)


def _place(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[key] for key in ("table", "dataset", "base_method", "B", "C", "batch_size", "memory_per_class"))


def _table(name: str) -> tuple[Cell, ...]:
    return tuple(cell for table, cell in published() if table == name)


def _phases() -> tuple[Cell, ...]:
    """Equal tasks of 1, 2 and 5 classes: the cells of Table 1 whose curves the supplement shows."""
    return tuple(cell for cell in _table("1") if cell.B == cell.C)


def _tsne() -> tuple[Cell, ...]:
    """After 50 classes and then 5 at a time; the paper does not say which of its step sizes it is."""
    return tuple(cell for cell in _table("3") if (cell.B, cell.C) == (50, 5) and cell.variant in ("base", "CSC"))


def exhibits() -> dict[str, Exhibit]:
    every = (
        Exhibit("table1", "Table 1: average incremental accuracy on CIFAR-100", _table("1")),
        Exhibit("table2", "Table 2: average incremental accuracy on ImageNet-Subset", _table("2")),
        Exhibit("table3", "Table 3: CSC and CT alone and together, LUCIR on CIFAR-100", _table("3")),
        Exhibit("s1", "Table S1: batch size, LUCIR on CIFAR-100", _table("S1")),
        Exhibit("s2", "Table S2: memory size, LUCIR on CIFAR-100", _table("S2")),
        Exhibit("apt-act", "Figure: accuracy on previous (APT) and current tasks (ACT)", _table("3"), "apt-act"),
        Exhibit("tsne", "Figure: t-SNE of the first task's classes after the last task", _tsne(), "tsne"),
        Exhibit("phases", "Figure: accuracy after each task, equal tasks", _phases(), "phases"),
    )
    return {one.name: one for one in every}


def find(name: str) -> Exhibit:
    every = exhibits()
    if name not in every:
        raise UserError(f"The paper has no {name!r}{suggest(name, every)}; there are {', '.join(every)}.")
    return every[name]


@dataclass(frozen=True)
class Request:
    """How to reproduce: at which scale, by which recipe, in which class order, with which seeds."""

    scale: str = "paper"
    recipe: str = "released"
    order: str | None = None  # None: as the recipe has it; `podnet`: PODNet's three, one for each seed
    seeds: tuple[int, ...] = (1, 2, 3)

    def dataset(self, cell: Cell) -> str:
        scale = SCALES[self.scale]
        return cell.dataset if scale is None else scale.dataset

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise UserError(f"There is no scale {self.scale!r}{suggest(self.scale, SCALES)}; use {', '.join(SCALES)}.")
        if self.order == "podnet" and not set(self.seeds) <= {1, 2, 3}:
            raise UserError("PODNet's code has three class orders, so --order podnet goes with the seeds 1, 2 and 3.")


def plan_exhibit(
    exhibit: Exhibit, request: Request, out: Path, overrides: Sequence[Raw] = ()
) -> list[tuple[Cell, PlannedRun]]:
    """The runs behind the cells of an exhibit. Exhibits of one scale share `out`, and with it their runs."""
    methods = list(dict.fromkeys(cell.method for cell in exhibit.cells))
    common = dict(zip(methods, tuned_for(overrides, methods), strict=True))
    plan = []
    for cell in exhibit.cells:
        layer = cell_layer(cell, request)
        name = cell_name(cell, request)
        for seed in request.seeds:
            own = [layer, _order(request, seed), *common[cell.method], {"seed": seed}]
            settings = resolve(cell.method, request.dataset(cell), recipe=request.recipe, overrides=own)
            plan.append((cell, PlannedRun(name, settings, RunFolder(out / f"{name}_seed{seed}"))))
    return plan


def cell_layer(cell: Cell, request: Request) -> Raw:
    """What a cell sets beside the recipe of its method and dataset."""
    scale = SCALES[request.scale]
    if scale is None:
        layer: Raw = {"protocol": {"base": cell.B, "step": cell.C}, "memory": {"per_class": cell.memory}}
        if cell.batch_size != USUAL_BATCH[cell.dataset]:
            layer["train"] = {"batch_size": cell.batch_size}
    else:
        layer = scale.layer(cell.base, cell.dataset, cell.B, cell.C, cell.memory, cell.batch_size)
    for rate in with_linear_rate([layer], cell.base, request.dataset(cell), request.recipe)[1:]:
        merge(layer, rate)  # in proportion to the batch size, as in Table S1
    return layer


def cell_name(cell: Cell, request: Request) -> str:
    """By the paper's own values, so that the same cell is found again by every exhibit that shows it."""
    order = f"_order-{request.order}" if request.order else ""
    values = f"B{cell.B}-C{cell.C}_batch{cell.batch_size}_memory{cell.memory}"
    return f"{cell.dataset}_{cell.method}_{values}{order}"


def _order(request: Request, seed: int) -> Raw:
    if request.order is None:
        return {}
    return {"data": {"order": f"podnet-{seed}" if request.order == "podnet" else request.order}}
