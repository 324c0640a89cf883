"""What people use from Python. The command line calls the same functions."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import ABBREVIATIONS, Settings, resolve
from .data import Dataset
from .data.datasets.arrays import NAME as ARRAYS
from .data.datasets.arrays import save_arrays
from .data.registry import Progress, no_progress
from .data.registry import register as register_dataset
from .errors import UserError, Warn
from .losses import register as register_loss
from .methods import register as register_method
from .nets.custom import use_backbone
from .nets.registries import register_backbone
from .plugins import load_plugins
from .runs.files import unused_path
from .runs.first_tasks import FirstTaskCache
from .runs.folder import RunFolder
from .runs.listeners import Listener, Listeners
from .runs.model import TrainedModel, load_model
from .yamltext import Raw, nested

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import nn

    from .analysis.tables import ResultsTable
    from .classifier.estimator import IncrementalClassifier
    from .runs.runner import Stop

__all__ = [
    "Run",
    "compare",
    "load",
    "register_backbone",
    "register_dataset",
    "register_loss",
    "register_method",
    "resume",
    "run",
]


@dataclass(frozen=True)
class Run:
    """A run that is finished.

    Attributes:
        path: Its folder.
        result: What its `result.json` holds; all accuracies are percent.
    """

    path: Path
    result: dict[str, Any]

    @property
    def summary(self) -> dict[str, float | None]:
        """Average incremental and last accuracy, APT, ACT and forgetting of the method's own prediction."""
        found: dict[str, float | None] = self.result["summary"][self.result["headline"]]
        return found

    def curve(self, ax: Axes | None = None) -> Axes:
        """Draw the accuracy on all classes seen after each task, into `ax` or a new figure."""
        from .report.curves import plot_run

        return plot_run(self.path, ax)

    def load(self) -> TrainedModel:
        """The trained model; the same as `cscct.load(run.path)`."""
        return load_model(self.path)

    def __repr__(self) -> str:
        average = self.summary["average_incremental_accuracy"]
        return f"<Run {self.result['method']} on {self.result['dataset']}, {average:.2f} % average, {str(self.path)!r}>"


def run(
    method: str,
    dataset: str | Dataset,
    *,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    recipe: str | None = None,
    listeners: Sequence[Listener] = (),
    backbone: nn.Module | Callable[[int], nn.Module] | None = None,
) -> Run:
    """One experiment: a method learns a dataset, task by task. The same run as `cscct run`, with the same folder.

    Args:
        method: A base with or without additions, as in `lucir+cscct`.
        dataset: A name, or a `Dataset` of your own.
        seed: Decides everything random.
        settings: As `--set` takes them, `{"train.epochs": 5}`; `B` and `C` for `protocol.base` and `protocol.step`.
        out: The folder of the run; by default a new one in `runs/`. One that holds a run with the same settings is
            continued, or only read if it is finished.
        data_dir: The dataset's folder or its parent; by default `$CSCCT_DATA`, else the user's cache folder.
        recipe: `released` (default) or `printed`.
        listeners: Callbacks; see `Listener`.
        backbone: A module of your own, or a function of the images' channels that builds one, instead of
            `network.backbone`. It gives features (k, d), maps (k, c, h, w), one for each stage, or a pair of both.
    """
    load_plugins()
    overrides = [*layers(settings or {}), {"seed": seed}]
    if backbone is not None:
        overrides.append({"network": {"backbone": use_backbone(backbone)}})
    chosen = resolve(method, _name(dataset), recipe=recipe, overrides=overrides)
    return run_settings(
        chosen,
        dataset if isinstance(dataset, Dataset) else None,
        out=Path(out) if out is not None else None,
        data_dir=Path(data_dir) if data_dir is not None else None,
        listener=Listeners(listeners),
    )


def resume(
    run_dir: str | Path,
    *,
    dataset: Dataset | None = None,
    data_dir: str | Path | None = None,
    listeners: Sequence[Listener] = (),
    backbone: nn.Module | Callable[[int], nn.Module] | None = None,
) -> Run:
    """Go on with a run that was stopped, as if nothing had happened; a finished one is only read.

    Args:
        run_dir: The folder of the run.
        dataset: As it was given to `run`, for a run with a `Dataset` of your own.
        data_dir: By default where the data was when the run began.
        listeners: Callbacks; see `Listener`.
        backbone: As it was given to `run`, for a run with one.
    """
    load_plugins()
    if backbone is not None:
        use_backbone(backbone)
    folder = RunFolder(Path(run_dir))
    finished = finished_run(folder)
    if finished is not None:
        return finished
    data = Path(data_dir) if data_dir is not None else folder.origin()[0]
    return run_settings(folder.settings(), dataset, out=folder.path, data_dir=data, listener=Listeners(listeners))


def finished_run(folder: RunFolder) -> Run | None:
    """The run in a folder, if it is finished; its data is not needed."""
    folder.config()  # raises if there is no run
    result = folder.result()
    if result.get("status") != "finished":
        return None
    folder.clear_stale_checkpoints()
    return Run(folder.path, result)


def run_settings(
    settings: Settings,
    dataset: Dataset | None = None,
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    plugins: Sequence[Path] = (),
    listener: Listener | None = None,
    warn: Warn = warnings.warn,
    progress: Progress = no_progress,
    first_tasks: FirstTaskCache | None = None,
    stop: Stop | None = None,
) -> Run:
    """Carry out resolved settings. dataset: by default loaded as the settings say, with `progress` told of it."""
    from .learn.dataset import load_dataset
    from .runs.runner import execute, never

    name = f"{settings.method}-{settings.dataset}-seed{settings.seed}"
    folder = RunFolder(out if out is not None else unused_path(Path("runs"), name))
    folder.check_usable()  # before the data is read
    data = dataset if dataset is not None else load_dataset(settings, data_dir, warn, progress)
    result = execute(settings, data, folder, listener, warn, first_tasks, stop or never, (data_dir, plugins))
    return Run(folder.path, result)


def compare(
    methods: Sequence[str],
    dataset: str | Dataset,
    *,
    seeds: Iterable[int] = (1, 2, 3),
    settings: Mapping[str, Any] | None = None,
    jobs: int = 1,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    recipe: str | None = None,
    listeners: Sequence[Listener] = (),
) -> ResultsTable:
    """Several methods on the same seeds: means, deviations, and differences paired by seed with their 95 % interval.

    The same as `cscct compare`. A method with additions is compared with its base if that is among the methods, any
    other with the first.

    Args:
        methods: Two or more, as in `["lucir", "lucir+cscct"]`.
        dataset: A name, or a `Dataset` of your own.
        seeds: Each method is run with each of them.
        settings: As `--set` takes them.
        jobs: Runs at a time, each in a process of its own, which knows built-in methods and installed plugins only. 1
            runs them here, one after another, where `listeners` are told of them.
        out: By default a new folder in `runs/`; runs in it that are finished are only read.
        data_dir: The dataset's folder or its parent.
        recipe: `released` (default) or `printed`.
        listeners: Callbacks; see `Listener`.
    """
    from .report.comparison import write_comparison
    from .studies.datasets import DatasetCache
    from .studies.execution import ExecutionOptions, carry_out
    from .studies.grid import plan_comparison
    from .studies.plan import complete_plan

    if isinstance(methods, str) or jobs < 1:
        raise UserError("methods is a list of two or more methods, and jobs a number from 1 on.")
    load_plugins()
    name, numbers, overrides = _name(dataset), [operator.index(seed) for seed in seeds], layers(settings or {})
    folder = Path(out) if out is not None else unused_path(Path("runs"), f"compare-{name}")
    plan = plan_comparison(methods, name, numbers, folder, recipe=recipe, overrides=overrides)
    data = Path(data_dir) if data_dir is not None else None
    if isinstance(dataset, Dataset) and jobs > 1:  # other processes read it from a file
        data = folder / "data"
        save_arrays(dataset, data)
    given = {name: dataset} if isinstance(dataset, Dataset) else {}
    datasets = DatasetCache(data, warnings.warn, given=given)
    options = ExecutionOptions(jobs=jobs, in_process=True)
    plan = complete_plan(plan, datasets, options.threads)
    status = carry_out(plan, options, datasets, listener=Listeners(listeners))
    table = write_comparison(plan, folder)[0]
    status.raise_for_failures()
    return table


def load(
    path: str | Path,
    *,
    prediction: str | None = None,
    device: str = "auto",
    backbone: nn.Module | Callable[[int], nn.Module] | None = None,
) -> TrainedModel | IncrementalClassifier:
    """The trained model of a run, or the classifier in a model folder; the data is not needed.

    Args:
        path: The folder of a finished run, or a model folder that `cscct learn` or `IncrementalClassifier.save` made.
        prediction: Of a run: `classifier`, `nme` (nearest mean of exemplars), `lda` or `ridge` (fitted to the features
            of exemplars); by default the one that the method stands for.
        device: `auto`, `cpu`, `cuda` or `mps`.
        backbone: As it was given to `run`, for a run with one; its weights come from the folder.
    """
    from torch import nn

    from .classifier.store import ModelFolder, is_model_folder

    load_plugins()
    if is_model_folder(path):
        if prediction is not None:
            raise UserError("prediction is a choice for runs; a model folder has its own predictor.")
        module = backbone if backbone is None or isinstance(backbone, nn.Module) else backbone(3)
        return ModelFolder(path).load(backbone=module, device=device)
    name = use_backbone(backbone) if backbone is not None else None
    return load_model(path, prediction=prediction, device=device, backbone=name)


def _name(dataset: str | Dataset) -> str:
    """What the settings call a dataset; those in memory have one name for all."""
    if not isinstance(dataset, str | Dataset):
        raise UserError("dataset is a name, or a cscct.Dataset (Dataset.from_arrays makes one of arrays).")
    return dataset if isinstance(dataset, str) else ARRAYS


def layers(settings: Mapping[str, Any]) -> list[Raw]:
    """`{"train.epochs": 5}` as layers of settings."""
    if "seed" in settings:
        raise UserError("The seed is an argument of its own (seed=1, or seeds=[1, 2] of a comparison), not a setting.")
    return [nested(ABBREVIATIONS.get(key, key), value) for key, value in settings.items()]
