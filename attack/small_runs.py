"""The small runs that are attacked, and the numbers that must not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open

TINY = (
    "train.epochs=1",
    "data.train_per_class=4",
    "data.test_per_class=3",
    "data.classes=4",
    "protocol.base=2",
    "protocol.step=2",
    "memory.per_class=2",
    "network.depth=8",
    "runtime.threads=1",
    "checkpoint.minutes=0",
)


def sets(*texts: str) -> list[str]:
    """`a=1` as the words `--set a=1`."""
    return [argument for text in texts for argument in ("--set", text)]


def run_words(method: str, *more: str) -> tuple[str, ...]:
    """A command that makes a small run in the folder `run`."""
    return ("run", method, "digits", *sets(*TINY, *more), "--out", "run", "--quiet")


LUCIR = (*run_words("lucir+cscct"), "--first-task-cache", "first-tasks")
PODNET = run_words("podnet+cscct", "finetune.epochs=1")
EXTENDED = run_words("si")  # with state of an extension in its checkpoints
COMPARE = ("compare", "lucir", "lucir+cscct", "--seeds", "1", *sets(*TINY), "--out", "comparison", "--quiet")


def plain(value: Any) -> Any:
    """What must be the same twice: all but times, rates and the machine."""
    left_out = ("seconds", "environment", "images_per_second")
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in left_out}
    return [plain(item) for item in value] if isinstance(value, list) else value


def numbers_of(folder: Path) -> dict[str, Any]:
    """Results (the weights' hash is in them), epochs and tables of all runs in a folder, by file."""
    numbers: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name in ("result.json", "compare.json"):
            numbers[name] = plain(json.loads(path.read_text()))
        elif path.name == "metrics.jsonl":
            numbers[name] = [plain(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name in ("compare.csv", "config.yaml"):
            numbers[name] = path.read_text()
        elif path.suffix == ".safetensors" and path.parent.name != "checkpoints":
            numbers[name] = _tensors(path)
    return numbers


def _tensors(path: Path) -> dict[str, str]:
    """Not the bytes: the order of the metadata is another each time."""
    with safe_open(path, "np") as file:
        return {**(file.metadata() or {}), **{name: file.get_tensor(name).tobytes().hex() for name in file.keys()}}  # noqa: SIM118
