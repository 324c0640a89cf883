"""What people see of a classifier that learns: what a step of learning did, predictions, and what a model holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..classifier.images import Problem
from ..classifier.prediction import Prediction
from ..classifier.report import LearnReport
from ..classifier.teaching import Plan, Taught, count_classes

SHOWN = 5  # of each kind of problem, of confusions
CLASSES_SHOWN = 20
KINDS = {
    "unreadable": "images that cannot be read, and are left out",
    "duplicate": "pictures that are there twice",
    "few": "classes with very few images",
    "skipped": "files that are left out",
}


def print_problems(problems: Sequence[Problem], notes: Sequence[str] = ()) -> None:
    """On the error stream: of each kind how many, and the first few."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for kind, words in KINDS.items():
        found = [problem for problem in problems if problem.kind == kind]
        if not found:
            continue
        console.print(f"warning: {words} ({len(found)}):", style="yellow", markup=False)
        for problem in found[:SHOWN]:
            console.print(f"  {problem.path}: {problem.text}", markup=False)
        if len(found) > SHOWN:
            console.print(f"  and {len(found) - SHOWN} more", markup=False)
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False)


def print_plan(plan: Plan) -> None:
    """What a folder would teach."""
    for title, counts in (("New classes", plan.new), ("Known classes that get more images", plan.known)):
        if counts:
            print(f"{title}: " + ", ".join(f"{label} ({count} images)" for label, count in counts.items()))
    print_problems(plan.problems)


def print_taught(taught: Taught) -> None:
    """What a step of learning did."""
    report, console = taught.report, Console(highlight=False)
    parts = [f"{len(names)} {words}" for names, words in ((report.new, "new"), (report.extended, "extended")) if names]
    print(
        f"{taught.path}: version {taught.version}, {count_classes(taught.classes)} ({', '.join(parts)}), "
        f"{taught.images} images, {report.seconds:.1f} s"
    )
    for table in (
        _accuracies(report, "on images held back" if taught.finetuned else "cross-validated"),
        _changes(report),
    ):
        if table.row_count:
            print()
            console.print(table)
    for lines in (_confusions(report), _similar(report), _finetuning(report)):
        if lines:
            print()
        for line in lines:
            console.print(Text(line), soft_wrap=True)


def _accuracies(report: LearnReport, how: str) -> Table:
    """Old and new classes, before and after."""
    table = Table(box=None, pad_edge=False)
    for column in (f"accuracy ({how})", "classes", "images", "before", "after"):
        table.add_column(column, justify="left" if "accuracy" in column else "right")
    old = [label for label in report.after if label in report.before]
    groups = [("old classes", old), ("new classes", report.new), ("all classes", list(report.after))]
    for name, labels in groups if old else groups[2:]:
        before = _percent(report.before, labels) if name == "old classes" else "-"
        images = sum(report.after[label][1] for label in labels)
        table.add_row(name, str(len(labels)), str(images), before, _percent(report.after, labels))
    return table


def _changes(report: LearnReport) -> Table:
    """New classes, and old ones whose accuracy is another; the least accurate first."""

    def share(label: str) -> float:
        right, count = report.after[label]
        return right / count if count else 1.0

    changed = [label for label in report.after if report.after[label] != report.before.get(label)]
    table = Table(box=None, pad_edge=False)
    for column in ("class", "images", "before", "after"):
        table.add_column(column, justify="left" if column == "class" else "right", overflow="fold")
    for label in sorted(changed, key=share)[:CLASSES_SHOWN]:
        before = _percent(report.before, [label]) if label in report.before else "new"
        table.add_row(Text(label), str(report.after[label][1]), before, _percent(report.after, [label]))
    if len(changed) > CLASSES_SHOWN:
        table.add_row(f"and {len(changed) - CLASSES_SHOWN} more", "", "", "")
    return table


def _percent(accuracy: Mapping[str, Sequence[int]], labels: Sequence[str]) -> str:
    right, count = (sum(accuracy[label][i] for label in labels) for i in (0, 1))
    return f"{100 * right / count:.1f} %" if count else "-"


def _confusions(report: LearnReport) -> list[str]:
    if not report.confusions:
        return []
    words = [f"{true} taken for {taken} ({count})" for true, taken, count in report.confusions[:SHOWN]]
    more = f", and {len(report.confusions) - SHOWN} more" if len(report.confusions) > SHOWN else ""
    title = "Confused now and not before" if report.before else "Confused"
    return [f"{title}: {', '.join(words)}{more}"]


def _similar(report: LearnReport) -> list[str]:
    found = {label: near for label, near in report.similar.items() if near}
    if not found:
        return []
    lines = [f"  {label}: " + ", ".join(f"{name} {value:.2f}" for name, value in near) for label, near in found.items()]
    more = [f"  and {len(lines) - CLASSES_SHOWN} more"] if len(lines) > CLASSES_SHOWN else []
    return ["Old classes that new ones resemble (cosine of the class means):", *lines[:CLASSES_SHOWN], *more]


def _finetuning(report: LearnReport) -> list[str]:
    found = report.finetune
    if found is None:
        return []
    kept = "kept" if found["kept"] else "not kept"
    return [
        f"Fine-tuning with {found['method']}: {found['fine_tuned']:.1f} % on images held back, "
        f"{found['training_free']:.1f} % without it; {kept} ({found['seconds']:.0f} s)"
    ]


def predictions_text(found: Sequence[Prediction]) -> str:
    """A line for each image."""
    lines = []
    for one in found:
        best = ", ".join(f"{label} {100 * score:.1f} %" for label, score in one.best)
        strange = "like nothing learned; nearest: " if one.unknown else ""
        lines.append(f"{one.image}: " + (f"error: {one.error}" if one.error is not None else strange + best))
    encoding = sys.stdout.encoding or "utf-8"
    return "".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding)


def predictions_csv(found: Sequence[Prediction], unknown: bool) -> str:
    """A line for each image: the classes and their scores, best first."""
    from ..analysis.tables import csv_text  # which takes scipy with it

    ranks = range(1, max([len(one.best) for one in found] + [1]) + 1)
    header = ["image", *(f"{name}_{rank}" for rank in ranks for name in ("label", "score"))]
    lines: list[list[Any]] = [[*header, *(["unknown"] if unknown else []), "error"]]
    for one in found:
        cells = [cell for pair in one.best for cell in pair]
        cells += [""] * (2 * len(ranks) - len(cells))
        asked = ["" if one.unknown is None else str(one.unknown).lower()] if unknown else []
        lines.append([one.image, *cells, *asked, one.error or ""])
    return csv_text(lines)


def print_info(found: Mapping[str, Any]) -> None:
    """What a model or a run holds."""
    console = Console(highlight=False)
    print(f"{found['path']}: {count_classes(len(found['classes']))}, {found['megabytes']:.1f} MB on disk")
    words = {"finetuned": ", ".join(found.get("finetuned", ())) or "no"}
    for key in ("backbone", "predictor", "finetuned", "exemplars", "method", "dataset", "status"):
        if key in found:
            print(f"{key:10} {words.get(key, found[key])}")
    classes = Table(box=None, pad_edge=False)
    classes.add_column("class", overflow="fold")
    classes.add_column("images", justify="right")
    for label, count in found["classes"].items():
        classes.add_row(Text(label), "-" if count is None else str(count))
    print()
    console.print(classes)
    if "versions" in found:
        print()
        versions = Table(box=None, pad_edge=False)
        for column in ("version", "made", "classes", "images", "message"):
            versions.add_column(column, justify="right" if column in ("classes", "images") else "left", overflow="fold")
        for one in found["versions"]:
            number = f"{one['number']}{' (now)' if one['current'] else ''}"
            row = (number, one["created"], str(one["classes"]), str(one["images"]), one["message"])
            versions.add_row(*map(Text, row))
        console.print(versions)
