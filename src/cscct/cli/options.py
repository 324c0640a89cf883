"""Flags that several commands share, and what they mean."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from . import completion

if TYPE_CHECKING:
    from ..config import Settings
    from ..ui.progress import Display, Mode

MethodName = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help="A base, if you like with +csc, +ct, +cscct or +balanced: lucir+cscct.",
        autocompletion=completion.methods,
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Argument(
        metavar="DATASET", help="digits, cifar100, imagenet-subset or folder.", autocompletion=completion.datasets
    ),
]
DatasetArgument = Annotated[
    str,
    typer.Argument(metavar="DATASET", help="A name that `cscct data list` shows.", autocompletion=completion.datasets),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="The dataset's folder or its parent. [default: $CSCCT_DATA, else the user's cache folder]",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results. [default: one under runs/]")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings from a YAML file; --set and other flags override them."),
]
Sets = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one setting, for example train.epochs=20; repeatable. `cscct config` prints all of them.",
        autocompletion=completion.keys,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Seed of every random choice. [default: 1]"),
]
Base = Annotated[
    int | None,
    typer.Option(
        "-B", "--base", metavar="N", help="Classes in the first task. [default: the preset's, else half of them]"
    ),
]
StepSize = Annotated[
    int | None,
    typer.Option(
        "-C", "--step", metavar="N", help="Classes in each later task. [default: the preset's, else for five tasks]"
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="released (hyperparameters of the released code) or printed (those of the paper). [default: released]",
    ),
]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or mps. [default: auto]")]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="CPU threads of a run. [default: all cores]")
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        metavar="N",
        min=1,
        help="Processes on a machine, one a GPU, that share each batch. [default: 1; resume: the run's]",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", metavar="N", min=1, help="Machines, each with --devices processes. [default: 1; resume: the run's]"
    ),
]
PrecisionName = Annotated[
    str | None, typer.Option("--precision", metavar="NAME", help="32-true or bf16-mixed. [default: 32-true]")
]
CompileName = Annotated[
    str | None,
    typer.Option(
        "--compile",
        metavar="NAME",
        help="What torch.compile compiles: none, frozen (networks that do not train) or all. [default: none]",
    ),
]
Plugin = Annotated[
    list[Path],
    typer.Option("--plugin", metavar="FILE", help="A Python file with methods, losses or datasets; repeatable."),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad-images", help="Leave out damaged image files instead of refusing the dataset.")
]
ModelDir = Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="The folder of the model.")]
ModelOrRun = Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="The folder of a model, or of a finished run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and warnings.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


def print_help(context: typer.Context) -> None:
    """A command group without a command prints its help."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def resolve_settings(
    method: str | None,
    dataset: str | None,
    recipe: str | None,
    config: Path | None,
    sets: list[str],
    flags: list[dict[str, Any]],
) -> Settings:
    """The settings of a run, from the words and flags of the command."""
    from ..config import resolve
    from ..yamltext import parse_override, read_config

    overrides = [*(parse_override(text) for text in sets), *flags]
    return resolve(method, dataset, recipe=recipe, config=read_config(config) if config else None, overrides=overrides)


def warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def flag_layers(
    base: int | None = None,
    step: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    skip_bad: bool = False,
    seed: int | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    precision: str | None = None,
    compile_: str | None = None,
) -> list[dict[str, Any]]:
    """The short flags as settings, so that one check serves for both."""
    named = (
        ("protocol", "base", base),
        ("protocol", "step", step),
        ("runtime", "device", device),
        ("runtime", "threads", threads),
        ("runtime", "devices", devices),
        ("runtime", "nodes", nodes),
        ("numerics", "precision", precision),
        ("numerics", "compile", compile_),
    )
    layers: list[dict[str, Any]] = [{section: {key: value}} for section, key, value in named if value is not None]
    if skip_bad:
        layers.append({"data": {"skip_bad_images": True}})
    return [*layers, {"seed": seed}] if seed is not None else layers


def parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds takes whole numbers with commas between, for example 1,2,3, not {text!r}.") from None
    if len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds names a seed twice: {text}.")
    return seeds


def mode(quiet: bool, as_json: bool) -> Mode:
    """How to show progress."""
    return "quiet" if quiet or as_json or is_follower() else "live" if sys.stderr.isatty() else "plain"


def is_follower() -> bool:
    """Whether this process has a rank other than 0, and so prints nothing."""
    rank = os.environ.get("RANK") or max(os.environ.get("LOCAL_RANK", "0"), os.environ.get("NODE_RANK", "0"))
    return rank != "0"


def open_display(quiet: bool, as_json: bool, runs: int = 1) -> Display:
    from ..ui.progress import Display

    return Display(mode(quiet, as_json), runs)


def use_threads(threads: int | None) -> None:
    """Of torch, in this process. None: as many as torch takes."""
    if threads is None:
        return
    if threads < 1:
        raise UserError(f"--threads must be at least 1, not {threads}.")
    import torch

    torch.set_num_threads(threads)
