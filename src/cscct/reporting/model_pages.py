"""Pages about models: photos to review, and the result of a test."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from ..classifier.report import percent
from ..classifier.review import ReviewPhoto
from ..classifier.testing import FolderTest
from ..storage import make_folder, write_text
from .canvas import FigureWriter, ReportFigure
from .maps import confusion_figure
from .page import EmbeddedFigure, Section, SvgImage, box, figures, paragraph, render, table

MAX_TABLE = 40  # classes whose confusion is shown as a table


def contact_sheet(title: str, photos: Sequence[tuple[ReviewPhoto, bytes | None]]) -> str:
    """Return a self-contained page with the photos to review.

    Args:
        title: Name of the model.
        photos: Photos with a small JPEG of each, or None.
    """
    sections = [Section("summary", "Summary", [_explanation(len(photos))])]
    for kind, heading in (("mislabelled", "Looks mislabelled"), ("not recognised", "Not recognised")):
        members = [entry for entry in photos if entry[0].kind == kind]
        if members:
            items = "".join(_card(photo, image) for photo, image in members)
            sections.append(
                Section(kind.replace(" ", "-"), f"{heading} ({len(members)})", [f'<ul class="sheet">{items}</ul>'])
            )
    return render(
        f"Photos to review: {title}", "Nothing was changed.", sections, footer="The page contains all images."
    )


def _explanation(count: int) -> str:
    if not count:
        return paragraph("All photos are recognised by a classifier that was computed without them.")
    return box(
        f"A classifier that was computed without the photo assigns {count} photos to another class. The label may be "
        "wrong, or the photo may be unusual. Use the identity below a photo to change it:",
        [
            "cscct review MODEL --move ID CLASS",
            "cscct review MODEL --remove ID",
            "cscct review MODEL --keep ID (the label is right: do not list the photo again)",
        ],
    )


def _card(photo: ReviewPhoto, image: bytes | None) -> str:
    source = "" if image is None else base64.b64encode(image).decode()
    shown = f'<img alt="{escape(photo.name)}" src="data:image/jpeg;base64,{source}">' if source else "no image stored"
    own, best = 100 * photo.probability, 100 * photo.predicted_probability
    return (
        f'<li><div class="photo">{shown}</div><p>labelled <b>{escape(photo.label)}</b> ({own:.1f} %)</p>'
        f"<p>looks like <b>{escape(photo.predicted)}</b> ({best:.1f} %)</p><p>{escape(photo.name)}</p>"
        f"<p><code>{escape(photo.id[:12])}</code></p></li>"
    )


def confusion_counts(result: FolderTest) -> list[list[str]]:
    """Return the confusion matrix of a test as a table with a header. All classes that occur have a column.

    Args:
        result: The result.
    """
    names = list(dict.fromkeys([*result.confusion, *(name for row in result.confusion.values() for name in row)]))
    rows = [[true, *(str(row.get(name, 0)) for name in names)] for true, row in result.confusion.items()]
    return [["true class", *names], *rows]


def write_test(result: FolderTest, out: Path) -> Path:
    """Write the result of a test to a folder: a page, the confusion matrix as figure and CSV, and CSV files of classes
    and misclassified images.

    Args:
        result: The result.
        out: The folder.

    Returns:
        Path of the page.
    """
    tables, writer = FigureWriter(make_folder(out)), FigureWriter(make_folder(out / "figures"))
    header, *rows = confusion_counts(result)
    names = header[1:]
    counts = np.zeros((len(names), len(names)))
    for row in rows:
        counts[names.index(row[0])] = [float(cell) for cell in row[1:]]
    shares = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    caption = "Horizontal: predicted class. Vertical: true class. Colour: share of the images of the true class."
    picture = ReportFigure(
        "confusion", confusion_figure(shares, names, [len(names)]), [header, *rows], _summary(result), caption
    )
    svg, _ = writer.write(picture)
    classes = [["class", "correct", "images", "accuracy"]]
    classes += [[name, str(right), str(n), percent(right, n)] for name, (right, n) in _worst_first(result)]
    wrong = [["image", "class", "predicted", "probability of class", "probability of predicted"]]
    wrong += [
        [photo.image, photo.label, photo.predicted, f"{photo.probability:.4f}", f"{photo.predicted_probability:.4f}"]
        for photo in result.misclassified
    ]
    tables.write_table("classes", classes)
    tables.write_table("misclassified", wrong)
    image = SvgImage.of(picture, svg)
    shown = figures([EmbeddedFigure(picture.name, picture.alt, caption, image, None, ("png", "svg", "csv"))])
    sections = [
        Section("summary", "Summary", [paragraph(_summary(result))]),
        Section("classes", "Classes", [table(classes[0], classes[1:])]),
        Section("confusion", "Confusion", [shown, *([table(header, rows)] if len(names) <= MAX_TABLE else [])]),
        Section("misclassified", "Misclassified images", [table(wrong[0], wrong[1:], (0, 1, 2))]),
    ]
    page = out / "test.html"
    footer = "The folder of this page also contains its tables as CSV files, and the figure."
    write_text(page, render(f"Test of {result.path.name}", f"{result.images} images", sections, footer=footer))
    return page


def _summary(result: FolderTest) -> str:
    low, high = (100 * bound for bound in result.interval)
    share = percent(result.correct, result.images)
    return (
        f"Accuracy {share} ({result.correct} of {result.images}; 95 % confidence interval {low:.1f} to {high:.1f} %)."
    )


def _worst_first(result: FolderTest) -> list[tuple[str, list[int]]]:
    return sorted(result.classes.items(), key=lambda item: item[1][0] / item[1][1])
