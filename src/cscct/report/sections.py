"""The sections of the page. A figure that cannot be drawn is left out with its reason, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from ..analysis.differences import protocols
from ..analysis.groups import Group
from ..analysis.load import Missing
from ..analysis.measures import confusion_of, forgetting_of, losses_of, shares_of, similarity_of
from ..analysis.statistics import METRICS, Spread, SummaryRow
from . import figures, maps, page
from .canvas import FigureWriter, ReportFigure
from .losses import loss_curves
from .page import Section
from .summary import show_spread, summary_blocks
from .sweeps import find_sweeps, sweep_figure
from .tsne import choose_pair, feature_map

T = TypeVar("T")
Draw = Callable[[], ReportFigure]
DETAILED = 8  # groups that have figures of their own


class Sections:
    """Builds the sections of a report and writes their figures."""

    def __init__(self, groups: Sequence[Group], rows: Sequence[SummaryRow], writer: FigureWriter, log_axis: bool):
        self.groups, self.rows, self.writer, self.log_axis = groups, rows, writer, log_axis
        self.detailed = groups[:DETAILED]

    def build(self) -> list[Section]:
        """All sections, in the order of the page."""
        parts: list[tuple[str, str, Callable[[Section], None]]] = [
            ("summary", "Summary", self._summary),
            ("accuracy", "Accuracy", self._accuracy),
            ("matrices", "Accuracy matrices", self._matrices),
            ("forgetting", "Forgetting by class", self._forgetting),
            ("confusion", "Confusion of old and new classes", self._confusion),
            ("losses", "Loss terms", self._losses),
            ("features", "Feature space", self._features),
            ("protocol", "Protocols", self._protocol),
        ]
        return [self._section(*part) for part in parts]

    def _section(self, name: str, title: str, fill: Callable[[Section], None]) -> Section:
        section = Section(name, title)
        try:
            fill(section)
        except OSError:  # the report cannot be written
            raise
        except Exception as error:
            section.blocks.append(_left_out("The rest of this section", error))
        return section

    def _summary(self, section: Section) -> None:
        section.blocks += summary_blocks(self.rows)

    def _accuracy(self, section: Section) -> None:
        """Curves for each dataset, bars, and a figure for each setting that was varied."""
        datasets = list(dict.fromkeys(str(group.runs[0].settings["dataset"]) for group in self.groups))
        draws: list[tuple[str, Draw]] = []
        for dataset in datasets:
            name = "accuracy" if len(datasets) == 1 else self.writer.name("accuracy", dataset)
            groups = [group for group in self.groups if group.runs[0].settings["dataset"] == dataset]
            draws.append((f"Accuracy on {dataset}", partial(figures.accuracy_curves, name, groups, self.log_axis)))
        draws.append(("APT and ACT", partial(figures.apt_and_act, self.rows)))
        for setting, sweeps in find_sweeps(self.rows).items():
            draw = partial(sweep_figure, self.writer.name("sweep", setting), sweeps)
            draws.append((f"Accuracy against {setting}", draw))
        self._add(section, draws)

    def _matrices(self, section: Section) -> None:
        about = (
            "Accuracy on each task after each task. Down a column one sees how a task is forgotten. All matrices have "
            "the same colour scale, which fits their values."
        )
        section.blocks.append(page.paragraph(about))
        limits = maps.accuracy_limits(self.detailed)
        self._add(section, self._each("matrix", maps.accuracy_map, [(group, (limits,)) for group in self.detailed]))
        self._note_omitted(section)

    def _forgetting(self, section: Section) -> None:
        about = (
            "Best accuracy of each class before the last task minus its accuracy after it; negative where the class "
            "improved. All figures have the same axis."
        )
        section.blocks.append(page.paragraph(about))
        found = self._compute(section, forgetting_of, self.detailed)
        limits = figures.forgetting_limits([values for _, values in found])
        self._add(
            section, self._each("forgetting", figures.forgetting, [(g, (*values, limits)) for g, values in found])
        )
        self._note_omitted(section)

    def _confusion(self, section: Section) -> None:
        """A table of all groups, and maps of the first."""
        shares = {group.label: cells for group, cells in self._compute(section, shares_of, self.groups)}
        if not shares:
            return
        section.blocks += self._shares(shares)
        about = (
            "The maps show the predicted classes of the test images of each class after the last task. Rows add up to "
            "100 %. Lines mark where a task begins (with many tasks: the end of the first and the start of the last). "
            "Colours follow the square root of the share, so that small shares are visible."
        )
        section.blocks.append(page.paragraph(about))
        found = self._compute(section, confusion_of, [group for group in self.detailed if group.label in shares])
        self._add(section, self._each("confusion", maps.confusion_map, [(g, (matrix,)) for g, matrix in found]))
        self._note_omitted(section)

    def _shares(self, shares: dict[str, list[Spread]]) -> list[str]:
        header = [f"{true} as {predicted}" for true in ("old", "new") for predicted in ("old", "new")]
        lines: list[list[Any]] = [["group", "true_as_predicted", "share_mean", "share_sd"]]
        lines += [
            [label, what, cell.mean, cell.deviation]
            for label, cells in shares.items()
            for what, cell in zip(header, cells, strict=True)
        ]
        self.writer.write_table("old-new", lines)
        about = (
            "After the last task: of the test images of old classes (all before that task) and of new classes (those "
            "of that task), the percentage that is predicted as some old or some new class, whether correctly or not."
        )
        rows = [[label, *map(show_spread, cells)] for label, cells in shares.items()]
        return [page.paragraph(about), page.table(["Method", *header], rows)]

    def _features(self, section: Section) -> None:
        about = (
            "The similarity maps show the cosine between the mean feature of each class and those of the classes "
            "learned before it, in the feature space of the network before the class was learned, which controlled "
            "transfer uses. Grey: classes of the same task, or the column's class came later. Lines mark where a task "
            "begins. All maps have the same colour scale."
        )
        section.blocks.append(page.paragraph(about))
        found = self._compute(section, similarity_of, self.detailed)
        limits = maps.similarity_limits([matrix for _, matrix in found])
        draws = self._each("similarity", maps.similarity_map, [(g, (matrix, limits)) for g, matrix in found])
        self._add(section, [("The t-SNE figure", lambda: feature_map(choose_pair(self.groups))), *draws])
        self._note_omitted(section)

    def _losses(self, section: Section) -> None:
        about = (
            "Each term of the training loss with its weight, epoch by epoch, averaged over the batches. Vertical lines "
            "mark where a task begins; fine-tuning, if any, is shaded. The vertical scales differ; CSC is negative by "
            "definition."
        )
        section.blocks.append(page.paragraph(about))
        found = self._compute(section, losses_of, self.detailed)
        self._add(section, self._each("losses", loss_curves, [(g, (series,)) for g, series in found]))
        self._note_omitted(section)

    def _protocol(self, section: Section) -> None:
        section.blocks.append(page.folded(f"All runs ({sum(len(g.runs) for g in self.groups)})", self._runs()))
        words = protocols(self.groups)
        marked = [name for name in words[0] if len({one[name] for one in words}) > 1]
        about = "The settings of each group." + (" Values that differ between groups are marked." if marked else "")
        boxes = [
            page.protocol_box(group.label, one, marked, is_open=len(self.groups) <= 4)
            for group, one in zip(self.groups, words, strict=True)
        ]
        section.blocks += [page.paragraph(about), page.protocols(boxes)]

    def _runs(self) -> str:
        header = ["Run", "Method", "Seed", "Status", "Tasks", "Average incremental (%)", "Minutes"]
        rows = []
        for group, run in [(g, run) for g in self.groups for run in g.runs]:
            average = run.summary[METRICS[0]]
            minutes = sum(task.get("seconds") or 0 for task in run.result["tasks"]) / 60
            cells = [str(run.path), group.label, str(run.seed), str(run.result["status"])]
            cells += [f"{len(run.sizes)} of {run.planned}", "–" if average is None else f"{average:.2f}"]
            rows.append([*cells, f"{minutes:.1f}"])
        return page.table(header, rows, text_columns=(0, 1, 3))

    def _compute(
        self, section: Section, compute: Callable[[Group], T], groups: Sequence[Group]
    ) -> list[tuple[Group, T]]:
        """The groups for which it succeeds; the section says why others are missing."""
        found = []
        for group in groups:
            try:
                found.append((group, compute(group)))
            except Exception as error:
                section.blocks.append(_left_out(group.label, error))
        return found

    def _each(
        self, kind: str, draw: Callable[..., ReportFigure], values: Sequence[tuple[Group, tuple[Any, ...]]]
    ) -> list[tuple[str, Draw]]:
        """A figure for each group, to be drawn from its values."""
        return [(g.label, partial(draw, self.writer.name(kind, g.label), g, *rest)) for g, rest in values]

    def _add(self, section: Section, draws: Iterable[tuple[str, Draw]]) -> None:
        """Draws figures one at a time, so that one at a time is in memory."""
        shown = []
        for label, draw in draws:
            try:
                picture = draw()
            except Exception as error:
                section.blocks.append(_left_out(label, error))
                continue
            try:
                shown.append((picture, self.writer.write(picture)))
            except OSError:  # the report cannot be written
                raise
            except Exception as error:
                section.blocks.append(_left_out(label, error))
        section.blocks.append(page.figures(shown))

    def _note_omitted(self, section: Section) -> None:
        if len(self.groups) > DETAILED:
            about = (
                f"Shown for the first {DETAILED} of {len(self.groups)} groups. For the others, make a report of their "
                "run folders alone: cscct report RUN_DIR..."
            )
            section.blocks.append(page.paragraph(about))


def _left_out(what: str, error: Exception) -> str:
    reason = str(error) if isinstance(error, Missing) else f"It cannot be drawn: {type(error).__name__}: {error}."
    return page.box(f"{what} is left out here. {reason}")
