"""The small runs that are attacked, and their reproducible results."""

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


def set_options(*texts: str) -> list[str]:
    """Return settings such as `a=1` as arguments `--set a=1`."""
    return [argument for text in texts for argument in ("--set", text)]


def run_arguments(method: str, *more: str) -> tuple[str, ...]:
    """Return the arguments of a small run in the folder `run`."""
    return ("run", method, "digits", *set_options(*TINY, *more), "--out", "run", "--quiet")


LUCIR = (*run_arguments("lucir+cscct"), "--first-task-cache", "first-tasks")
PODNET = run_arguments("podnet+cscct", "finetune.epochs=1")
EXTENDED = run_arguments("si")  # with state of an extension in its checkpoints
COMPARE = ("compare", "lucir", "lucir+cscct", "--seeds", "1", *set_options(*TINY), "--out", "comparison", "--quiet")


def reproducible_values(value: Any) -> Any:
    """Return a result without times, rates and the environment."""
    left_out = ("seconds", "environment", "images_per_second")
    if isinstance(value, dict):
        return {key: reproducible_values(item) for key, item in value.items() if key not in left_out}
    return [reproducible_values(item) for item in value] if isinstance(value, list) else value


def numbers_of(folder: Path) -> dict[str, Any]:
    """Return results (with hashes of weights), epochs and tables of all runs in a folder, by file."""
    numbers: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.name in ("result.json", "compare.json"):
            numbers[name] = reproducible_values(json.loads(path.read_text()))
        elif path.name == "metrics.jsonl":
            numbers[name] = [reproducible_values(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name in ("compare.csv", "config.yaml"):
            numbers[name] = path.read_text()
        elif path.suffix == ".safetensors" and path.parent.name != "checkpoints":
            numbers[name] = _tensors(path)
    return numbers


def _tensors(path: Path) -> dict[str, str]:
    """Return tensors and metadata of a file by name, since their order in the file varies."""
    with safe_open(path, "np") as file:
        return {**(file.metadata() or {}), **{name: file.get_tensor(name).tobytes().hex() for name in file.keys()}}  # noqa: SIM118
