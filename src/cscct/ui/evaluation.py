"""Terminal output of `cscct test` and `review`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..classifier.report import percent
from ..classifier.review import ReviewPhoto
from ..classifier.testing import FolderTest

SHOWN = 20  # misclassified images
NAME_SHOWN = 12  # characters of a class name in a confusion matrix, at least


def review_lines(photos: Sequence[ReviewPhoto]) -> list[str]:
    """Return one line per photo to review."""
    return [
        f"  {photo.name}: {photo.label} ({100 * photo.probability:.1f} %), looks like {photo.predicted} "
        f"({100 * photo.predicted_probability:.1f} %)  [{photo.id[:12]}]"
        for photo in photos
    ]


def print_test(result: FolderTest) -> None:
    """Print the result of a test: accuracy, classes, confusion matrix and misclassified images."""
    console = Console(highlight=False)
    low, high = (100 * bound for bound in result.interval)
    share = percent(result.correct, result.images)
    interval = f"95 % confidence interval {low:.1f} to {high:.1f} %"
    print(f"accuracy {share} ({result.correct} of {result.images} images), {interval}")
    if result.learned:
        print(f"warning: {result.learned} of these images were learned, so the accuracy is too high", file=sys.stderr)
    if result.unknown:
        names = ", ".join(f"{name} ({count})" for name, count in result.unknown.items())
        print(f"not tested, because the model does not know the class: {names}", file=sys.stderr)
    classes = Table(box=None, pad_edge=False)
    for column in ("class", "images", "accuracy", "mostly taken for"):
        classes.add_column(column, justify="right" if column in ("images", "accuracy") else "left", overflow="fold")
    for label, (right, count) in sorted(result.classes.items(), key=lambda item: item[1][0] / item[1][1]):
        others = sorted((-n, name) for name, n in result.confusion[label].items() if name != label)[:3]
        taken = ", ".join(f"{name} ({-n})" for n, name in others)
        classes.add_row(Text(label), str(count), percent(right, count), Text(taken))
    print()
    console.print(classes)
    _print_matrix(result, console)
    if result.misclassified:
        print("\nMisclassified:")
    for photo in result.misclassified[:SHOWN]:
        console.print(
            Text(
                f"  {photo.image}: {photo.label}, taken for {photo.predicted} "
                f"({100 * photo.predicted_probability:.1f} %)"
            ),
            soft_wrap=True,
        )
    if len(result.misclassified) > SHOWN:
        print(f"  and {len(result.misclassified) - SHOWN} more: see --json or --out")


def _print_matrix(result: FolderTest, console: Console) -> None:
    names = list(dict.fromkeys([*result.confusion, *(name for row in result.confusion.values() for name in row)]))
    matrix = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    counts = [count for row in result.confusion.values() for count in row.values()]
    digits = len(str(max(len(names), *counts)))
    left = console.width - len(names) * (digits + 1)  # for the names
    matrix.add_column("true / predicted", no_wrap=True, max_width=max(NAME_SHOWN, left))
    for number, _ in enumerate(names, start=1):
        matrix.add_column(str(number), justify="right", no_wrap=True, width=digits)
    for number, true in enumerate(names, start=1):
        row = result.confusion.get(true, {})
        matrix.add_row(Text(f"{number} {true}"), *(str(row.get(name, 0)) if row.get(name) else "." for name in names))
    print()
    if left >= NAME_SHOWN:
        console.print(matrix)
    else:
        print(f"The confusion matrix of {len(names)} classes is wider than the terminal: see --out or --json.")


def print_review(photos: Sequence[ReviewPhoto]) -> None:
    """Print the photos to review, by kind."""
    if not photos:
        print("No photo looks mislabelled.")
        return
    console = Console(highlight=False)
    for kind, title in (("mislabelled", "Looks mislabelled"), ("not recognised", "Not recognised")):
        members = [photo for photo in photos if photo.kind == kind]
        if members:
            print(f"{title} ({len(members)}):")
        for line in review_lines(members):
            console.print(Text(line), soft_wrap=True)
