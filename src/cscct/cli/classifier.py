"""`cscct learn`, `predict` and `info`: models of your own images."""

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
from . import completion
from .evaluation import write_contact_sheet
from .options import Device, Json, ModelOrRun, Quiet, Threads, open_display, use_threads, warn
from .stopping import stoppable

if TYPE_CHECKING:
    from ..classifier.folder import LearnOptions
    from ..data.videos import VideoFrame

STDIN = "-"
SCRATCH_BACKBONE = "lucir-resnet"
DEFAULT_RATE = 0.05  # of false alarms of --unknown
Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="TIME", help="Read videos, one frame per TIME: 1s, 500ms, 2min. [default: no videos]"
    ),
]


def learn(
    model_dir: Annotated[
        Path,
        typer.Argument(metavar="MODEL_DIR", help="Model folder, new or existing, or the folder of a finished run."),
    ],
    image_dir: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGE_DIR",
            help="Folder with one folder of images per class: IMAGE_DIR/<class>/*; or a CSV file with the columns path "
            "and label.",
        ),
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="lda, ncm or ridge (no training); a method that trains, such as lucir+cscct; auto (compares lda with "
            "training and keeps the better one). [default: lda, or that of the model]",
            autocompletion=completion.methods,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option("--backbone", metavar="NAME", help="Network of a new model. [default: efficientnet-lite0]"),
    ] = None,
    memory_mb: Annotated[
        float | None,
        typer.Option("--memory-mb", metavar="MB", min=0, help="Limit of the images stored in the model. [default: 50]"),
    ] = None,
    every: Every = None,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Stored with the new version.")] = "",
    keep_versions: Annotated[
        int | None,
        typer.Option(
            "--keep-versions",
            metavar="N",
            min=0,
            help="Remove older versions, now and later; 0 keeps all. [default: all, or as before]",
        ),
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate/--no-evaluate", help="Measure the accuracy, and list photos to review.")
    ] = True,
    review: Annotated[
        Path | None,
        typer.Option("--review", metavar="FILE", help="Write the photos to review to an HTML page. [default: none]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be learned.")] = False,
    device: Device = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
    predictor: Annotated[str | None, typer.Option("--predictor", hidden=True)] = None,
    finetune: Annotated[str | None, typer.Option("--finetune", hidden=True)] = None,
    from_scratch: Annotated[bool, typer.Option("--from-scratch", hidden=True)] = False,
) -> None:
    """Teach a model the classes in a folder of images; the model is created if it does not exist.

    New classes are added, and known classes get more images. Images that the model knows are left out, so a folder can
    be learned again after images were added to it. The images are not needed afterwards. A finished run
    continues with its own method and exemplars; its result stays unchanged. If the command is interrupted, the model is
    unchanged.
    """
    load_plugins()
    from ..classifier.folder import LearnOptions, interruption_message, learn_images, plan_learning
    from ..data.labelled import scan_labelled
    from ..data.videos import parse_interval

    seconds = None if every is None else parse_interval(every)
    options = LearnOptions(method, backbone, memory_mb, device)
    options = _with_deprecated(options, predictor, finetune, from_scratch)
    if dry_run:
        planned = plan_learning(model_dir, image_dir, seconds)
        if as_json:
            print(to_json(planned.as_dict(), indent=1))
        else:
            from ..ui.classifier import print_plan

            print_plan(planned)
        return
    use_threads(threads)
    with (
        stoppable(lambda: f"Stopped. {interruption_message(model_dir)}"),
        open_display(quiet, as_json) as display,
    ):
        images = image_dir if seconds is None else scan_labelled(image_dir, every=seconds)
        result = learn_images(
            model_dir,
            images,
            options=options,
            message=message,
            keep_versions=keep_versions,
            evaluate=evaluate,
            progress=display.reading,
        )
    if review is not None:
        write_contact_sheet(model_dir, review)
    if as_json:
        print(to_json(result.as_dict(), indent=1))
        return
    from ..ui.classifier import print_learn_result, print_problems

    print_problems(result.report.problems, result.report.notes)
    if not quiet:
        print_learn_result(result)


def _with_deprecated(
    options: LearnOptions, predictor: str | None, finetune: str | None, from_scratch: bool
) -> LearnOptions:
    """Options with the deprecated flags `--predictor`, `--finetune` and `--from-scratch` translated."""
    from dataclasses import replace

    from ..classifier.parameters import AUTO, DEFAULT_TRAINED

    if finetune not in (None, "never", "auto", "always"):
        raise UserError(f"--finetune must be never, auto or always, not {finetune!r}; it is deprecated: use --method.")
    flags = {"--predictor": predictor, "--finetune": finetune, "--from-scratch": from_scratch or None}
    used = [name for name, value in flags.items() if value is not None]
    if not used:
        return options
    if options.method is not None:
        raise UserError(f"{', '.join(used)} cannot be combined with --method: omit it.")
    method = predictor
    if from_scratch or finetune == "always":
        method = DEFAULT_TRAINED
    elif finetune == "auto":
        method = AUTO
    backbone = SCRATCH_BACKBONE if from_scratch and options.backbone is None else options.backbone
    written = f"--method {method}" if method else "nothing, which is the default"
    written += f" --backbone {backbone}" if from_scratch else ""
    warn(f"{', '.join(used)} is deprecated: write {written}.")
    return replace(options, method=method, backbone=backbone)


class PredictCommand(TyperCommand):
    """A command whose option `--unknown` may have a value, which must be a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the default value where there is none."""
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
    if as_json:
        print(to_json([suggestion.as_dict() for suggestion in suggestions], indent=1))
    else:
        from ..ui.classifier import suggestions_csv, suggestions_text

        print(suggestions_csv(suggestions) if as_csv else suggestions_text(suggestions), end="")
    failed = sum(suggestion.error is not None for suggestion in suggestions)
    if failed:
        raise RunFailed(f"{failed} of {len(files)} images could not be read.")


def info(model_dir: ModelOrRun, as_json: Json = False) -> None:
    """Show the classes, method, network, versions and size of a model or run."""
    from ..classifier.describe import describe

    description = describe(model_dir)
    if as_json:
        print(to_json(description, indent=1))
        return
    from ..ui.classifier import print_info

    print_info(description)


@contextmanager
def _files(arguments: list[str], every: str | None) -> Iterator[list[tuple[Path | VideoFrame, str]]]:
    """The images that arguments name, with their names. Standard input is kept in a file until the end."""
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
    """Paths, one per line, or separated by zero bytes as `find -print0` writes them."""
    lines = text.split(b"\0") if b"\0" in text else [line.removesuffix(b"\r") for line in text.split(b"\n")]
    return [os.fsdecode(line) for line in lines if line.strip()]
