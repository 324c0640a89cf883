"""The command line: parsing and printing only. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import Interrupted, RunFailed, UserError
from . import catalogue, running, studies

app = typer.Typer(
    help="Image classifiers that learn new classes, task after task, without forgetting the old ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (running.run, running.resume, studies.compare, studies.sweep, studies.reproduce, studies.report):
    app.command()(command)
app.command("list")(catalogue.list_)
app.add_typer(catalogue.data_app, name="data")


def version(value: bool) -> None:
    if value:
        print(f"cscct {__version__}")
        raise typer.Exit


@app.callback()
def top(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def main() -> None:
    """Exit 0 on success, 2 on a user's mistake, 1 when the work could not go on, 130 when stopped on request."""
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        code = _fail(str(error), 2)
    except RunFailed as error:
        code = _fail(str(error), 1)
    except Interrupted as error:
        code = _fail(str(error), 130, "")
    except (KeyboardInterrupt, typer.Abort):
        code = _fail(
            "Stopped at once. What the last checkpoint holds is not lost: `cscct resume RUN_DIR` goes on.", 130
        )
    except BrokenPipeError:  # the reader went away, as `head` does
        sys.stderr.close()
        code = 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        code = _fail(error.format_message(), 2)  # a mistake in the words of the command itself
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int, kind: str = "error: ") -> int:
    print(kind + sentence, file=sys.stderr)
    return code
