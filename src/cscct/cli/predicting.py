"""`cscct predict` and `suggest`: classes of unlabelled images, and which of them to label next."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ..errors import RunFailed, UserError
from ..jsontext import to_json
from ..plugins import load_plugins
from .options import Device, Every, Json, ModelOrRun, Threads, open_display, use_threads
from .stopping import stoppable

if TYPE_CHECKING:
    from ..data.videos import VideoFrame

STDIN = "-"
DEFAULT_RATE = 0.05  # of false alarms of --unknown


class PredictCommand(TyperCommand):
    """Command whose option `--unknown` accepts an optional number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default value of `--unknown` where no value is given."""
        following = [*args[1:], ""]
        args = [
            f"{argument}={DEFAULT_RATE}" if argument == "--unknown" and not _is_number(after) else argument
            for argument, after in zip(args, following, strict=True)
        ]
        return super().parse_args(ctx, args)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def predict(
    model_dir: ModelOrRun,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE",
            help="Files or folders; - for an image, or a list of paths, on standard input.",
        ),
    ],
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Classes per image.")] = 5,
    every: Every = None,
    unknown: Annotated[
        float,
        typer.Option(
            "--unknown",
            metavar="[RATE]",
            min=0,
            max=1,
            show_default=False,
            help="Also report images that resemble no class, with this share of false alarms. [default: off; 0.05 "
            "without RATE]",
        ),
    ] = 0.0,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
    device: Device = None,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Predict the classes of images, best first, with probabilities.

    An unreadable image is reported and does not stop the others; the exit code is then 1.
    """
    if as_csv and as_json:
        raise UserError("--csv and --json exclude each other: choose one.")
    load_plugins()
    from ..api import load
    from ..classifier.folder import check_is_model

    check_is_model(model_dir)
    with stoppable(lambda: "Stopped."), _files(images, every) as files:
        use_threads(1 if threads is None and len(files) == 1 else threads)  # threads do not pay for one image
        model = load(model_dir, device=device or "auto")
        if model.backbone is None:
            raise UserError("This model reads features, not images: use it in Python, with cscct.load.")
        paths, names = zip(*files, strict=True)
        with open_display(quiet, as_json or as_csv) as display:
            predictions = list(model.predict_items(paths, names, top=top, unknown=unknown, progress=display.reading))
    if as_json:
        print(to_json([prediction.as_dict() for prediction in predictions], indent=1))
    else:
        from ..ui.classifier import predictions_csv, predictions_text

        print(predictions_csv(predictions, bool(unknown)) if as_csv else predictions_text(predictions), end="")
    failed = sum(prediction.error is not None for prediction in predictions)
    if failed:
        raise RunFailed(f"{failed} of {len(predictions)} images could not be read.")


def suggest(
    model_dir: ModelOrRun,
    images: Annotated[list[str], typer.Argument(metavar="IMAGE", help="Unlabelled images: files or folders.")],
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Images to suggest.")] = 20,
    every: Every = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the list to a .json or .csv file. [default: none]"),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Json = False,
    device: Device = None,
    threads: Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Rank unlabelled images by how useful their labels are for the model.

    Images come first about which the model is unsure and which differ from those ranked before. Nothing is learned. The
    exit code is 1 if an image could not be read.
    """
    if as_csv and as_json:
        raise UserError("--csv and --json exclude each other: choose one.")
    if out is not None and (out.suffix.lower() not in (".json", ".csv") or not out.absolute().parent.is_dir()):
        raise UserError(f"{out} cannot be written: name a .json or .csv file in an existing folder with --out.")
    load_plugins()
    from ..api import load
    from ..classifier.folder import check_is_model
    from ..classifier.suggest import suggest_items

    check_is_model(model_dir)
    with stoppable(lambda: "Stopped."), _files(images, every) as files:
        use_threads(threads)
        model = load(model_dir, device=device or "auto")
        items, names = zip(*files, strict=True)
        with open_display(quiet, as_json or as_csv) as display:
            suggestions = suggest_items(model, items, names, top, display.reading)
    from ..ui.classifier import suggestions_csv, suggestions_text

    listed = to_json([suggestion.as_dict() for suggestion in suggestions], indent=1)
    if out is not None:
        from ..storage import write_text

        write_text(out, listed + "\n" if out.suffix.lower() == ".json" else suggestions_csv(suggestions))
    if as_json:
        print(listed)
    else:
        print(suggestions_csv(suggestions) if as_csv else suggestions_text(suggestions), end="")
    failed = sum(suggestion.error is not None for suggestion in suggestions)
    if failed:
        raise RunFailed(f"{failed} of {len(files)} images could not be read.")


@contextmanager
def _files(arguments: list[str], every: str | None) -> Iterator[list[tuple[Path | VideoFrame, str]]]:
    """Return the images that arguments name, with their names. Standard input is stored in a file until the end."""
    from ..data.image_files import looks_like_image
    from ..data.scanning import list_images
    from ..data.videos import parse_interval

    seconds = None if every is None else parse_interval(every)
    files: list[tuple[Path | VideoFrame, str]] = []
    with TemporaryDirectory() as folder:
        stdin = Path(folder) / "stdin"
        if STDIN in arguments:
            stdin.write_bytes(sys.stdin.buffer.read())
        for argument in arguments:
            if argument == STDIN and looks_like_image(stdin):
                files.append((stdin, STDIN))
            else:
                paths = _lines(stdin.read_bytes()) if argument == STDIN else [argument]
                files += [(image, str(image)) for path in paths for image in list_images(path, seconds)]
        if not files:
            raise UserError("No image was given.")
        yield files


def _lines(text: bytes) -> list[str]:
    """Return paths, one per line, or separated by zero bytes as `find -print0` writes them."""
    lines = text.split(b"\0") if b"\0" in text else [line.removesuffix(b"\r") for line in text.split(b"\n")]
    return [os.fsdecode(line) for line in lines if line.strip()]
