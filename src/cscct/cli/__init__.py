"""The command line: parsing and printing only. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperCommand

from .. import __version__
from ..errors import Interrupted, RunFailed, UserError
from ..streams import is_follower, output_error, protect_streams
from . import catalogue, classifier, deployment, evaluation, predicting, running, settings, studies, tuning, versions
from .options import print_help
from .sections import SectionedGroup

app = typer.Typer(
    cls=SectionedGroup,
    help="Image classifiers that learn new classes, task after task, without forgetting the old ones.",
    invoke_without_command=True,
    rich_markup_mode=None,  # rich would take [ray] in a help text for markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Sections of `cscct --help`
IMAGES, EXPERIMENTS, PARTS = "A classifier of your own images", "Experiments", "Settings, parts and data"


def _add(
    section: str,
    function: Callable[..., None],
    summary: str,
    name: str | None = None,
    kind: type[TyperCommand] = TyperCommand,
) -> None:
    app.command(name, cls=kind, short_help=summary, rich_help_panel=section)(function)


_add(IMAGES, classifier.learn, "Teach a classifier the classes in a folder of images.")
_add(IMAGES, predicting.predict, "Which class images show, with confidences.", None, predicting.PredictCommand)
_add(IMAGES, evaluation.measure, "Accuracy of a classifier on a folder of images.", "test")
_add(IMAGES, evaluation.review, "Photos of a classifier that look mislabelled.")
_add(IMAGES, predicting.suggest, "Which unlabelled images to label next.")
_add(IMAGES, classifier.info, "Classes, versions and size of a classifier.")
_add(IMAGES, versions.undo, "Go back to an earlier version of a classifier.")
_add(IMAGES, versions.forget, "Remove classes from a classifier.")
_add(IMAGES, versions.rename, "Give a class of a classifier another name.")
_add(IMAGES, deployment.export, "A classifier as an ONNX or torch.export file.")
_add(IMAGES, deployment.serve, "A classifier as a web page and a JSON API.")
_add(EXPERIMENTS, running.run, "Run one experiment: train a method on a dataset.")
_add(EXPERIMENTS, running.resume, "Continue a run that was stopped or killed.")
_add(EXPERIMENTS, studies.compare, "Compare methods with the same seeds.")
_add(EXPERIMENTS, studies.sweep, "Run every combination of settings in a study file.")
_add(EXPERIMENTS, tuning.tune, "Tune settings of a method on validation images.")
_add(EXPERIMENTS, studies.reproduce, "Reproduce a table or figure of the paper.")
_add(EXPERIMENTS, studies.report, "Write an HTML report with figures of stored runs.")
_add(PARTS, settings.config, "The settings that a run would have, without running it.")
_add(PARTS, catalogue.list_, "Methods, losses, datasets, backbones and class orders.", "list")
app.add_typer(
    catalogue.data_app, name="data", short_help="Datasets: list, download and check them.", rich_help_panel=PARTS
)


def version(value: bool) -> None:
    """Print the version and end."""
    if value:
        print(f"cscct {__version__}")
        raise typer.Exit


@app.callback()
def top(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")] = False,
) -> None:
    print_help(context)


def main() -> None:
    """Run the command and exit: 0 on success, 2 after a user error, 1 after a failure, 130 if stopped by the user."""
    protect_streams()
    try:
        code = app(prog_name="cscct", standalone_mode=False)
    except UserError as error:
        code = _fail(str(error), 2)
    except RunFailed as error:
        code = _fail(str(error), 1)
    except Interrupted as error:
        code = 130
        if not is_follower():  # only rank 0 prints the message
            print(error, file=sys.stderr)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as error:
        if error.filename is None:
            raise
        code = _fail(f"{error.filename} cannot be read or written: {error.strerror}.", 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _fail(error.format_message(), 2)  # invalid arguments
    lost = output_error()
    if lost is not None:
        code = _fail(f"The output could not be written: {lost}.", code or 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return code
