"""Live logging of runs to TensorBoard, Weights & Biases or MLflow (`runtime.log`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..config import Settings
from ..errors import UserError, install_hint
from ..structs import Task
from .folder import CONFIG, METRICS, RESULT
from .listeners import Listener

ARTIFACTS = (CONFIG, RESULT, METRICS)


class Sink(Protocol):
    """What a logging service does. Created with the folder of the run."""

    def settings(self, values: Mapping[str, Any]) -> None:
        """Log the settings of the run by dotted name."""

    def values(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers."""

    def artifact(self, path: Path) -> None:
        """Store a file of the run."""

    def close(self, failed: bool) -> None:
        """End the log."""


class Tracker(Listener):
    """Logs losses and learning rate after each epoch, accuracies after each task, settings, summary and files.

    Args:
        kind: Class of the service, which is opened when the run starts.
        folder: Folder of the run.
    """

    sink: Sink

    def __init__(self, kind: Callable[[Path], Sink], folder: Path):
        self.kind, self.folder, self.steps = kind, folder, 0

    def run_started(self, settings: Settings, tasks: tuple[Task, ...], images: int) -> None:
        metrics = self.folder / METRICS  # of earlier processes of the run
        self.steps = len(metrics.read_text(encoding="utf-8").splitlines()) if metrics.is_file() else 0
        self.sink = self.kind(self.folder)
        self.sink.settings(flat(settings.dump()))

    def epoch(self, record: dict[str, Any]) -> None:
        self.steps += 1
        values = {"loss": record.get("loss"), "lr": record.get("lr")}
        values |= {f"loss parts/{name}": value for name, value in record.get("losses", {}).items()}
        self.sink.values({name: value for name, value in values.items() if value is not None}, self.steps)

    def task_finished(self, entry: Mapping[str, Any]) -> None:
        accuracies = {f"accuracy/{name}": value for name, value in entry["accuracy"].items()}
        self.sink.values({**accuracies, "task": entry["task"]}, self.steps)

    def run_finished(self, result: Mapping[str, Any], folder: Path) -> None:
        summary = result["summary"][result["headline"]]
        self.sink.values({f"summary/{k}": v for k, v in summary.items() if isinstance(v, int | float)}, self.steps)
        for name in ARTIFACTS:
            if (folder / name).is_file():
                self.sink.artifact(folder / name)


class TensorBoardSink:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, folder: Path):
        module = _imported("tensorboard")
        self.writer = module.SummaryWriter(str(folder / "tensorboard"))

    def settings(self, values: Mapping[str, Any]) -> None:
        self.writer.add_text("settings", "\n".join(f"    {name}: {value}" for name, value in values.items()))

    def values(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def artifact(self, path: Path) -> None:
        if path.suffix != ".jsonl":
            self.writer.add_text(path.name, "\n".join(f"    {line}" for line in path.read_text("utf-8").splitlines()))

    def close(self, failed: bool) -> None:
        self.writer.close()


class WandbSink:
    """A run of Weights & Biases. `WANDB_MODE=offline` writes to the folder of the run only."""

    def __init__(self, folder: Path):
        self.wandb = _imported("wandb")
        self.run = self.wandb.init(
            project="cscct", name=folder.resolve().name, dir=str(folder), reinit="finish_previous"
        )

    def settings(self, values: Mapping[str, Any]) -> None:
        self.run.config.update(dict(values))

    def values(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def artifact(self, path: Path) -> None:
        self.run.log_artifact(str(path), name=path.name.replace(".", "-"), type="run")

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


class MlflowSink:
    """A run of MLflow, in the experiment `cscct`. `MLFLOW_TRACKING_URI` selects the store."""

    LENGTH = 500  # of a parameter

    def __init__(self, folder: Path):
        self.mlflow = _imported("mlflow")
        self.mlflow.set_experiment("cscct")
        self.mlflow.start_run(run_name=folder.resolve().name)

    def settings(self, values: Mapping[str, Any]) -> None:
        self.mlflow.log_params({name: str(value)[: self.LENGTH] for name, value in values.items()})

    def values(self, values: Mapping[str, float], step: int) -> None:
        self.mlflow.log_metrics(dict(values), step=step)

    def artifact(self, path: Path) -> None:
        self.mlflow.log_artifact(str(path))

    def close(self, failed: bool) -> None:
        self.mlflow.end_run("FAILED" if failed else "FINISHED")


SINKS: dict[str, Callable[[Path], Sink]] = {
    "tensorboard": TensorBoardSink,
    "wandb": WandbSink,
    "mlflow": MlflowSink,
}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name."""
    names: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            names |= flat(value, f"{prefix}{key}.")
        else:
            names[prefix + key] = json.dumps(value) if isinstance(value, list | dict) else value
    return names


@contextmanager
def tracking(name: str | None, folder: Path) -> Iterator[list[Listener]]:
    """Log a run while the block is executed.

    Args:
        name: Name in `SINKS`; None logs nothing.
        folder: Folder of the run.

    Raises:
        UserError: The package of the service is not installed.
    """
    if name is None:
        yield []
        return
    _imported(name)  # before the data is prepared
    tracker = Tracker(SINKS[name], folder)
    failed = True
    try:
        yield [tracker]
        failed = False
    finally:
        if hasattr(tracker, "sink"):  # it was started
            tracker.sink.close(failed)


def _imported(name: str) -> Any:
    try:
        return import_module({"tensorboard": "torch.utils.tensorboard"}.get(name, name))
    except ImportError as error:
        raise UserError(f"runtime.log is {name}, which is not installed: {install_hint(name)}.") from error
