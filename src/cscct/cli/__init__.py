"""The command line: parsing and printing only. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from .. import __version__
from ..errors import Interrupted, RunFailed, UserError
from ..streams import output_error, protect_streams
from . import catalogue, classifier, deployment, running, settings, studies, versions
from .options import is_follower, print_help
from .sections import SectionedGroup

app = typer.Typer(
    cls=SectionedGroup,
    help="Image classifiers that learn new classes, task after task, without forgetting the old ones.",
    invoke_without_command=True,
    rich_markup_mode=None,  # rich would take [ray] in a help text for markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# With what `cscct --help` says of each, in the width of a terminal.
IMAGES, EXPERIMENTS, PARTS = "A classifier of your own images", "Experiments", "Settings, parts and data"


def _add(section: str, function: Callable[..., None], summary: str, name: str | None = None) -> None:
    app.command(name, short_help=summary, rich_help_panel=section)(function)


_add(IMAGES, classifier.learn, "Teach a classifier the classes in a folder of images.")
_add(IMAGES, classifier.predict, "Which class images show, with confidences.")
_add(IMAGES, classifier.info, "Classes, versions and size of a classifier.")
_add(IMAGES, versions.undo, "Go back to an earlier version of a classifier.")
_add(IMAGES, versions.forget, "Remove classes from a classifier.")
_add(IMAGES, versions.rename, "Give a class of a classifier another name.")
_add(IMAGES, deployment.export, "A classifier as an ONNX or TorchScript file.")
_add(IMAGES, deployment.serve, "A classifier as a web page and a JSON API.")
_add(EXPERIMENTS, running.run, "One experiment: a method learns a dataset, task by task.")
_add(EXPERIMENTS, running.resume, "Go on with a run that was stopped or killed.")
_add(EXPERIMENTS, studies.compare, "Several methods on the same seeds, with paired differences.")
_add(EXPERIMENTS, studies.sweep, "Many runs: every combination of settings in a study file.")
_add(EXPERIMENTS, studies.reproduce, "A table or figure of the paper, with the published numbers.")
_add(EXPERIMENTS, studies.report, "An HTML page with figures of finished runs; PNG, SVG, CSV.")
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
    """Exit 0 on success, 2 on a user's mistake, 1 when the work could not go on, 130 when stopped on request."""
    protect_streams()
    try:
        code = app(prog_name="cscct", standalone_mode=False)
    except UserError as error:
        code = _fail(str(error), 2)
    except RunFailed as error:
        code = _fail(str(error), 1)
    except Interrupted as error:
        code = 130
        if not is_follower():  # of several processes of a run, one says so
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
        code = _fail(error.format_message(), 2)  # a mistake in the words of the command itself
    lost = output_error()
    if lost is not None:
        code = _fail(f"The output could not be written: {lost}.", code or 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return code
