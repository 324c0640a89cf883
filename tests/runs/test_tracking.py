"""Live logging of runs."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import run_quietly, settings_for
from cscct.errors import UserError
from cscct.runs.tracking import SINKS, flat, tracking

SHORT = ("train.epochs=2", "data.classes=4", "data.train_per_class=10", "protocol.base=2", "network.depth=8")


class Recorder:
    """Stands for the modules wandb and mlflow, and for a run of wandb."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.config = SimpleNamespace(update=lambda values: self.calls.append(("settings", values)))

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> "Recorder":
            self.calls.append((name, (*arguments, options)))
            return self

        return call

    def named(self, *names: str) -> list[Any]:
        return [arguments for name, arguments in self.calls if name in names]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_values_that_are_logged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Recorder()
    monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    result = run_quietly(tmp_path / "run", "lucir", *SHORT, f"runtime.log={name}")
    logged = [arguments[0] for arguments in module.named("log", "log_metrics")]
    epochs = [values for values in logged if "loss" in values]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [values["loss"] for values in epochs] == [line["loss"] for line in lines]
    tasks = [values["accuracy/classifier"] for values in logged if "accuracy/classifier" in values]
    assert tasks == [entry["accuracy"]["classifier"] for entry in result["tasks"]]
    (settings,) = (entry[0] if isinstance(entry, tuple) else entry for entry in module.named("settings", "log_params"))
    assert str(settings["train.epochs"]) == "2"
    assert any("summary/last_accuracy" in values for values in logged)
    files = {Path(arguments[0]).name for arguments in module.named("log_artifact")}
    assert files == {"config.yaml", "result.json", "metrics.jsonl"}
    assert module.calls[-1][0] in ("finish", "end_run")


def test_tensorboard(tmp_path: Path) -> None:
    loading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = run_quietly(tmp_path / "run", "lucir", *SHORT, "runtime.log=tensorboard")
    events = loading.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    logged = [event.value for event in events.Scalars("accuracy/classifier")]
    assert logged == pytest.approx([entry["accuracy"]["classifier"] for entry in result["tasks"]])
    assert len(events.Scalars("loss")) == 2 * len(result["tasks"])
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package, which writes one file per run without a network."""
    pytest.importorskip("wandb", reason="pip install 'cscct[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    result = run_quietly(tmp_path / "run", "lucir", *SHORT, "runtime.log=wandb")
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    names = ("accuracy/classifier", "loss parts/cross_entropy", "summary/last_accuracy", "train.epochs")
    assert [name for name in names if name.encode() not in content] == []
    for entry in result["tasks"]:
        assert json.dumps(entry["accuracy"]["classifier"]).encode() in content


def test_failures_end_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", module)  # type: ignore[arg-type]

    def fail() -> None:
        with tracking("mlflow", tmp_path) as (tracker,):
            tracker.run_started(settings_for("lucir", "digits"), (), 0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert module.named("end_run") == [("FAILED", {})]
    for name in SINKS:
        monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
        with pytest.raises(UserError, match=rf"cscct\[{name}\]"), tracking(name, tmp_path):
            pass


def test_flat() -> None:
    assert flat({"a": {"b": 1, "c": {}}, "d": [1, 2]}) == {"a.b": 1, "a.c": "{}", "d": "[1, 2]"}
