"""Sections of the page. A figure that cannot be drawn is omitted, and the section gives the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from ..analysis.differences import protocols
from ..analysis.groups import Group
from ..analysis.load import MissingDataError
from ..analysis.measures import confusion_of, forgetting_of, losses_of, shares_of, similarity_of
from ..analysis.statistics import AVERAGE, Spread, SummaryRow
from ..analysis.tables import format_spread
from . import figures, maps, page
from .canvas import COLUMN, PAGE, FigureWriter, Layout, ReportFigure
from .losses import loss_curves
from .page import EmbeddedFigure, Section, SvgImage
from .summary import summary_blocks
from .sweeps import find_sweeps, sweep_figure
from .tsne import choose_pair, embed_runs, feature_map

T = TypeVar("T")
Draw = Callable[[Layout], ReportFigure]
MAX_DETAILED = 8  # groups with separate figures
MAX_PHONE_WIDTH = 4.5  # inches; text of wider figures is too small on a phone


class Sections:
    """Builds the sections of a report and writes their figures."""

    def __init__(self, groups: Sequence[Group], rows: Sequence[SummaryRow], writer: FigureWriter, log_axis: bool):
        self.groups, self.rows, self.writer, self.log_axis = groups, rows, writer, log_axis
        self.detailed = groups[:MAX_DETAILED]

    def build(self) -> list[Section]:
        """Return all sections in the order of the page, and write their figures."""
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
            section.blocks.append(_omitted("The rest of this section", error))
        return section

    def _summary(self, section: Section) -> None:
        section.blocks += summary_blocks(self.rows)

    def _accuracy(self, section: Section) -> None:
        """Add curves for each dataset, bars, and a figure for each setting that was varied."""
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
            "Accuracy on each task after each task. A column shows how a task is forgotten. All matrices have the same "
            "colour scale."
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
        computed = self._compute(section, forgetting_of, self.detailed)
        limits = figures.forgetting_limits([values for _, values in computed])
        arguments = [(group, (*values, limits)) for group, values in computed]
        self._add(section, self._each("forgetting", figures.forgetting, arguments))
        self._note_omitted(section)

    def _confusion(self, section: Section) -> None:
        """Add a table of all groups, and maps of the first groups."""
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
        computed = self._compute(section, confusion_of, [group for group in self.detailed if group.label in shares])
        self._add(section, self._each("confusion", maps.confusion_map, [(g, (matrix,)) for g, matrix in computed]))
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
            "of that task), the percentage that is predicted as any old or any new class, correctly or not."
        )
        rows = [[label, *map(format_spread, cells)] for label, cells in shares.items()]
        return [page.paragraph(about), page.table(["Method", *header], rows)]

    def _features(self, section: Section) -> None:
        about = (
            "The similarity maps show the cosine between the mean feature of each class and those of the classes "
            "learned before it, in the feature space of the network before the class was learned, which controlled "
            "transfer uses. Grey: classes of the same task, or the class of the column was learned later. Lines mark "
            "where a task begins. All maps have the same colour scale."
        )
        section.blocks.append(page.paragraph(about))
        computed = self._compute(section, similarity_of, self.detailed)
        limits = maps.similarity_limits([matrix for _, matrix in computed])
        draws = self._each("similarity", maps.similarity_map, [(g, (matrix, limits)) for g, matrix in computed])
        try:
            draws.insert(0, ("The t-SNE figure", partial(feature_map, embed_runs(choose_pair(self.groups)))))
        except Exception as error:
            section.blocks.append(_omitted("The t-SNE figure", error))
        self._add(section, draws)
        self._note_omitted(section)

    def _losses(self, section: Section) -> None:
        about = (
            "Each weighted term of the training loss in each epoch, averaged over the batches. Vertical lines mark "
            "where a task begins; fine-tuning is shaded. The vertical scales differ; CSC is negative by definition."
        )
        section.blocks.append(page.paragraph(about))
        computed = self._compute(section, losses_of, self.detailed)
        self._add(section, self._each("losses", loss_curves, [(g, (series,)) for g, series in computed]))
        self._note_omitted(section)

    def _protocol(self, section: Section) -> None:
        section.blocks.append(page.folded(f"All runs ({sum(len(g.runs) for g in self.groups)})", self._runs()))
        descriptions = protocols(self.groups)
        marked = [name for name in descriptions[0] if len({each[name] for each in descriptions}) > 1]
        about = "The settings of each group." + (" Values that differ between groups are marked." if marked else "")
        boxes = [
            page.protocol_box(group.label, description, marked, is_open=len(self.groups) <= 4)
            for group, description in zip(self.groups, descriptions, strict=True)
        ]
        section.blocks += [page.paragraph(about), page.protocols(boxes)]

    def _runs(self) -> str:
        header = ["Run", "Method", "Seed", "Status", "Tasks", "Average incremental (%)", "Minutes"]
        rows = []
        for group, run in [(g, run) for g in self.groups for run in g.runs]:
            average = run.summary[AVERAGE]
            minutes = sum(task.get("seconds") or 0 for task in run.result["tasks"]) / 60
            cells = [str(run.path), group.label, str(run.seed), str(run.result["status"])]
            cells += [f"{len(run.sizes)} of {run.planned}", "–" if average is None else f"{average:.2f}"]
            rows.append([*cells, f"{minutes:.1f}"])
        return page.table(header, rows, text_columns=(0, 1, 3))

    def _compute(
        self, section: Section, compute: Callable[[Group], T], groups: Sequence[Group]
    ) -> list[tuple[Group, T]]:
        """Return groups with the value of `compute`. If it fails for a group, the section gives the reason."""
        computed = []
        for group in groups:
            try:
                computed.append((group, compute(group)))
            except Exception as error:
                section.blocks.append(_omitted(group.label, error))
        return computed

    def _each(
        self, kind: str, draw: Callable[..., ReportFigure], values: Sequence[tuple[Group, tuple[Any, ...]]]
    ) -> list[tuple[str, Draw]]:
        """Return a function for each group that draws its figure from the values."""
        return [(g.label, partial(draw, self.writer.name(kind, g.label), g, *rest)) for g, rest in values]

    def _add(self, section: Section, draws: Iterable[tuple[str, Draw]]) -> None:
        """Draw and write figures, wide ones in two layouts. Only the figures of one `draw` are in memory at a time."""
        shown = []
        for label, draw in draws:
            try:
                picture = draw(PAGE)
                narrow = draw(COLUMN) if self.writer.pdf or picture.width > MAX_PHONE_WIDTH else None
            except Exception as error:
                section.blocks.append(_omitted(label, error))
                continue
            try:
                svg, narrow_svg = self.writer.write(picture, narrow)
            except OSError:  # the report cannot be written
                raise
            except Exception as error:
                section.blocks.append(_omitted(label, error))
                continue
            images = SvgImage.of(picture, svg), SvgImage.of(narrow, narrow_svg) if narrow else None
            formats = ("png", "svg", "csv", *(["pdf"] if self.writer.pdf else []))
            shown.append(EmbeddedFigure(picture.name, picture.alt, picture.caption, *images, formats))
        section.blocks.append(page.figures(shown))

    def _note_omitted(self, section: Section) -> None:
        if len(self.groups) > MAX_DETAILED:
            about = (
                f"Shown for the first {MAX_DETAILED} of {len(self.groups)} groups. For other groups, make a report of "
                "their run folders only: cscct report RUN_DIR..."
            )
            section.blocks.append(page.paragraph(about))


def _omitted(what: str, error: Exception) -> str:
    known = isinstance(error, MissingDataError)
    reason = str(error) if known else f"It cannot be drawn: {type(error).__name__}: {error}."
    return page.box(f"{what} is omitted. {reason}")
