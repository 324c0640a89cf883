"""Terminal output of the model commands: learning steps, predictions and descriptions of models."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..classifier.folder import LearnPlan, LearnResult, count_classes
from ..classifier.model import ImagePrediction
from ..classifier.report import LearnReport, percent
from ..classifier.suggest import Suggestion
from ..data.inputs import InputProblem
from .evaluation import review_lines

SHOWN = 5  # problems of each kind, and confusions
CLASSES_SHOWN = 20
FEW_DETECTED = 0.5
REVIEWED = 10  # photos to review after a learning step
KINDS = {
    "unreadable": "unreadable images, left out",
    "duplicate": "duplicate images, left out",
    "conflict": "images that are known under another label, left out",
    "few": "classes with very few images",
    "skipped": "files left out",
    "names": "class names that differ only in case",
}


def print_problems(problems: Sequence[InputProblem], notes: Sequence[str] = ()) -> None:
    """Print problems to standard error: the number of each kind, and the first few."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for kind, title in KINDS.items():
        members = [problem for problem in problems if problem.kind == kind]
        if not members:
            continue
        console.print(f"warning: {title} ({len(members)}):", style="yellow", markup=False)
        for problem in members[:SHOWN]:
            console.print(f"  {problem.path}: {problem.text}", markup=False)
        if len(members) > SHOWN:
            console.print(f"  and {len(members) - SHOWN} more", markup=False)
    for note in notes:
        console.print(f"note: {note}", style="yellow", markup=False)


def print_plan(plan: LearnPlan) -> None:
    """Print what a folder of images would add to a model."""
    for title, counts in (("New classes", plan.new), ("Known classes that get more images", plan.known)):
        if counts:
            print(f"{title}: " + ", ".join(f"{label} ({count} images)" for label, count in counts.items()))
    print_problems(plan.problems)


def print_learn_result(result: LearnResult) -> None:
    """Print what a learning step did."""
    report, console = result.report, Console(highlight=False)
    learned, known = sum(report.images.values()), sum(report.known.values())
    if known:
        print(f"{known} {'image' if known == 1 else 'images'} already known, {learned} new")
    if not result.changed:
        print(f"{result.path} did not change: version {result.version}, {count_classes(result.classes)}")
        return
    groups = ((report.new, "new"), (report.extended, "extended"))
    parts = [f"{len(names)} {title}" for names, title in groups if names]
    print(
        f"{result.path}: version {result.version}, {count_classes(result.classes)} ({', '.join(parts)}), "
        f"{result.images} images, {report.seconds:.1f} s"
    )
    how = "held-out images" if result.trained else "cross-validated"
    for table in (_accuracies(report, how), _changes(report)):
        if table.row_count and report.after:
            print()
            console.print(table)
    lists = (_confusions(report), _similar(report), _training(report), _near_duplicates(report), _unknown(report))
    for lines in (*lists, _review(result)):
        if lines:
            print()
        for line in lines:
            console.print(Text(line), soft_wrap=True)


def _accuracies(report: LearnReport, how: str) -> Table:
    """Return rows with the accuracy of old and new classes, before and after."""
    table = Table(box=None, pad_edge=False)
    for column in (f"accuracy ({how})", "classes", "tested", "before", "after"):
        table.add_column(column, justify="left" if "accuracy" in column else "right")
    old = [label for label in report.after if label in report.before]
    groups = [("old classes", old), ("new classes", report.new), ("all classes", list(report.after))]
    for name, labels in groups if old else groups[2:]:
        if not labels:
            continue
        before = _percent(report.before, labels) if name == "old classes" else "-"
        labels = [label for label in labels if label in report.after]
        images = sum(report.after[label][1] for label in labels)
        table.add_row(name, str(len(labels)), str(images), before, _percent(report.after, labels))
    return table


def _changes(report: LearnReport) -> Table:
    """Return new classes and classes whose accuracy has changed, least accurate first."""

    def share(label: str) -> float:
        right, count = report.after[label]
        return right / count if count else 1.0

    changed = [label for label in report.after if report.after[label] != report.before.get(label)]
    table = Table(box=None, pad_edge=False)
    for column in ("class", "tested", "before", "after"):
        table.add_column(column, justify="left" if column == "class" else "right", overflow="fold")
    for label in sorted(changed, key=share)[:CLASSES_SHOWN]:
        before = _percent(report.before, [label]) if label in report.before else "new"
        table.add_row(Text(label), str(report.after[label][1]), before, _percent(report.after, [label]))
    if len(changed) > CLASSES_SHOWN:
        table.add_row(f"and {len(changed) - CLASSES_SHOWN} more", "", "", "")
    return table


def _percent(accuracy: Mapping[str, Sequence[int]], labels: Sequence[str]) -> str:
    right, count = (sum(accuracy[label][i] for label in labels) for i in (0, 1))
    return percent(right, count)


def _near_duplicates(report: LearnReport) -> list[str]:
    total = sum(report.near_duplicates.values())
    if not total:
        return []
    largest = sorted(report.near_duplicates.items(), key=lambda item: -item[1])[:SHOWN]
    names = ", ".join(f"{label} ({count})" for label, count in largest)
    more = ", ..." if len(report.near_duplicates) > SHOWN else ""
    return [
        f"Near-duplicates of other images of their class, never used to recognise each other: {total}: {names}{more}"
    ]


def _unknown(report: LearnReport) -> list[str]:
    return [] if report.unknown_detection is None else [f"Unknown images: {detection_text(report.unknown_detection)}"]


def detection_text(share: float) -> str:
    """Return a description of the expected detection of unknown images."""
    text = f"about {100 * share:.0f} % of the images of other classes are detected, at 5 % false alarms"
    return text if share >= FEW_DETECTED else f"{text}: the classes are too similar to rely on it"


def _review(result: LearnResult) -> list[str]:
    if not result.review:
        return []
    mislabelled = sum(photo.kind == "mislabelled" for photo in result.review)
    title = f"Photos to review: {mislabelled} look mislabelled, {len(result.review) - mislabelled} are not recognised."
    command = f"cscct review {shlex.quote(str(result.path))}"
    return [title, *review_lines(result.review[:REVIEWED]), f"All of them, and what to do about them: `{command}`"]


def _confusions(report: LearnReport) -> list[str]:
    if not report.confusions:
        return []
    pairs = [f"{true} taken for {taken} ({count})" for true, taken, count in report.confusions[:SHOWN]]
    more = f", and {len(report.confusions) - SHOWN} more" if len(report.confusions) > SHOWN else ""
    title = "Confused now and not before" if report.before else "Confused"
    return [f"{title}: {', '.join(pairs)}{more}"]


def _similar(report: LearnReport) -> list[str]:
    lines = [
        f"  {label}: " + ", ".join(f"{name} {value:.2f}" for name, value in near)
        for label, near in report.similar.items()
        if near
    ]
    if not lines:
        return []
    more = [f"  and {len(lines) - CLASSES_SHOWN} more"] if len(lines) > CLASSES_SHOWN else []
    return ["Old classes that new ones resemble (cosine of the class means):", *lines[:CLASSES_SHOWN], *more]


def _training(report: LearnReport) -> list[str]:
    """Return the method and the results of training; with a training-free predictor to compare with, those of both."""
    figures = report.training
    if figures is None:
        return []
    accuracies, likelihoods = figures["accuracy"], figures["log_likelihood"]
    parts = [
        f"{name} {accuracies[name]:.1f} %, log-likelihood {likelihoods[name]:.3f}"
        for name in accuracies
        if accuracies[name] is not None and likelihoods[name] is not None
    ]
    measured = f" On held-out images: {'; '.join(parts)}." if parts else ""
    outcome = "" if len(accuracies) == 1 else " Kept." if figures["kept"] else " Not kept."
    return [f"Trained with {figures['method']} ({figures['seconds']:.0f} s).{measured}{outcome}"]


def predictions_text(predictions: Sequence[ImagePrediction]) -> str:
    """Return one line per image."""
    lines = []
    for prediction in predictions:
        best = ", ".join(f"{label} {100 * score:.1f} %" for label, score in prediction.best)
        unknown = "resembles no class; nearest: " if prediction.unknown else ""
        text = f"error: {prediction.error}" if prediction.error is not None else unknown + best
        lines.append(f"{prediction.image}: {text}")
    encoding = sys.stdout.encoding or "utf-8"
    return "".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding)


def predictions_csv(predictions: Sequence[ImagePrediction], unknown: bool) -> str:
    """Return CSV with one row per image: classes and scores, best first."""
    from ..analysis.tables import csv_text  # imports scipy

    ranks = range(1, max([len(prediction.best) for prediction in predictions] + [1]) + 1)
    header = ["image", *(f"{name}_{rank}" for rank in ranks for name in ("label", "score"))]
    lines: list[list[Any]] = [[*header, *(["unknown", "unknown_score"] if unknown else []), "error"]]
    for prediction in predictions:
        cells: list[Any] = [cell for pair in prediction.best for cell in pair]
        cells += [""] * (2 * len(ranks) - len(cells))
        flag: list[Any] = ["" if prediction.unknown is None else str(prediction.unknown).lower()] if unknown else []
        flag += [prediction.unknown_score] if unknown else []
        lines.append([prediction.image, *cells, *flag, prediction.error or ""])
    return csv_text(lines)


def suggestions_text(suggestions: Sequence[Suggestion]) -> str:
    """Return one line per suggested image."""
    lines = []
    for entry in suggestions:
        if entry.error is not None:
            lines.append(f"{entry.image}: error: {entry.error}")
        else:
            lines.append(
                f"{entry.rank}. {entry.image}: {entry.label} {100 * (entry.probability or 0):.1f} %, or {entry.second}"
            )
    return "".join(f"{line}\n" for line in lines)


def suggestions_csv(suggestions: Sequence[Suggestion]) -> str:
    """Return CSV with one row per suggested image."""
    from ..analysis.tables import csv_text  # imports scipy

    columns = ("rank", "image", "label", "probability", "second", "score", "error")
    rows = [["" if getattr(entry, name) is None else getattr(entry, name) for name in columns] for entry in suggestions]
    return csv_text([list(columns), *rows])


def print_info(description: Mapping[str, Any]) -> None:
    """Print what a model or a run contains."""
    console = Console(highlight=False)
    size = f"{description['megabytes']:.1f} MB on disk"
    print(f"{description['path']}: {count_classes(len(description['classes']))}, {size}")
    values = {"trained_on": ", ".join(description.get("trained_on", ())) or "-"}
    for key in ("method", "backbone", "predictor", "trained_on", "exemplars", "dataset", "status"):
        if description.get(key) is not None:
            print(f"{key.replace('_', ' '):10} {values.get(key, description[key])}")
    accuracy = description.get("accuracy")
    if accuracy is not None:
        print(f"{'accuracy':10} {_percent(accuracy, list(accuracy))}{_measured_part(description)}")
    if description.get("unknown_detection") is not None:
        print(f"{'unknown':10} {detection_text(description['unknown_detection'])}")
    classes = Table(box=None, pad_edge=False)
    classes.add_column("class", overflow="fold")
    for column in ("images", "accuracy") if accuracy is not None else ("images",):
        classes.add_column(column, justify="right")
    for label, count in description["classes"].items():
        figures = [_percent(accuracy, [label]) if label in accuracy else "not measured"] if accuracy is not None else []
        classes.add_row(Text(label), "-" if count is None else str(count), *figures)
    print()
    console.print(classes)
    print()
    versions = Table(box=None, pad_edge=False)
    for column in ("version", "created (UTC)", "classes", "images", "message"):
        right = column in ("classes", "images")
        versions.add_column(column, justify="right" if right else "left", overflow="fold", no_wrap="(" in column)
    for version in description["versions"]:
        number = f"{version['number']}{' (current)' if version['current'] else ''}"
        created = version["created"][:16].replace("T", " ")
        images = str(version["images"]) if version["number"] else "-"  # of a run, they are not recorded
        row = (number, created, str(version["classes"]), images, version["message"])
        versions.add_row(*map(Text, row))
    console.print(versions)


def _measured_part(description: Mapping[str, Any]) -> str:
    """Return a note if classes were not measured, or if images were added since the last measurement."""
    if len(description["accuracy"]) < len(description["classes"]):
        return f" ({len(description['accuracy'])} of {count_classes(len(description['classes']))} measured)"
    measured, images = description.get("measured_images", 0), sum(description["classes"].values())
    return f" (measured with {measured} of {images} images)" if 0 < measured < images else ""
