"""`cscct list` and `cscct data`: methods, losses, datasets and other parts by name."""

from __future__ import annotations

import sys
from typing import Any

import typer

from ..jsontext import to_json
from ..plugins import load_plugins
from .options import DataDir, DatasetArgument, Json, Plugin, Quiet, SkipBad, open_display, print_help, warn

data_app = typer.Typer(help="Datasets: list, download and check them.", invoke_without_command=True)
data_app.callback()(print_help)


def list_(plugin: Plugin = [], as_json: Json = False) -> None:  # noqa: B006
    """List methods by family, losses, datasets, backbones and class orders."""
    load_plugins(plugin)
    from ..data.registry import DATASETS
    from ..losses import TERMS
    from ..methods import ADDONS, METHODS
    from ..nets import BACKBONES, HEADS
    from ..registry import first_line

    listing = {
        "methods": {name: METHODS[name].summary for name in sorted(METHODS)},
        "add-ons": {f"+{name}": "adds " + " and ".join(terms) for name, terms in ADDONS.items()},
        "losses": {name: first_line(term.__doc__) for name, term in TERMS.items()},
        "datasets": {name: kind.summary for name, kind in DATASETS.items()},
        "backbones": {name: BACKBONES.summary(name) for name in BACKBONES},
        "heads": {name: HEADS.summary(name) for name in HEADS},
        "protocols": {
            "-B 50 -C 5": "a first task of 50 classes, then tasks of 5; any B and C up to the number of classes",
            "-B 5 -C 5": "equal tasks",
            "--set protocol.tasks=[50,10,40]": "tasks of 50, 10 and 40 classes",
            "--set protocol.tasks=[[cat,dog],[owl]]": "tasks with these classes, in this order",
        },
        "orders": {
            "seed": "from the seed of the run",
            "seed-1993": "the order in the code of iCaRL, LUCIR and CSCCT",
            "podnet-1, podnet-2, podnet-3": "the orders in the code of PODNet (100 classes)",
            "natural": "the order of the dataset",
        },
    }
    families: dict[str, list[str]] = {}
    for name in listing["methods"]:
        families.setdefault(METHODS[name].family, []).append(name)
    if as_json:
        print(to_json({**listing, "families": families}, indent=1))
        return
    for title, entries in listing.items():
        groups = families if title == "methods" else {"": list(entries)}
        width = max(len(name) for name in entries)
        for family, names in groups.items():
            print(f"{title}, {family}:" if family else f"{title}:")
            for name in names:
                print(f"  {name:{width}}  {entries[name]}")


@data_app.command("list")
def data_list(plugin: Plugin = [], as_json: Json = False) -> None:  # noqa: B006
    """List the datasets."""
    load_plugins(plugin)
    from ..data.registry import DATASETS, HUGGINGFACE, default_data_dir

    if as_json:
        print(
            to_json(
                {name: {"summary": kind.summary, "fetchable": kind.fetchable} for name, kind in DATASETS.items()},
                indent=1,
            )
        )
        return
    for name, kind in DATASETS.items():
        print(f"{name:16} {kind.summary}{' (cscct data fetch ' + name + ')' if kind.fetchable else ''}")
    print(f"{HUGGINGFACE + 'NAME':16} folder of datasets.save_to_disk, or name on the hub (cscct data fetch hf:NAME)")
    print(f"Default data folder: {default_data_dir()} (change it with --data-dir).")


@data_app.command("fetch")
def data_fetch(
    name: DatasetArgument,
    data_dir: DataDir = None,
    plugin: Plugin = [],  # noqa: B006
    quiet: Quiet = False,
) -> None:
    """Download a dataset and check it (cifar10, cifar100, hf:NAME).

    hf:NAME downloads a dataset of the Hugging Face hub, timm:NAME the weights of a network of timm. No other
    command downloads anything.
    """
    load_plugins(plugin)
    if name.startswith("timm:"):
        from ..nets.timm_models import fetch_weights

        print(f"The weights of {name} are ready in {fetch_weights(name.removeprefix('timm:'))}")
        return
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
    """Read a dataset as a run does, and print its properties."""
    load_plugins(plugin)
    from ..data.fetch import check
    from ..data.registry import LoadRequest

    with open_display(quiet=False, as_json=as_json) as display:
        request = LoadRequest(data_dir, skip_bad_images, 0.2, seed=1, warn=display.warn, progress=display.reading)
        properties = check(name, request)
    if as_json:
        print(to_json(properties, indent=1))
        return
    for key, value in properties.items():
        if key != "warnings" and value is not None:
            print(f"{key.replace('_', ' '):26} {_format_value(value)}")
    for warning in properties["warnings"]:
        warn(warning)


def _format_value(value: Any) -> str:
    """Format a number, a size or a range."""
    if isinstance(value, dict):
        return str(value["min"]) if value["min"] == value["max"] else f"{value['min']} to {value['max']}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
