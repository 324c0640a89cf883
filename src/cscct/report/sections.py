"""What the page says, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..analysis.differences import protocols
from ..analysis.groups import Group
from ..analysis.load import Missing
from ..analysis.measures import confusion_of, forgetting_of, losses_of, shares_of, similarity_of
from ..analysis.statistics import METRICS, Difference, Spread, SummaryRow
from . import figures, maps, page
from .canvas import FigureWriter, ReportFigure
from .losses import loss_parts
from .page import Section
from .tsne import choose_pair, feature_map

T = TypeVar("T")
DETAILED = 8  # groups whose own figures are shown
DETAILS = ("matrices", "forgetting", "confusion", "similarity", "losses")
COLUMNS = dict(zip(METRICS, ("Average incremental", "Last", "APT", "ACT", "Forgetting"), strict=True))
MEANINGS = {
    "Average incremental": "accuracy on all classes seen so far, averaged over tasks, the first included. "
    "This is the figure most papers give.",
    "Last": "accuracy on all classes after the last task.",
    "APT": "accuracy on past tasks: after each task from the second on, the mean accuracy on the tasks before it.",
    "ACT": "accuracy on the current task, measured just after it was learned, averaged over tasks.",
    "Forgetting": "best accuracy that a task ever had before the end, less the one at the end, averaged over all tasks "
    "but the last; lower is better.",
    "Gain": "in average incremental accuracy over the same method without additions: mean of the differences seed by "
    "seed, in percentage points, with its 95 % interval (Student's t).",
}


class Sections:
    def __init__(self, groups: Sequence[Group], writer: FigureWriter):
        self.groups, self.writer = groups, writer
        self.detailed = groups[:DETAILED]

    def summary(self, rows: Sequence[SummaryRow]) -> Section:
        header = ["Method", "Seeds", *COLUMNS.values(), "Gain over the base"]
        cells = [
            [_name(row.group), str(len(row.group.runs)), *map(_spread, row.metrics.values()), _gain(row)]
            for row in rows
        ]
        about = "All numbers are percent"
        about += "; mean ± standard deviation over seeds." if any(len(g.runs) > 1 for g in self.groups) else "."
        used = {name: meaning for name, meaning in MEANINGS.items() if name != "Gain" or any(row.gain for row in rows)}
        header = header if "Gain" in used else header[:-1]
        table = page.table(header, [row[: len(header)] for row in cells], text_columns=(0, len(COLUMNS) + 2))
        return Section("summary", "Summary", [table, page.paragraph(about), page.meanings(used)])

    def curves(self, log_axis: bool) -> Section:
        return self._add(Section("accuracy", "Accuracy over tasks"), [figures.accuracy_curves(self.groups, log_axis)])

    def bars(self, rows: Sequence[SummaryRow]) -> Section:
        return self._add(Section("apt-act", "Past and current tasks"), [figures.apt_and_act(rows)])

    def features(self) -> Section:
        section = Section("tsne", "Features of the first classes")
        try:
            return self._add(section, [feature_map(choose_pair(self.groups))])
        except Missing as missing:
            section.blocks.append(page.box(f"The figure is left out. {missing}"))
            return section

    def matrices(self) -> Section:
        about = "Accuracy on each task after each task. Down a column one sees a task being forgotten."
        section = Section("matrices", "Accuracy matrices", [page.paragraph(about)])
        return self._add(section, (maps.accuracy_map(self._file("matrix", g), g) for g in self.detailed))

    def forgetting(self) -> Section:
        about = "Best accuracy of each class before the last task, less its accuracy at the end; one axis for all."
        section = Section("forgetting", "Forgetting of each class", [page.paragraph(about)])
        found = self._compute(section, forgetting_of)
        limits = figures.forgetting_limits([values for _, values in found])
        return self._add(
            section, (figures.forgetting(self._file("forgetting", g), g, *values, limits) for g, values in found)
        )

    def confusion(self) -> Section:
        """The table is of all groups, the maps of some."""
        section = Section("confusion", "Old and new classes confused")
        shares = {group.label: cells for group, cells in self._compute(section, shares_of, self.groups)}
        if not shares:
            return section
        section.blocks += self._shares(shares)
        about = (
            "The maps show what test images of each class are taken for after the last task. Rows add up to 100 %; "
            "lines stand where a task begins (with many tasks: where the first ends and the last begins); colours "
            "follow the square root, so that small shares are seen."
        )
        section.blocks.append(page.paragraph(about))
        found = self._compute(section, confusion_of, [group for group in self.detailed if group.label in shares])
        return self._add(section, (maps.confusion_map(self._file("confusion", g), g, m) for g, m in found))

    def _shares(self, shares: dict[str, list[Spread]]) -> list[str]:
        header = [f"{true} as {said}" for true in ("old", "new") for said in ("old", "new")]
        lines: list[list[Any]] = [["group", "true_as_predicted", "share_mean", "share_sd"]]
        lines += [
            [label, what, cell.mean, cell.deviation]
            for label, cells in shares.items()
            for what, cell in zip(header, cells, strict=True)
        ]
        self.writer.keep_table("old-new", lines)
        about = (
            "After the last task: of the test images of old classes (all before that task) and of its new classes, the "
            "share in percent that is taken for an old or a new class, rightly or not."
        )
        rows = [[label, *map(_spread, cells)] for label, cells in shares.items()]
        return [page.paragraph(about), page.table(["Method", *header], rows)]

    def similarity(self) -> Section:
        about = (
            "Cosine between the mean feature of each class and those of the classes known before it, in the feature "
            "space of the network before the class was learned: what controlled transfer acts on. Grey where both came "
            "together or the column's class came later; lines stand where a task begins; one scale for all."
        )
        section = Section("similarity", "Similarity of new to old classes", [page.paragraph(about)])
        found = self._compute(section, similarity_of)
        limits = maps.similarity_limits([matrix for _, matrix in found])
        return self._add(
            section, (maps.similarity_map(self._file("similarity", g), g, matrix, limits) for g, matrix in found)
        )

    def losses(self) -> Section:
        about = (
            "Parts of the loss as they enter the sum, weights included, epoch by epoch. Vertical lines stand where a "
            "task begins; fine-tuning, if any, is shaded. The scales differ, and CSC is negative by its definition."
        )
        section = Section("losses", "Parts of the loss", [page.paragraph(about)])
        found = self._compute(section, losses_of)
        return self._add(section, (loss_parts(self._file("losses", g), g, series) for g, series in found))

    def protocol(self) -> Section:
        words = protocols(self.groups)
        marked = [name for name in words[0] if len({one[name] for one in words}) > 1]
        about = "What the numbers rest on." + (" Values that differ between groups are marked." if marked else "")
        boxes = [
            page.protocol_box(group.label, one, marked, is_open=len(self.groups) <= 3)
            for group, one in zip(self.groups, words, strict=True)
        ]
        header = ["Run", "Method", "Seed", "State", "Tasks", "Average incremental (%)", "Minutes"]
        rows = [
            [
                str(run.path),
                group.label,
                str(run.seed),
                run.result["status"],
                f"{len(run.sizes)} of {run.planned}",
                f"{run.summary[METRICS[0]]:.2f}",
                f"{sum(task.get('seconds', 0) for task in run.result['tasks']) / 60:.1f}",
            ]
            for group in self.groups
            for run in group.runs
        ]
        listing = page.folded(f"The runs ({len(rows)})", page.table(header, rows, text_columns=(0, 1, 3)))
        return Section("protocol", "Protocols", [page.paragraph(about), *boxes, listing])

    def _file(self, kind: str, group: Group) -> str:
        return self.writer.name(kind, group.label)

    def _compute(
        self, section: Section, compute: Callable[[Group], T], groups: Sequence[Group] | None = None
    ) -> list[tuple[Group, T]]:
        """What is there, group by group; what is not is told."""
        found = []
        for group in self.detailed if groups is None else groups:
            try:
                found.append((group, compute(group)))
            except Missing as missing:
                section.blocks.append(page.box(f"{group.label} is left out here. {missing}"))
        return found

    def _add(self, section: Section, pictures: Iterable[ReportFigure]) -> Section:
        """The pictures come one by one, so that one at a time is in memory."""
        shown = [page.figure(picture, self.writer.keep(picture)) for picture in pictures]
        section.blocks.append(page.figures(shown))
        if len(self.groups) > DETAILED and section.name in DETAILS:
            about = (
                f"Shown for the first {DETAILED} of {len(self.groups)} groups. For the others, make a report of their "
                "run folders alone: cscct report RUN_DIR..."
            )
            section.blocks.append(page.paragraph(about))
        return section


def _name(group: Group) -> str:
    return f"{group.label} (nearest mean)" if group.runs[0].headline == "nme" else group.label


def _spread(value: Spread | None) -> str:
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def _gain(row: SummaryRow) -> str:
    gain: Difference | None = row.gain
    if gain is None:
        return ""
    interval = "" if gain.low is None else f" [{gain.low:+.2f}, {gain.high:+.2f}]"
    seeds = f", {row.pairs} shared seeds" if row.pairs < len(row.group.runs) else ""
    return f"{gain.mean:+.2f}{interval}".replace("-", "−") + f" over {row.group.base}{seeds}"
