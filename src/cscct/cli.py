"""The command line: parsing and printing only. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__
from .errors import Interrupted, RunFailed, UserError
from .plugins import load_plugins

if TYPE_CHECKING:
    from .config import Settings
    from .progress import Display
    from .runs.store import FirstTasks, RunFolder

app = typer.Typer(
    help="Image classifiers that learn new classes, task after task, without forgetting the old ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(
    help="Datasets: which there are, where they come from, whether they are whole.", no_args_is_help=True
)
app.add_typer(data_app, name="data")

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The dataset's folder or its parent [$CSCCT_DATA].")]
Out = Annotated[Path | None, typer.Option("--out", help="The folder for the results.")]
Config = Annotated[Path | None, typer.Option("--config", help="Settings from a YAML file.")]
Sets = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable.")]
Base = Annotated[int | None, typer.Option("-B", "--base", help="Classes of the first task.")]
StepSize = Annotated[int | None, typer.Option("-C", "--step", help="Classes of every later task.")]
RecipeName = Annotated[str | None, typer.Option("--recipe", help="released (default) or printed.")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or mps.")]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads of a run.")]
Plugin = Annotated[list[Path], typer.Option("--plugin", help="A Python file with methods, losses or datasets.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad-images", help="Leave out files that cannot be read as images.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and warnings.")]
Json = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]


def version(value: bool) -> None:
    if value:
        print(f"cscct {__version__}")
        raise typer.Exit


@app.callback()
def top(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def run(
    method: Annotated[str | None, typer.Argument(help="A base with +csc, +ct or +cscct: lucir+cscct.")] = None,
    dataset: Annotated[str | None, typer.Argument(help="digits, cifar100, imagenet-subset or folder.")] = None,
    out: Out = None,
    data_dir: DataDir = None,
    config: Config = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Decides everything random [1].")] = None,
    sets: Sets = [],  # noqa: B006  (typer copies it)
    base: Base = None,
    step: StepSize = None,
    recipe: RecipeName = None,
    device: Device = None,
    threads: Threads = None,
    plugin: Plugin = [],  # noqa: B006
    skip_bad_images: SkipBad = False,
    first_tasks: Annotated[Path | None, typer.Option("--first-tasks", hidden=True)] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """One experiment: a method learns a dataset, task by task."""
    flags = _flags(base, step, device, threads, skip_bad_images, seed)
    load_plugins(plugin)
    settings = _settings(method, dataset, recipe, config, sets, flags)
    from .runs.store import FirstTasks, RunFolder

    folder = RunFolder(out or _free_name(Path("runs"), f"{settings.method}-{settings.dataset}-seed{settings.seed}"))
    folder.check_usable()  # before the data is read
    _carry_out(settings, folder, data_dir, FirstTasks(first_tasks) if first_tasks else None, quiet, as_json)


@app.command()
def resume(
    run_dir: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    data_dir: DataDir = None,
    plugin: Plugin = [],  # noqa: B006
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run after a crash, a kill or Ctrl-C, as if nothing had happened."""
    load_plugins(plugin)
    from .runs.store import RunFolder

    folder = RunFolder(run_dir)
    _carry_out(folder.settings(), folder, data_dir, None, quiet, as_json)


@app.command()
def compare(
    methods: Annotated[list[str], typer.Argument(help="Two or more methods; differences are paired by seed.")],
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="What to learn.")] = "digits",
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds with commas between: 1,2,3.")] = "1,2,3",
    out: Out = None,
    data_dir: DataDir = None,
    config: Config = None,
    sets: Sets = [],  # noqa: B006
    base: Base = None,
    step: StepSize = None,
    recipe: RecipeName = None,
    device: Device = None,
    threads: Threads = None,
    plugin: Plugin = [],  # noqa: B006
    skip_bad_images: SkipBad = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time, each in its own process.")] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Several methods on the same seeds: a table with paired differences, and a picture.

    Runs in --out that are finished already are not repeated.
    """
    chosen = _seeds(seeds)
    if jobs > 1 and threads is None:
        threads = max(1, _cores() // jobs)
    flags = _flags(base, step, device, threads, skip_bad_images, None)
    load_plugins(plugin)
    from .config import resolve, tuned_for
    from .yamltext import parse_override, read_config

    methods = list(dict.fromkeys(methods))
    layers = tuned_for([read_config(config) if config else {}, *map(parse_override, sets), *flags], methods)
    wanted = [
        resolve(method, dataset, recipe=recipe, overrides=[*own, {"seed": seed}])
        for method, own in zip(methods, layers, strict=True)
        for seed in chosen
    ]
    from .runs.many import Datasets, run_here, run_in_processes
    from .runs.store import FirstTasks, RunFolder

    with _display(quiet, as_json, len(wanted)) as display, _stop_on_request(display) as stop:
        folder = out or _free_name(Path("runs"), f"compare-{dataset}")
        datasets = Datasets(data_dir, display.warn)
        plan = [datasets.job(one, RunFolder(folder / f"{one.method}-seed{one.seed}")) for one in wanted]
        for job in plan:
            job.folder.state(job.settings)  # a folder with another run is refused before any work
        shared = FirstTasks(folder / "first-tasks")
        if jobs == 1:
            results = run_here(plan, datasets, shared, display, stop)
        else:
            words = [*(["--data-dir", str(data_dir)] if data_dir else []), *_repeat("--plugin", plugin)]
            results = run_in_processes(plan, jobs, shared, words, _Counter(display, len(plan)), stop)
    by_method: dict[str, list[Any]] = {}
    for job, result in zip(plan, results, strict=True):
        by_method.setdefault(job.settings.method, []).append(result)
    _report_comparison(by_method, chosen, plan[0].settings, folder, quiet, as_json)


@app.command("list")
def list_(plugin: Plugin = [], as_json: Json = False) -> None:  # noqa: B006
    """Methods, losses, datasets, backbones and class orders."""
    load_plugins(plugin)
    from .data.sources import DATASETS
    from .losses import TERMS
    from .methods import EXTRAS, METHODS
    from .nets import BACKBONES, HEADS

    listing = {
        "methods": {name: method.summary for name, method in METHODS.items()},
        "additions": {f"+{name}": "adds " + " and ".join(terms) for name, terms in EXTRAS.items()},
        "losses": {name: _first_line(term.function.__doc__) for name, term in TERMS.items()},
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
def data_list(as_json: Json = False) -> None:
    """The datasets there are."""
    from .data.sources import DATASETS, default_data_dir

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
    name: Annotated[str, typer.Argument(help="cifar100")], data_dir: DataDir = None, quiet: Quiet = False
) -> None:
    """Download a dataset, with a checksum. Nothing else in this program downloads."""
    from .data.fetch import fetch

    path = fetch(name, data_dir, progressbar=sys.stderr.isatty() and not quiet, warn=_warn)
    if not quiet:
        print(f"{name} is ready in {path}")


@data_app.command("check")
def data_check(
    name: Annotated[str, typer.Argument(help="The dataset.")],
    data_dir: DataDir = None,
    skip_bad_images: SkipBad = False,
    as_json: Json = False,
) -> None:
    """Read a dataset whole and say what is in it."""
    from .data.fetch import check
    from .data.sources import LoadRequest

    request = LoadRequest(data_dir, skip_bad_images=skip_bad_images, test_fraction=0.2, seed=1, warn=_warn)
    found = check(name, request)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for key, value in found.items():
        print(f"{key.replace('_', ' '):26} {value}")


def _carry_out(
    settings: Settings, folder: RunFolder, data_dir: Path | None, shared: FirstTasks | None, quiet: bool, as_json: bool
) -> None:
    from .runs.many import Datasets
    from .runs.runner import execute

    with _display(quiet, as_json) as display, _stop_on_request(display) as stop:
        datasets = Datasets(data_dir, display.warn)
        settings = datasets.complete(settings)
        if folder.state(settings) == "finished":
            display.say(f"This run is finished already: {folder.path}")
            result = folder.result()
        else:
            result = execute(settings, datasets.of(settings), folder, display, display.warn, shared, stop)
    if as_json:
        print(json.dumps(result, indent=1))
    elif not quiet:
        from .show import print_result

        print_result(result, folder.path)


@contextmanager
def _stop_on_request(display: Display) -> Iterator[Callable[[], bool]]:
    """Ctrl-C or a polite kill asks for a stop at the next step; a second Ctrl-C does not wait for it."""
    asked: list[int] = []

    def hear(number: int, _: object) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not asked:
            display.say("Stopping after this step, with a checkpoint (Ctrl-C again: at once, without) ...")
        asked.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _warn(sentence: str) -> None:
    print(f"warning: {sentence}", file=sys.stderr)


def _flags(
    base: int | None,
    step: int | None,
    device: str | None,
    threads: int | None,
    skip_bad: bool,
    seed: int | None,
) -> list[dict[str, Any]]:
    """The short flags as settings, so that one check serves for both."""
    named = (
        ("protocol", "base", base),
        ("protocol", "step", step),
        ("runtime", "device", device),
        ("runtime", "threads", threads),
    )
    layers: list[dict[str, Any]] = [{section: {key: value}} for section, key, value in named if value is not None]
    if skip_bad:
        layers.append({"data": {"skip_bad_images": True}})
    return [*layers, {"seed": seed}] if seed is not None else layers


def _settings(
    method: str | None,
    dataset: str | None,
    recipe: str | None,
    config: Path | None,
    sets: list[str],
    flags: list[dict[str, Any]],
) -> Settings:
    from .config import resolve
    from .yamltext import parse_override, read_config

    overrides = [*(parse_override(text) for text in sets), *flags]
    return resolve(method, dataset, recipe=recipe, config=read_config(config) if config else None, overrides=overrides)


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds takes whole numbers with commas between, for example 1,2,3, not {text!r}.") from None
    if len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds names a seed twice: {text}.")
    return seeds


def _display(quiet: bool, as_json: bool, runs: int = 1) -> Display:
    from .progress import Display

    return Display("quiet" if quiet or as_json else "live" if sys.stderr.isatty() else "plain", runs)


class _Counter:
    """Says of each run in another process that it has ended, and how long the rest may take."""

    def __init__(self, display: Display, total: int):
        import time

        self.display, self.total, self.ended, self.now = display, total, 0, time.monotonic
        self.started = self.now()

    def __call__(self, job: Any, code: int) -> None:
        from .progress import clock

        self.ended += 1
        left = (self.now() - self.started) / self.ended * (self.total - self.ended)
        how = "finished" if code == 0 else "failed"
        self.display.say(f"{self.ended}/{self.total} {job.folder.path.name} {how}, about {clock(left)} left")


def _free_name(parent: Path, name: str) -> Path:
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _repeat(flag: str, values: list[Path]) -> list[str]:
    return [word for value in values for word in (flag, str(value))]


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


def _report_comparison(
    results: dict[str, list[Any]],
    seeds: list[int],
    settings: Settings,
    folder: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    from .runs import compare as maths
    from .runs.figures import accuracy_curves
    from .runs.files import write_text

    rows = maths.compare(results)
    answer = maths.as_json(rows, seeds, settings.dataset)
    write_text(folder / "compare.json", json.dumps(answer, indent=1) + "\n")
    write_text(folder / "compare.csv", maths.as_csv(rows))
    protocol = f"B={settings.protocol.base}, C={settings.protocol.step}"
    count = f"{len(seeds)} seed" + ("s" if len(seeds) > 1 else "")
    accuracy_curves(results, f"{settings.dataset}, {protocol}, {count}", folder / "curves.png")
    if as_json:
        print(json.dumps(answer, indent=1))
    elif not quiet:
        from .show import print_comparison

        print_comparison(rows, f"{settings.dataset}, {protocol}, {count}: mean ± standard deviation, in percent")
        print(f"Results: {folder} (compare.json, compare.csv, curves.png, a folder for each run)")
