"""`cscct export` and `serve`: a classifier for other programs and for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..plugins import load_plugins
from .options import ModelDir, ModelOrRun, Quiet
from .stopping import stoppable


def export(
    model_dir: ModelOrRun,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="onnx or torchscript.")] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="[default: in this folder, under the name of MODEL_DIR]"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """A classifier as one file for other programs, with normalisation, head and class names inside.

    Input: images (n, 3, height, width), float32, RGB, values from 0 to 1. Outputs: probabilities (n, classes) and
    features. The file is checked to give the probabilities that `cscct predict` gives.
    """
    load_plugins()
    from ..api import load
    from ..classifier.description import check_is_model
    from ..classifier.export import default_file
    from ..classifier.export import export as write

    check_is_model(model_dir)
    with stoppable(lambda: "Stopped. Nothing was written."):
        path = write(load(model_dir, device="cpu"), to, out or default_file(model_dir, to))
    if not quiet:
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB) gives the probabilities that cscct predict gives.")


def serve(
    model_dir: ModelDir,
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TEXT", help="That requests must have. [default: none on loopback, else random]"
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """A page where people classify photographs, correct answers, add classes and undo; and the same as a JSON API."""
    load_plugins()
    from ..classifier.serve import run

    run(model_dir, host=host, port=port, token=token, open_browser=open_page)
