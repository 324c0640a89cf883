"""What there is: `cscct list` and `cscct data`."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from ..plugins import load_plugins
from .options import DataDir, DatasetArgument, Json, Plugin, Quiet, SkipBad, open_display, print_help, warn

data_app = typer.Typer(help="Datasets: list, download and check them.", invoke_without_command=True)
data_app.callback()(print_help)


def list_(plugin: Plugin = [], as_json: Json = False) -> None:  # noqa: B006
    """Methods, losses, datasets, backbones and class orders."""
    load_plugins(plugin)
    from ..data.registry import DATASETS
    from ..losses import TERMS
    from ..methods import EXTRAS, METHODS
    from ..nets import BACKBONES, HEADS

    listing = {
        "methods": {name: METHODS[name].summary for name in sorted(METHODS)},
        "additions": {f"+{name}": "adds " + " and ".join(terms) for name, terms in EXTRAS.items()},
        "losses": {name: _first_line(term.__doc__) for name, term in TERMS.items()},
        "datasets": {name: kind.summary for name, kind in DATASETS.items()},
        "backbones": {name: _first_line(builder.__doc__) for name, builder in BACKBONES.items()},
        "heads": {name: _first_line(head.__doc__) for name, head in HEADS.items()},
        "protocols": {
            "-B 50 -C 5": "50 classes first, then 5 at a time; any B and C up to the number of classes",
            "-B 5 -C 5": "equal tasks",
        },
        "orders": {
            "seed": "drawn from the run's seed",
            "seed-1993": "that of iCaRL's, LUCIR's and CSCCT's code",
            "podnet-1, podnet-2, podnet-3": "those of PODNet's code (100 classes)",
            "natural": "the dataset's own",
        },
    }
    if as_json:
        print(json.dumps(listing, indent=1))
        return
    for title, entries in listing.items():
        print(f"{title}:")
        width = max(len(name) for name in entries)
        for name, summary in entries.items():
            print(f"  {name:{width}}  {summary}")


@data_app.command("list")
def data_list(plugin: Plugin = [], as_json: Json = False) -> None:  # noqa: B006
    """The datasets there are."""
    load_plugins(plugin)
    from ..data.registry import DATASETS, default_data_dir

    if as_json:
        print(
            json.dumps(
                {name: {"summary": kind.summary, "fetchable": kind.fetchable} for name, kind in DATASETS.items()},
                indent=1,
            )
        )
        return
    for name, kind in DATASETS.items():
        print(f"{name:16} {kind.summary}{' (cscct data fetch ' + name + ')' if kind.fetchable else ''}")
    print(f"Looked for in {default_data_dir()} unless --data-dir says otherwise.")


@data_app.command("fetch")
def data_fetch(
    name: DatasetArgument,
    data_dir: DataDir = None,
    plugin: Plugin = [],  # noqa: B006
    quiet: Quiet = False,
) -> None:
    """Download a dataset and check it (cifar100). No other command downloads anything."""
    load_plugins(plugin)
    from ..data.fetch import fetch

    path = fetch(name, data_dir, progressbar=sys.stderr.isatty() and not quiet, warn=warn)
    if not quiet:
        print(f"{name} is ready in {path}")


@data_app.command("check")
def data_check(
    name: DatasetArgument,
    data_dir: DataDir = None,
    plugin: Plugin = [],  # noqa: B006
    skip_bad_images: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Read a dataset as a run would, and print what is in it."""
    load_plugins(plugin)
    from ..data.fetch import check
    from ..data.registry import LoadRequest

    with open_display(quiet=False, as_json=as_json) as display:
        request = LoadRequest(data_dir, skip_bad_images, 0.2, seed=1, warn=display.warn, progress=display.reading)
        found = check(name, request)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for key, value in found.items():
        if key != "warnings" and value is not None:
            print(f"{key.replace('_', ' '):26} {_in_words(value)}")
    for sentence in found["warnings"]:
        warn(sentence)


def _in_words(value: Any) -> str:
    """A number, a size or a range as people write it."""
    if isinstance(value, dict):
        return str(value["min"]) if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]
