"""`cscct undo`, `forget` and `rename`: changes of a model that need no images."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .options import Json, ModelDir, Quiet


def undo(
    model_dir: ModelDir,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", min=1, help="The version to go to. [default: the one before]"),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go back to an earlier version of a classifier, or forward again: `cscct info` lists the versions."""
    from ..classifier.teaching import count_classes, existing

    folder = existing(model_dir)
    version = folder.undo() if to is None else folder.restore(to)
    if as_json:
        print(json.dumps({"version": version.number, "classes": version.classes}, indent=1))
    elif not quiet:
        print(f"{model_dir} is at version {version.number}, with {count_classes(len(version.classes))}.")


def forget(
    model_dir: ModelDir,
    classes: Annotated[list[str], typer.Argument(metavar="CLASS", help="Names of the classes.")],
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Remove the older versions, which still have the classes, as well.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Remove classes from a classifier, with their images and everything that was computed from them.

    Older versions keep them, so that `cscct undo` can bring them back, unless --everywhere is given. A network that was
    fine-tuned on their images keeps what it learned from them in its weights.
    """
    from ..classifier.changes import forget_classes

    done = forget_classes(model_dir, classes, everywhere=everywhere)
    if as_json:
        print(json.dumps(done.as_dict(), indent=1))
    elif not quiet:
        print("\n".join(done.sentences()))


def rename(
    model_dir: ModelDir,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name of a class.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    quiet: Quiet = False,
) -> None:
    """Give a class another name. Older versions keep the old one."""
    from ..classifier.changes import rename_class

    number = rename_class(model_dir, old, new)
    if not quiet:
        print(f"{old} is called {new} from version {number} of {model_dir} on.")
