"""The Python API. The command line calls the same functions, or `cscct.experiments` below them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import resolve
from .data import Dataset
from .errors import UserError
from .experiments import Hooks, dataset_name, layers, optional_path, run_settings
from .nets.custom import use_backbone
from .plugins import load_plugins
from .progress import Display, display_mode
from .runs.folder import RunFolder
from .runs.listeners import Listeners

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import nn

    from .classifier.estimator import IncrementalClassifier


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: Folder of the run.
        result: Content of `result.json`. All accuracies are percent.
    """

    path: Path
    result: dict[str, Any]

    @property
    def summary(self) -> dict[str, float | None]:
        """Average incremental and last accuracy, harmonic mean of old and new classes, APT, ACT and forgetting."""
        metrics: dict[str, float | None] = self.result["summary"][self.result["headline"]]
        return metrics

    def curve(self, ax: Axes | None = None) -> Axes:
        """Plot the accuracy on all classes seen so far after each task.

        Args:
            ax: Axes to draw into; by default those of a new figure.

        Returns:
            The axes.
        """
        from .analysis.plots import plot_run

        return plot_run(self.path, ax)

    def load(self) -> IncrementalClassifier:
        """Load the trained model, as `cscct.load(run.path)` does."""
        return load(self.path)

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
    listeners: Sequence[object] = (),
    backbone: nn.Module | Callable[[int], nn.Module] | None = None,
    quiet: bool = False,
) -> Run:
    """Train a method on a dataset, task by task. The result is the same as with `cscct run`.

    Args:
        method: Name of a method with optional additions, such as `lucir+cscct`.
        dataset: Name of a dataset, or a `Dataset`.
        seed: Seed of all random numbers.
        settings: Settings by dotted name, such as `{"train.epochs": 5}`. `B` and `C` are short for `protocol.base` and
            `protocol.step`.
        out: Folder of the run; by default a new folder in `runs/`. If it contains a run with the same settings, that
            run is continued, or only read if it is finished.
        data_dir: Folder of the dataset or its parent; by default `$CSCCT_DATA`, else the user's cache folder.
        recipe: Hyperparameters: `released` (default) or `printed`.
        listeners: Objects with some of the methods of `Listener`.
        backbone: Module, or function from the number of image channels to a module, that replaces `network.backbone`.
            It returns features (k, d), a tuple of feature maps (k, c, h, w) with one per stage, or both as a pair.
        quiet: Display no progress. Progress is only displayed in terminals and notebooks.

    Returns:
        The finished run.

    Raises:
        UserError: If an argument is invalid, the data is missing, or `out` contains a different run.
        RunFailed: If training fails, for example because a loss is not finite.
    """
    load_plugins()
    overrides = [*layers(settings), {"seed": seed}]
    if backbone is not None:
        overrides.append({"network": {"backbone": use_backbone(backbone)}})
    resolved = resolve(method, dataset_name(dataset), recipe=recipe, overrides=overrides)
    in_memory = dataset if isinstance(dataset, Dataset) else None
    hooks = Hooks(display_mode(quiet), listeners)
    return Run(
        *run_settings(resolved, in_memory, out=optional_path(out), data_dir=optional_path(data_dir), hooks=hooks)
    )


def resume(
    run_dir: str | Path,
    *,
    dataset: Dataset | None = None,
    data_dir: str | Path | None = None,
    listeners: Sequence[object] = (),
    backbone: nn.Module | Callable[[int], nn.Module] | None = None,
    plugins: Sequence[str | Path] = (),
    devices: int | None = None,
    nodes: int | None = None,
    quiet: bool = False,
    hooks: Hooks | None = None,
) -> Run:
    """Continue a run that was interrupted. The result is identical to that of an uninterrupted run.

    Args:
        run_dir: Folder of the run. The result of a finished run is only read.
        dataset: The `Dataset` that was passed to `run`, if it was not a name.
        data_dir: Folder of the dataset; by default the folder used before the interruption.
        listeners: Objects with some of the methods of `Listener`.
        backbone: The backbone that was passed to `run`, if any.
        plugins: Plugin files of the run.
        devices: Number of processes on each machine; by default that of the run.
        nodes: Number of machines; by default that of the run.
        quiet: Display no progress.
        hooks: Used by the command line instead of `listeners` and `quiet`.

    Returns:
        The finished run.

    Raises:
        UserError: If the folder contains no run, or the data or a plugin of the run is missing.
        RunFailed: If training fails.
    """
    files = [Path(file) for file in plugins]
    load_plugins(files)
    if backbone is not None:
        use_backbone(backbone)
    hooks = hooks or Hooks(display_mode(quiet), listeners)
    folder = RunFolder(Path(run_dir))
    folder.config()  # raises if the folder contains no run
    result = folder.result()
    if result.get("status") == "finished":  # the data is not needed
        folder.clear_stale_checkpoints()
        Listeners([Display(hooks.mode), *hooks.listeners]).found_finished(result, folder.path)
        return Run(folder.path, result)
    recorded_dir, recorded_plugins = folder.origin()
    try:
        stored = folder.settings()
    except UserError as error:
        if not recorded_plugins or files:
            raise
        # Plugins are code, so they are never loaded without a request.
        flags = " ".join(f"--plugin {path}" for path in recorded_plugins)
        raise UserError(f"{error} The run was started with {flags}: specify the same plugins again.") from error
    runtime = stored.runtime
    runtime = replace(runtime, devices=devices or runtime.devices, nodes=nodes or runtime.nodes)
    stored = stored.model_copy(update={"runtime": runtime})
    data = optional_path(data_dir) or recorded_dir
    return Run(*run_settings(stored, dataset, out=folder.path, data_dir=data, plugins=files, hooks=hooks))


def load(
    path: str | Path,
    *,
    predictor: str | None = None,
    version: int | None = None,
    device: str = "auto",
    backbone: nn.Module | Callable[[int], nn.Module] | None = None,
    prediction: str | None = None,
) -> IncrementalClassifier:
    """Load a model: from a model folder, or from the folder of a finished run. The data is not needed.

    Args:
        path: A run folder, or a model folder that `cscct learn` or `IncrementalClassifier.save` wrote.
        predictor: For the model of a run: `classifier`, `nme` (nearest mean of exemplars), `lda` or `ridge`. Default:
            the predictor of the method.
        version: Version of the model; 0 is that of the run itself. Default: the current one.
        device: `auto`, `cpu`, `cuda` or `mps`.
        backbone: The module (or factory) that the model was made with; its weights come from the folder.
        prediction: Deprecated name of `predictor`.

    Returns:
        The model, which predicts and can keep learning.
    """
    from .classifier.versions import StoredVersions

    load_plugins()
    if prediction is not None:
        warnings.warn(f"prediction= is deprecated: write predictor={prediction!r}.", FutureWarning, stacklevel=2)
        predictor = predictor or prediction
    return StoredVersions(path).load(version, predictor=predictor, backbone=backbone, device=device)
