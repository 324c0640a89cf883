"""`cscct undo`, `forget` and `rename`: changes of a model that need no images."""

from __future__ import annotations

from typing import Annotated

import typer

from ..jsontext import to_json
from .options import Json, ModelOrRun, Quiet


def undo(
    model_dir: ModelOrRun,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", min=0, help="The version to go to. [default: the one before]"),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go back to an earlier version of a classifier, or forward again: `cscct info` lists the versions."""
    from ..classifier.folder import count_classes, existing_model

    folder = existing_model(model_dir)
    version = folder.undo() if to is None else folder.restore(to)
    if as_json:
        print(to_json({"version": version.number, "classes": version.classes}, indent=1))
    elif not quiet:
        print(f"{model_dir} is at version {version.number}, with {count_classes(len(version.classes))}.")


def forget(
    model_dir: ModelOrRun,
    classes: Annotated[list[str], typer.Argument(metavar="CLASS", help="Names of the classes.")],
    purge_history: Annotated[
        bool,
        typer.Option(
            "--purge-history", "--everywhere", help="Remove the older versions, which still have the classes, as well."
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Remove classes from a classifier, with their images and everything that was computed from them.

    Older versions keep them, so that `cscct undo` can bring them back, unless --purge-history is given. A network that
    was fine-tuned on their images keeps what it learned from them in its weights.
    """
    from ..classifier.folder import forget_classes

    done = forget_classes(model_dir, classes, purge_history=purge_history)
    if as_json:
        print(to_json(done.as_dict(), indent=1))
    elif not quiet:
        print(done.message())


def rename(
    model_dir: ModelOrRun,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name of a class.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    quiet: Quiet = False,
) -> None:
    """Give a class another name. Older versions keep the old one."""
    from ..classifier.folder import rename_class

    number = rename_class(model_dir, old, new)
    if not quiet:
        print(f"Renamed {old} to {new} in version {number} of {model_dir}.")
