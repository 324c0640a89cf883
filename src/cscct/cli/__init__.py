"""The command line: parsing and printing only. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import Interrupted, RunFailed, UserError
from ..streams import output_error, protect_streams
from . import catalogue, running, settings, studies
from .options import is_follower, print_help

app = typer.Typer(
    help="Image classifiers that learn new classes, task after task, without forgetting the old ones.",
    invoke_without_command=True,
    rich_markup_mode=None,  # rich would take [ray] in a help text for markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# With what `cscct --help` says of each, in the width of a terminal.
app.command(short_help="One experiment: a method learns a dataset, task by task.")(running.run)
app.command(short_help="Go on with a run that was stopped or killed.")(running.resume)
app.command(short_help="Several methods on the same seeds, with paired differences.")(studies.compare)
app.command(short_help="Many runs: every combination of settings in a study file.")(studies.sweep)
app.command(short_help="A table or figure of the paper, with the published numbers.")(studies.reproduce)
app.command(short_help="An HTML page with figures of finished runs; PNG, SVG, CSV.")(studies.report)
app.command("config", short_help="The settings that a run would have, without running it.")(settings.config)
app.command("list", short_help="Methods, losses, datasets, backbones and class orders.")(catalogue.list_)
app.add_typer(catalogue.data_app, name="data", short_help="Datasets: list, download and check them.")


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
