"""`cscct test` and `review`: accuracy of a model, and photos that look mislabelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UserError
from ..plugins import load_plugins
from .options import Device, Json, ModelOrRun, Quiet, Threads, open_display, use_threads
from .stopping import stoppable


def measure(
    model_dir: ModelOrRun,
    image_dir: Annotated[
        Path,
        typer.Argument(metavar="IMAGE_DIR", help="Folder with one folder of images per class: IMAGE_DIR/<class>/*."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write a page, a figure and CSV files. [default: none]"),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure the accuracy of a model or run on images that it has not learned.

    Prints the accuracy with its 95 % confidence interval, the accuracy of each class, the confusion matrix and the
    misclassified images. Classes that the model does not know are not tested.
    """
    load_plugins()
    from ..api import load
    from ..classifier.folder import check_is_model
    from ..classifier.testing import run_test

    check_is_model(model_dir)
    use_threads(threads)
    with stoppable(lambda: "Stopped."), open_display(quiet, as_json) as display:
        model = load(model_dir, device=device or "auto")
        result = run_test(model_dir, image_dir, model=model, progress=display.reading)
    if out is not None:
        from ..reporting.model_pages import write_test

        write_test(result, out)
    if as_json:
        print(json.dumps(result.as_dict(), indent=1))
        return
    from ..ui.classifier import print_problems
    from ..ui.evaluation import print_test

    print_problems(result.problems)
    if not quiet:
        print_test(result)
        if out is not None:
            print(f"\nWritten to {out / 'test.html'}")


def review(
    model_dir: ModelOrRun,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with thumbnails. [default: none]")
    ] = None,
    move: Annotated[
        tuple[str, str] | None,
        typer.Option("--move", metavar="ID CLASS", help="Move a photo to a known or new class. [default: none]"),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="ID", help="Remove a photo from the model. [default: none]")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="ID", help="Confirm the label of a photo. [default: none]")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """List photos that look mislabelled or are not recognised, and change them on request.

    Each photo is classified by a model computed without it. Photos whose label is least probable come first. --move,
    --remove and --keep change one photo, or several if repeated, as a new version; `cscct undo` takes it back.
    """
    from ..classifier.folder import check_is_model
    from ..classifier.photo_changes import keep_photos, move_photos, remove_photos, review_photos

    check_is_model(model_dir)
    if sum(map(bool, (move, remove, keep))) > 1:
        raise UserError("--move, --remove and --keep exclude each other: use one at a time.")
    if move or remove or keep:
        if move:
            version = move_photos(model_dir, [move[0]], move[1])
        elif remove:
            version = remove_photos(model_dir, remove)
        else:
            version = keep_photos(model_dir, keep or [])
        if not quiet and not as_json:
            print(f"{model_dir} is at version {version}.")
    if html is not None:
        write_contact_sheet(model_dir, html)
    photos = review_photos(model_dir)
    if as_json:
        print(json.dumps([photo.as_dict() for photo in photos], indent=1))
    elif not quiet:
        from ..ui.evaluation import print_review

        print_review(photos)


def write_contact_sheet(model_dir: Path, file: Path) -> None:
    """Write the photos to review to a page."""
    from ..classifier.photo_changes import review_images
    from ..reporting.model_pages import contact_sheet
    from ..storage import write_text

    if file.is_dir() or not file.absolute().parent.is_dir():
        reason = "is a folder" if file.is_dir() else "lies in a folder that does not exist"
        raise UserError(f"{file} {reason}: name the HTML file to write.")
    write_text(file, contact_sheet(model_dir.absolute().name, review_images(model_dir)))
