"""`cscct learn` and `info`: models of your own images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from ..jsontext import to_json
from ..plugins import load_plugins
from . import completion
from .evaluation import write_contact_sheet
from .options import Device, Every, Json, ModelOrRun, Quiet, Threads, open_display, use_threads, warn
from .stopping import stoppable

if TYPE_CHECKING:
    from ..classifier.folder import LearnOptions

SCRATCH_BACKBONE = "lucir-resnet"


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
    """Translate the deprecated flags `--predictor`, `--finetune` and `--from-scratch` to options."""
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


def info(model_dir: ModelOrRun, as_json: Json = False) -> None:
    """Show the classes, method, network, versions and size of a model or run."""
    from ..classifier.describe import describe

    description = describe(model_dir)
    if as_json:
        print(to_json(description, indent=1))
        return
    from ..ui.classifier import print_info

    print_info(description)
