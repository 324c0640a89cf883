"""The published numbers of the paper, and the runs that reproduce them.

`published.csv` has one row per printed number. docs/reproducing.md lists the contradictions in the paper.
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
from ..runs.folder import RunFolder
from ..studies.grid import with_linear_rate
from ..studies.plan import PlannedRun
from ..text import suggest
from ..yamltext import Raw
from .scales import SCALES, USUAL_BATCH

Variant = Literal["base", "CSC", "CT", "CSCCT"]
VARIANTS: tuple[Variant, ...] = ("base", "CSC", "CT", "CSCCT")
DATASETS = {"CIFAR100": "cifar100", "ImageNet-Subset": "imagenet-subset"}


@dataclass(frozen=True)
class Cell:
    """A published number, or one that the paper shows only in a figure (`published` is None)."""

    dataset: str
    base: str
    variant: Variant
    B: int
    C: int
    batch_size: int
    memory: int
    published: float | None = None
    printed_gain: float | None = None  # as printed next to the number; not always equal to the difference

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.base if self.variant == "base" else f"{self.base}+{self.variant.lower()}"

    @property
    def column(self) -> tuple[str, str, int, int, int, int]:
        """Key of the cells of one column and base method, within which gains are computed."""
        return (self.dataset, self.base, self.B, self.C, self.batch_size, self.memory)


@dataclass(frozen=True)
class PaperResult:
    """A table or figure of the paper."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    shows: Literal["average_incremental_accuracy", "apt-act", "tsne", "phases"] = "average_incremental_accuracy"


@cache
def published() -> tuple[tuple[str, Cell], ...]:
    """Return every published cell with the table that prints it."""
    text = (resources.files("cscct") / "paper" / "published.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    gains = {_column(row): float(row["value"]) for row in rows if row["variant"] == "CSCCT_printed_gain"}
    cells = []
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
                printed_gain=gains.get(_column(row)) if row["variant"] == "CSCCT" else None,
            )
            cells.append((row["table"], cell))
    return tuple(cells)


def _column(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[key] for key in ("table", "dataset", "base_method", "B", "C", "batch_size", "memory_per_class"))


def _table(name: str) -> tuple[Cell, ...]:
    return tuple(cell for table, cell in published() if table == name)


def _phases() -> tuple[Cell, ...]:
    """Return the cells of Table 1 with equal tasks of 1, 2 and 5 classes, whose curves the supplement shows."""
    return tuple(cell for cell in _table("1") if cell.B == cell.C)


def _tsne() -> tuple[Cell, ...]:
    """Return the cells with B=50 and C=5. The paper does not state the protocol of its figure."""
    return tuple(cell for cell in _table("3") if (cell.B, cell.C) == (50, 5) and cell.variant in ("base", "CSC"))


def paper_results() -> dict[str, PaperResult]:
    """Return the tables and figures of the paper by name."""
    results = (
        PaperResult("table1", "Table 1: average incremental accuracy on CIFAR-100", _table("1")),
        PaperResult("table2", "Table 2: average incremental accuracy on ImageNet-Subset", _table("2")),
        PaperResult("table3", "Table 3: CSC and CT alone and together, LUCIR on CIFAR-100", _table("3")),
        PaperResult("s1", "Table S1: batch size, LUCIR on CIFAR-100", _table("S1")),
        PaperResult("s2", "Table S2: memory size, LUCIR on CIFAR-100", _table("S2")),
        PaperResult("apt-act", "Figure: accuracy on previous (APT) and current tasks (ACT)", _table("3"), "apt-act"),
        PaperResult("tsne", "Figure: t-SNE of the first task's classes after the last task", _tsne(), "tsne"),
        PaperResult("phases", "Figure: accuracy after each task, equal tasks", _phases(), "phases"),
    )
    return {result.name: result for result in results}


def find(name: str) -> PaperResult:
    """Return a table or figure of the paper; raise a `UserError` for an unknown name."""
    results = paper_results()
    if name not in results:
        raise UserError(f"The paper has no {name!r}{suggest(name, results)}; the results are {', '.join(results)}.")
    return results[name]


@dataclass(frozen=True)
class Request:
    """Options for reproducing a result.

    Attributes:
        scale: Name of a scale.
        recipe: `released` or `printed`.
        order: Class order. None: that of the recipe; `podnet`: the three orders of PODNet, one per seed.
        seeds: Seeds of the runs.
    """

    scale: str = "paper"
    recipe: str = "released"
    order: str | None = None
    seeds: tuple[int, ...] = (1, 2, 3)

    def dataset(self, cell: Cell) -> str:
        """Return the dataset of a cell at this scale."""
        scale = SCALES[self.scale]
        return cell.dataset if scale is None else scale.dataset

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise UserError(f"There is no scale {self.scale!r}{suggest(self.scale, SCALES)}; use {', '.join(SCALES)}.")
        if self.order == "podnet" and not set(self.seeds) <= {1, 2, 3}:
            raise UserError("PODNet's code has three class orders, so --order podnet goes with the seeds 1, 2 and 3.")


def plan_result(
    paper_result: PaperResult, request: Request, out: Path, overrides: Sequence[Raw] = ()
) -> list[tuple[Cell, PlannedRun]]:
    """Plan the runs of the cells of a paper result.

    Args:
        paper_result: Table or figure.
        request: How to reproduce it.
        out: Folder of the runs. Results of the same scale and recipe share it, and with it their runs.
        overrides: Further layers of settings.

    Returns:
        Every cell with each of its runs.
    """
    methods = list(dict.fromkeys(cell.method for cell in paper_result.cells))
    common = dict(zip(methods, tuned_for(overrides, methods), strict=True))
    plan = []
    for cell in paper_result.cells:
        layer = cell_layer(cell, request)
        name = cell_name(cell, request)
        for seed in request.seeds:
            layers = [layer, _order(request, seed), *common[cell.method], {"seed": seed}]
            settings = resolve(cell.method, request.dataset(cell), recipe=request.recipe, overrides=layers)
            plan.append((cell, PlannedRun(name, settings, RunFolder(out / f"{name}_seed{seed}"))))
    return plan


def cell_layer(cell: Cell, request: Request) -> Raw:
    """Return the settings of a cell that differ from the recipe of its method and dataset."""
    scale = SCALES[request.scale]
    if scale is None:
        layer: Raw = {"protocol": {"base": cell.B, "step": cell.C}, "memory": {"per_class": cell.memory}}
        if cell.batch_size != USUAL_BATCH[cell.dataset]:
            layer["train"] = {"batch_size": cell.batch_size}
    else:
        layer = scale.layer(cell.base, cell.dataset, cell.B, cell.C, cell.memory, cell.batch_size)
    for rate in with_linear_rate([layer], cell.base, request.dataset(cell), request.recipe)[1:]:
        merge(layer, rate)  # proportional to the batch size, as in Table S1
    return layer


def cell_name(cell: Cell, request: Request) -> str:
    """Return the name of a cell, from the values in the paper: all results that show the cell share its runs."""
    order = f"_order-{request.order}" if request.order else ""
    values = f"B{cell.B}-C{cell.C}_batch{cell.batch_size}_memory{cell.memory}"
    return f"{cell.dataset}_{cell.method}_{values}{order}"


def _order(request: Request, seed: int) -> Raw:
    if request.order is None:
        return {}
    return {"data": {"order": f"podnet-{seed}" if request.order == "podnet" else request.order}}
