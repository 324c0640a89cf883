"""`cscct export` and `serve`: a classifier for other programs and for a browser."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from ..plugins import load_plugins
from .options import ModelOrRun, Quiet, Threads, use_threads, warn
from .stopping import stoppable


def export(
    model_dir: ModelOrRun,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="onnx, or pt2 (torch.export).")] = "onnx",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="[default: in this folder, under the name of MODEL_DIR]"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a classifier with normalisation, head and class names to a single file for other programs.

    Input: images (n, 3, height, width), float32, RGB, values from 0 to 1. Outputs: probabilities (n, classes) and
    features. The file is checked to give the probabilities that `cscct predict` gives.
    """
    load_plugins()
    from ..api import load
    from ..classifier.export import DEPRECATED, default_file
    from ..classifier.folder import check_is_model

    check_is_model(model_dir)
    if to == "torchscript":
        warn(DEPRECATED)
    with stoppable(lambda: "Stopped. Nothing was written."), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # said above
        path = load(model_dir, device="cpu").export(out or default_file(model_dir, to), to)
    if not quiet:
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB) gives the probabilities that cscct predict gives.")


def serve(
    model_dir: ModelOrRun,
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TEXT", help="That requests must have. [default: none on loopback, else random]"
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Further name of the server, such as that of a proxy; may be repeated; * for all. [default: none]",
        ),
    ] = None,
    queue: Annotated[
        Path | None,
        typer.Option(
            "--queue",
            metavar="FILE",
            help="Output of cscct suggest --json: photos to label in the page. [default: none]",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=N",
            help="Another limit of requests, such as file_bytes=50000000; may be repeated. [default: none]",
        ),
    ] = None,
    threads: Threads = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a web page and a JSON API to classify photographs, correct predictions, add classes and undo."""
    load_plugins()
    from ..classifier.serve import run

    use_threads(threads)
    run(
        model_dir,
        host=host,
        port=port,
        token=token,
        open_browser=open_page,
        allowed_hosts=allowed_host or (),
        queue=queue,
        limits=dict(text.partition("=")[::2] for text in limit or ()),
    )
