"""Damaged files and changed fields of model folders: commands reject the folder with a message, or give valid output.

A change that the checksums cover must be refused or leave the predictions as they are. Somebody may also change a value
together with its checksum, or in a folder of an earlier version, which has none: then values in range are accepted, and
what comes of them must be valid.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from damage import CONTENTS, PLACES, damage
from fuzz_reports import DTYPES, SHAPES, VALUES
from model_folders import PREDICT, changes_of, make_continued_run, make_model, predictions, strict_json
from watch import CaseResult, CommandResult, Kind, Outside, run_command

LIMIT = 60.0
WORKING = (".lock", ".lock-holder", ".model.json.tmp", "versions/.unfinished", "versions/0099.json", "files/other")
FIELDS = ("stale checksum", "new checksum", "no checksum")
TENSORS = ("nan", "inf", "negative", "huge", "shape", "type", "name", "missing", "extra")
AFTERWARDS = (("info", "model", "--json"), ("learn", "model", "third", "--quiet"))


class DamagedModels(Kind):
    """Changes of each file, field and tensor of two folders: a model, and a run that learned another class."""

    name = "model folders"

    def __init__(self, scratch: Path):
        self.sources = {"model": scratch / "model", "continued run": scratch / "run"}
        for folder in self.sources.values():
            folder.mkdir(parents=True)
        make_model(self.sources["model"])
        make_continued_run(self.sources["continued run"])
        self.afterwards = (*AFTERWARDS, *changes_of(self.sources["model"] / "model").values())
        self.predictions = {name: predictions(folder) for name, folder in self.sources.items()}
        self.points: list[tuple[str, str, str, Any]] = []
        for name, folder in self.sources.items():
            model = folder / "model"
            files = {str(path.relative_to(model)) for path in _model_files(model)} | set(WORKING)
            self.points += [("file", name, *point) for point in itertools.product(sorted(files), [*CONTENTS, *PLACES])]
            for file in _json_files(model):
                fields = list(_leaves(json.loads((model / file).read_text())))
                self.points += [("field", name, file, keys) for keys in fields]
            for file in sorted(path.name for path in _distinct_files(model) if path.suffix == ".safetensors"):
                self.points += [("tensors", name, file, way) for way in TENSORS]
        self.cases = len(self.points)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        kind, source, file, change = self.points[number]
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self.sources[source], workdir)
        covered = True
        if kind == "file":
            damage(workdir / "model" / file, change, rng, workdir / "model", outside.folder)
        elif kind == "field":
            change = rng.choice(FIELDS), change
            covered = _change_field(workdir / "model", file, change, rng)
        else:
            covered = False
            _change_tensors(workdir / "model", file, change, rng)
        result = CaseResult("same predictions", f"{source}: {file}: {change}")
        completed = run_command(*PREDICT, folder=workdir, limit=LIMIT)
        self._judge(result, completed, source, covered)
        if rng.random() < 0.4:
            result.faults += _output_faults(run_command(*rng.choice(self.afterwards), folder=workdir, limit=LIMIT))
            result.faults += _output_faults(run_command(*PREDICT, folder=workdir, limit=LIMIT))
        result.faults += outside.faults()
        return result

    def _judge(self, result: CaseResult, completed: CommandResult, source: str, covered: bool) -> None:
        result.faults += _output_faults(completed)
        if completed.has_message:
            result.outcome = "rejected with a message"
        elif completed.code == 0 and completed.stdout != self.predictions[source]:
            result.outcome = "accepted"
            if covered:
                result.faults.append(f"changed predictions: {completed.stdout[:200]}")


def _output_faults(completed: CommandResult) -> list[str]:
    """Return the faults of a command, including `--json` output that is not valid JSON."""
    faults = completed.faults()
    if completed.code == 0 and "--json" in completed.description:
        try:
            strict_json(completed.stdout)
        except ValueError as error:
            faults.append(f"no valid JSON after {completed.description}: {error}")
    return faults


def _model_files(model: Path) -> Iterator[Path]:
    yield from (path for path in model.iterdir() if path.name in ("model.json", "exemplars.safetensors"))
    yield from (path for path in (model / "versions").iterdir())
    yield from _distinct_files(model)
    yield from (model / name for name in ("versions", "files"))


def _distinct_files(model: Path) -> list[Path]:
    """Return one file of each kind (weights, statistics, predictors, means, images, blocks), since all of a kind are
    alike."""
    kinds: dict[tuple[str, ...], Path] = {}
    for path in sorted((model / "files").iterdir()):
        keys: Sequence[str] = ()
        if path.suffix == ".safetensors":
            keys = sorted(load(path.read_bytes()))[:3]
        elif path.suffix == ".json":
            keys = sorted(json.loads(path.read_text())[0])
        kinds.setdefault((path.suffix, *keys), path)
    return list(kinds.values())


def _json_files(model: Path) -> list[str]:
    newest = max((model / "versions").glob("*.json"))
    blocks = [path for path in _distinct_files(model) if path.suffix == ".json"]
    return [str(path.relative_to(model)) for path in (model / "model.json", newest, *blocks)]


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _leaves(item, (*path, key))


def _change_field(model: Path, file: str, change: tuple[str, tuple[Any, ...]], rng: random.Random) -> bool:
    """Change a field of a JSON file. Returns whether a checksum covers the change."""
    way, keys = change
    path = model / file
    content = json.loads(path.read_text())
    _replace(content, keys, rng)
    if path.parent.name == "files":  # a block, named by its hash
        text = json.dumps(content).encode()
        if way != "stale checksum":
            _rename(model, path, text, ".json", keep_checksum=way == "new checksum")
            return False
        path.write_bytes(text)
        return True
    _write_record(path, content, way)
    return way == "stale checksum"


def _replace(content: Any, keys: Sequence[Any], rng: random.Random) -> None:
    *holders, last = keys
    for key in holders:
        content = content[key]
    if isinstance(content, dict) and rng.random() < 0.2:
        del content[last]
        return
    numbers = [2**62, 1e308, -1, 0, 1, 10**6, "a\0b", "../x", float("nan")]
    content[last] = rng.choice(numbers if rng.random() < 0.4 else VALUES)


def _write_record(path: Path, content: Any, way: str) -> None:
    from cscct.storage import json_sha256

    if isinstance(content, dict) and way != "stale checksum":
        content.pop("sha256", None)
        if way == "new checksum":
            content["sha256"] = json_sha256(content)
    path.write_text(json.dumps(content))


def _rename(model: Path, path: Path, content: bytes, suffix: str, *, keep_checksum: bool) -> None:
    """Write the changed content of a file under the name of its hash, and update all records that refer to the file."""
    new = f"{hashlib.sha256(content).hexdigest()}{suffix}"
    (path.parent / new).write_bytes(content)
    for block in list((model / "files").glob("*.json")):
        text = block.read_text()
        if path.name in text:
            _rename(model, block, text.replace(path.name, new).encode(), ".json", keep_checksum=keep_checksum)
    for record in (model / "versions").glob("*.json"):
        text = record.read_text()
        if path.name in text:
            renamed = json.loads(text.replace(path.name, new))
            _write_record(record, renamed, "new checksum" if keep_checksum else "no checksum")


def _change_tensors(model: Path, file: str, way: str, rng: random.Random) -> None:
    path = model / "files" / file
    tensors = load(path.read_bytes())
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    if way in ("nan", "inf", "negative", "huge") and tensor.numel() and tensor.is_floating_point():
        value = {"nan": torch.nan, "inf": torch.inf, "negative": -1.0, "huge": 3e38}[way]
        tensor.view(-1)[rng.randrange(tensor.numel())] = value
    elif way == "shape":
        tensors[name] = torch.zeros(rng.choice(SHAPES), dtype=tensor.dtype)
    elif way == "type":
        tensors[name] = torch.zeros(tensor.shape, dtype=getattr(torch, rng.choice(DTYPES)))
    elif way in ("name", "missing"):
        del tensors[name]
    if way in ("name", "extra"):
        tensors[rng.choice(("other", f"{name}.0", "weight", ""))] = tensor.clone()
    _rename(model, path, save(tensors), ".safetensors", keep_checksum=rng.random() < 0.5)
