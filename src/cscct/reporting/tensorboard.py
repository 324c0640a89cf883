"""TensorBoard event files: losses and learning rates per epoch, accuracies per task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..analysis.groups import Group
from ..analysis.load import MissingDataError, StoredRun
from ..errors import UserError, install_hint


def writer_class() -> Any:
    """Return TensorBoard's writer.

    Raises:
        UserError: If TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        hint = install_hint("tensorboard")
        raise UserError(f"Event files need tensorboard, which is not installed: {hint}.") from error
    return SummaryWriter


def write_events(groups: Sequence[Group], out: Path, warn: Callable[[str], None]) -> None:
    """Write a folder of event files to `out` for each run. Missing data of a run is a warning."""
    writer_of = writer_class()
    taken: set[str] = set()
    for run in (run for group in groups for run in group.runs):
        name, count = run.path.resolve().name, 1
        while name.lower() in taken:
            count += 1
            name = f"{run.path.resolve().name}-{count}"
        taken.add(name.lower())
        for old in (out / name).glob("events.out.tfevents.*"):
            old.unlink()  # TensorBoard would also draw the events of an earlier report
        with writer_of(str(out / name)) as writer:
            for write in (_write_epochs, _write_accuracies):
                try:
                    write(run, writer)
                except OSError:  # the report cannot be written
                    raise
                except Exception as error:
                    reason = str(error) if isinstance(error, MissingDataError) else f"{type(error).__name__}: {error}."
                    warn(f"The TensorBoard event files of {run.path} are incomplete. {reason}")


def _write_epochs(run: StoredRun, writer: Any) -> None:
    for step, record in enumerate(run.epochs(), start=1):
        values = {"loss": record.get("loss"), "lr": record.get("lr")}
        values |= {f"loss parts/{name}": value for name, value in record.get("losses", {}).items()}
        for tag, value in values.items():
            if value is not None:
                writer.add_scalar(tag, value, step)


def _write_accuracies(run: StoredRun, writer: Any) -> None:
    for task, entry in enumerate(run.result["tasks"]):
        for head, accuracy in entry["accuracy"].items():
            writer.add_scalar(f"accuracy/{head}", accuracy, task + 1)
            for k, value in enumerate(run.result["matrix"][head][task]):
                writer.add_scalar(f"accuracy by task, {head}/task {k + 1}", value, task + 1)
