"""`cscct learn`, `predict` and `info`: a classifier of one's own images."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import RunFailed, UserError
from ..plugins import load_plugins
from .options import (
    Device,
    Json,
    ModelDir,
    ModelOrRun,
    Quiet,
    Threads,
    open_display,
    use_threads,
)
from .stopping import stoppable

if TYPE_CHECKING:
    from ..classifier.prediction import ImageFile

STDIN = "-"


def learn(
    model_dir: ModelDir,
    image_dir: Annotated[
        Path, typer.Argument(metavar="IMAGE_DIR", help="Holds a folder of images for each class: IMAGE_DIR/<class>/*.")
    ],
    predictor: Annotated[
        str | None,
        typer.Option("--predictor", metavar="NAME", help="ncm, lda or ridge. [default: lda, or the model's]"),
    ] = None,
    finetune: Annotated[
        str | None,
        typer.Option(
            "--finetune",
            metavar="WHEN",
            help="never, auto (kept if better on images held back) or always. [default: never, or the model's]",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option("--backbone", metavar="NAME", help="The network, of a new model. [default: efficientnet-lite0]"),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="A new model without pretrained weights: the network is trained.")
    ] = False,
    memory_mb: Annotated[
        float | None,
        typer.Option("--memory-mb", metavar="MB", min=0, help="For images kept in the model. [default: 50]"),
    ] = None,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Kept with the new version.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be learned.")] = False,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Teach a classifier the classes in a folder of images; the model is made if it is not there.

    Classes that it knows get more images, others are added to them. The images are not needed afterwards. However it is
    interrupted, the model stays as it was.
    """
    load_plugins()
    from ..classifier.teaching import TeachingOptions, plan, standing, teach

    options = TeachingOptions(predictor, finetune, backbone, from_scratch, memory_mb, device)
    if dry_run:
        planned = plan(model_dir, image_dir)
        if as_json:
            print(json.dumps(planned.as_dict(), indent=1))
        else:
            from ..ui.classifier import print_plan

            print_plan(planned)
        return
    use_threads(threads)
    with stoppable(lambda: f"Stopped. {standing(model_dir)}"), open_display(quiet, as_json) as display:
        taught = teach(model_dir, image_dir, options, message, display.reading)
    if as_json:
        print(json.dumps(taught.as_dict(), indent=1))
        return
    from ..ui.classifier import print_problems, print_taught

    print_problems(taught.report.problems, taught.report.notes)
    if not quiet:
        print_taught(taught)


def predict(
    model_dir: ModelOrRun,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE",
            help="Files, or folders of them; - for an image, or a list of paths, on stdin.",
        ),
    ],
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Classes told of each image.")] = 5,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Also tell which images are like nothing that was learned.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the answer as CSV.")] = False,
    as_json: Json = False,
    device: Device = None,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Which class images show, best first, with confidences.

    An image that cannot be read is told as such and the others go on; the exit code is then 1.
    """
    if as_csv and as_json:
        raise UserError("--csv and --json are two forms of the answer: choose one of them.")
    load_plugins()
    from ..api import load
    from ..classifier.description import check_is_model
    from ..classifier.prediction import predict_files

    check_is_model(model_dir)
    with stoppable(lambda: "Stopped."), _files(images) as files:
        use_threads(1 if threads is None and len(files) == 1 else threads)  # one image is not worth starting others
        model = load(model_dir, device=device or "auto")
        with open_display(quiet, as_json or as_csv) as display:
            found = list(predict_files(model, files, top=top, unknown=unknown, progress=display.reading))
    if as_json:
        print(json.dumps([one.as_dict() for one in found], indent=1))
    else:
        from ..ui.classifier import predictions_csv, predictions_text

        print(predictions_csv(found, unknown) if as_csv else predictions_text(found), end="")
    failed = sum(one.error is not None for one in found)
    if failed:
        raise RunFailed(f"{failed} of {len(found)} images could not be read.")


def info(model_dir: ModelOrRun, as_json: Json = False) -> None:
    """Classes with their images, versions, size on disk, network and predictor."""
    from ..classifier.description import describe

    found = describe(model_dir)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    from ..ui.classifier import print_info

    print_info(found)


@contextmanager
def _files(words: list[str]) -> Iterator[list[ImageFile]]:
    """The image files that words name. What came on stdin is kept in a file until the end."""
    from ..classifier.images import list_images
    from ..classifier.prediction import ImageFile
    from ..data.image_files import looks_like_image

    found: list[ImageFile] = []
    with TemporaryDirectory() as folder:
        given = Path(folder) / "stdin"
        if STDIN in words:
            given.write_bytes(sys.stdin.buffer.read())
        for word in words:
            if word == STDIN and looks_like_image(given):
                found.append(ImageFile(given, STDIN))
            else:
                lines = _lines(given.read_bytes()) if word == STDIN else [word]
                found += [ImageFile(path, str(path)) for line in lines for path in list_images(line)]
        if not found:
            raise UserError("No image was named.")
        yield found


def _lines(text: bytes) -> list[str]:
    """Paths, one a line, or with zero bytes between them as `find -print0` writes them."""
    lines = text.split(b"\0") if b"\0" in text else [line.removesuffix(b"\r") for line in text.split(b"\n")]
    return [os.fsdecode(line) for line in lines if line.strip()]
