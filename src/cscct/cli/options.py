"""Arguments and options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from . import completion
from .stopping import stop_on_request

if TYPE_CHECKING:
    from ..config import Settings
    from ..experiments import Hooks
    from ..progress import Display
    from ..yamltext import Raw

MethodName = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help="Name of a method with optional +csc, +ct, +cscct or +balanced, such as lucir+cscct.",
        autocompletion=completion.methods,
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Argument(
        metavar="DATASET",
        help="digits, cifar100, folder, hf:NAME or another name that `cscct data list` shows.",
        autocompletion=completion.datasets,
    ),
]
DatasetArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="Name of a dataset; see `cscct data list`.", autocompletion=completion.datasets
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the dataset or its parent. [default: $CSCCT_DATA, else the user's cache folder]",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for the results. [default: a folder in runs/]")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="YAML file with settings; --set and other options override them."),
]
Sets = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, for example train.epochs=20; repeatable. `cscct config` prints all settings.",
        autocompletion=completion.keys,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Seed of all random numbers. [default: 1]"),
]
Base = Annotated[
    int | None,
    typer.Option(
        "-B", "--base", metavar="N", help="Classes in the first task. [default: from the preset, else half of all]"
    ),
]
StepSize = Annotated[
    int | None,
    typer.Option(
        "-C", "--step", metavar="N", help="Classes in each later task. [default: from the preset, else for five tasks]"
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="NAME",
        help="Hyperparameters of the released code (released) or of the paper (printed). [default: released]",
    ),
]
Device = Annotated[str | None, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or mps. [default: auto]")]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="CPU threads. [default: $OMP_NUM_THREADS, else all cores]")
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        metavar="N",
        min=1,
        help="Processes per machine, each with its own GPU, that share each batch. [default: 1; resume: as before]",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", metavar="N", min=1, help="Machines with --devices processes each. [default: 1; resume: as before]"
    ),
]
PrecisionName = Annotated[
    str | None,
    typer.Option("--precision", metavar="NAME", help="auto, 32-true, bf16-mixed or fp16-mixed. [default: auto]"),
]
CompileName = Annotated[
    str | None,
    typer.Option(
        "--compile",
        metavar="NAME",
        help="Networks compiled with torch.compile: none, frozen (not trained), all or cuda-graphs. [default: none]",
    ),
]
Plugin = Annotated[
    list[Path],
    typer.Option(
        "--plugin", metavar="FILE", help="Python file that registers methods, losses or datasets; repeatable."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad-images", help="Skip damaged image files instead of rejecting the dataset.")
]
ModelOrRun = Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="Folder of a model or of a finished run.")]
Log = Annotated[
    str | None,
    typer.Option("--log", metavar="NAME", help="Log to tensorboard, wandb or mlflow during runs. [default: none]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and warnings.")]
Every = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="TIME", help="Read videos, one frame per TIME: 1s, 500ms, 2min. [default: no videos]"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def print_help(context: typer.Context) -> None:
    """Print the help of a command group that is called without a command."""
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
    """Return the settings of a run from the arguments and options of a command."""
    from ..config import resolve
    from ..yamltext import read_config

    content = read_config(config) if config else None
    return resolve(method, dataset, recipe=recipe, config=content, overrides=override_layers(sets, flags))


def override_layers(sets: Sequence[str], flags: list[Raw]) -> list[Raw]:
    """Return the settings of `--set` options, followed by those of other options."""
    from ..yamltext import parse_override

    return [*map(parse_override, sets), *flags]


def warn(message: str) -> None:
    """Print a warning on standard error."""
    print(f"warning: {message}", file=sys.stderr)


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
    log: str | None = None,
) -> list[dict[str, Any]]:
    """Return the settings that options with their own names specify."""
    named = (
        ("protocol", "base", base),
        ("protocol", "step", step),
        ("runtime", "device", device),
        ("runtime", "threads", threads),
        ("runtime", "devices", devices),
        ("runtime", "nodes", nodes),
        ("numerics", "precision", precision),
        ("numerics", "compile", compile_),
        ("runtime", "log", log),
    )
    layers: list[dict[str, Any]] = [{section: {key: value}} for section, key, value in named if value is not None]
    if skip_bad:
        layers.append({"data": {"skip_bad_images": True}})
    return [*layers, {"seed": seed}] if seed is not None else layers


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `--seeds`."""
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds must be comma-separated integers, for example 1,2,3, not {text!r}.") from None
    if len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds contains a seed twice: {text}. Remove the duplicate.")
    return seeds


def open_display(quiet: bool, as_json: bool) -> Display:
    """Return the progress display of a command: live in a terminal, lines in a log file, or nothing."""
    from ..progress import Display, display_mode

    return Display(display_mode(quiet or as_json, fallback="plain"))


@contextmanager
def command_hooks(quiet: bool, as_json: bool) -> Iterator[Hooks]:
    """Display, warnings and stopping of a command that executes runs. Ctrl-C and SIGTERM request a stop."""
    from ..experiments import Hooks
    from ..progress import display_mode

    mode = display_mode(quiet or as_json, fallback="plain")

    def say(message: str) -> None:
        if mode != "quiet":
            print(message, file=sys.stderr)

    with stop_on_request(say) as stop:
        yield Hooks(mode, warn=warn, stop=stop)


def use_threads(threads: int | None) -> None:
    """Set the number of threads of torch in this process.

    Args:
        threads: The number; None for the default of torch, within the quota of the container.
    """
    if threads is not None and threads < 1:
        raise UserError(f"--threads must be at least 1, not {threads}.")
    import torch

    from ..threads import default_threads

    torch.set_num_threads(threads or min(torch.get_num_threads(), default_threads()))
