"""Event files for TensorBoard: losses and learning rates by epoch, accuracies by task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..analysis.groups import Group
from ..analysis.load import Missing, Run
from ..errors import UserError


def writer_class() -> Any:
    """TensorBoard's writer, or a `UserError` if it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "Event files need the tensorboard package, which is not installed: pip install 'cscct[tensorboard]'"
        ) from error
    return SummaryWriter


def write_events(groups: Sequence[Group], out: Path, warn: Callable[[str], None]) -> None:
    """A folder of event files in `out` for each run; what cannot be written of a run is left out with a warning."""
    writer_of = writer_class()
    taken: set[str] = set()
    for run in (run for group in groups for run in group.runs):
        name, count = run.path.resolve().name, 1
        while name.lower() in taken:
            count += 1
            name = f"{run.path.resolve().name}-{count}"
        taken.add(name.lower())
        for old in (out / name).glob("events.out.tfevents.*"):
            old.unlink()  # of an earlier report: TensorBoard would draw both
        with writer_of(str(out / name)) as writer:
            for write in (_write_epochs, _write_accuracies):
                try:
                    write(run, writer)
                except OSError:  # the report cannot be written
                    raise
                except Exception as error:
                    reason = str(error) if isinstance(error, Missing) else f"{type(error).__name__}: {error}."
                    warn(f"The event files for TensorBoard of {run.path} are incomplete. {reason}")


def _write_epochs(run: Run, writer: Any) -> None:
    for step, record in enumerate(run.epochs(), start=1):
        values = {"loss": record.get("loss"), "lr": record.get("lr")}
        values |= {f"loss parts/{name}": value for name, value in record.get("losses", {}).items()}
        for tag, value in values.items():
            if value is not None:
                writer.add_scalar(tag, value, step)


def _write_accuracies(run: Run, writer: Any) -> None:
    for task, entry in enumerate(run.result["tasks"]):
        for head, accuracy in entry["accuracy"].items():
            writer.add_scalar(f"accuracy/{head}", accuracy, task + 1)
            for k, value in enumerate(run.result["matrix"][head][task]):
                writer.add_scalar(f"accuracy by task, {head}/task {k + 1}", value, task + 1)
