"""Every file and every field of a model folder is changed, and then used: it is refused in a sentence, or harmless.

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
from watch import CaseResult, Ended, Kind, Outside, command

LIMIT = 60.0
WORKING = (".lock", ".lock-holder", ".model.json.tmp", "versions/.unfinished", "versions/0099.json", "files/other")
FIELDS = ("stale checksum", "new checksum", "no checksum")
TENSORS = ("nan", "inf", "negative", "huge", "shape", "type", "name", "missing", "extra")
AFTERWARDS = (("info", "model", "--json"), ("learn", "model", "third", "--quiet"))


class DamagedModels(Kind):
    """Two folders (a model, a run that learned more) times files, fields and tensors times changes."""

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
            files = {str(path.relative_to(model)) for path in _own_files(model)} | set(WORKING)
            self.points += [("file", name, *point) for point in itertools.product(sorted(files), [*CONTENTS, *PLACES])]
            for file in _json_files(model):
                places = list(_leaves(json.loads((model / file).read_text())))
                self.points += [("field", name, file, place) for place in places]
            for file in sorted(path.name for path in _one_of_each(model) if path.suffix == ".safetensors"):
                self.points += [("tensors", name, file, way) for way in TENSORS]
        self.cases = len(self.points)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        kind, source, file, change = self.points[number]
        outside, place = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self.sources[source], place)
        covered = True
        if kind == "file":
            damage(place / "model" / file, change, rng, place / "model", outside.folder)
        elif kind == "field":
            change = rng.choice(FIELDS), change
            covered = _change_field(place / "model", file, change, rng)
        else:
            covered = False
            _change_tensors(place / "model", file, change, rng)
        result = CaseResult("same predictions", f"{source}: {file}: {change}")
        ended = command(*PREDICT, folder=place, limit=LIMIT)
        self._judge(result, ended, source, covered)
        if rng.random() < 0.4:
            result.faults += _usable(command(*rng.choice(self.afterwards), folder=place, limit=LIMIT))
            result.faults += _usable(command(*PREDICT, folder=place, limit=LIMIT))
        result.faults += outside.faults()
        return result

    def _judge(self, result: CaseResult, ended: Ended, source: str, covered: bool) -> None:
        result.faults += _usable(ended)
        if ended.has_message:
            result.outcome = "refused in a sentence"
        elif ended.code == 0 and ended.out != self.predictions[source]:
            result.outcome = "accepted"
            if covered:
                result.faults.append(f"changed predictions: {ended.out[:200]}")


def _usable(ended: Ended) -> list[str]:
    """A sentence, or valid JSON where it was asked for."""
    faults = ended.faults()
    if ended.code == 0 and "--json" in ended.what:
        try:
            strict_json(ended.out)
        except ValueError as error:
            faults.append(f"no valid JSON after {ended.what}: {error}")
    return faults


def _own_files(model: Path) -> Iterator[Path]:
    yield from (path for path in model.iterdir() if path.name in ("model.json", "exemplars.safetensors"))
    yield from (path for path in (model / "versions").iterdir())
    yield from _one_of_each(model)
    yield from (model / name for name in ("versions", "files"))


def _one_of_each(model: Path) -> list[Path]:
    """Weights, statistics, predictors, means, images and blocks: many files of a kind are damaged alike."""
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
    blocks = [path for path in _one_of_each(model) if path.suffix == ".json"]
    return [str(path.relative_to(model)) for path in (model / "model.json", newest, *blocks)]


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _leaves(item, (*path, key))


def _change_field(model: Path, file: str, change: tuple[str, tuple[Any, ...]], rng: random.Random) -> bool:
    """Returns whether a checksum covers the change."""
    way, place = change
    path = model / file
    content = json.loads(path.read_text())
    _replace(content, place, rng)
    if path.parent.name == "files":  # a block, named by its content
        text = json.dumps(content).encode()
        if way != "stale checksum":
            _rename(model, path, text, ".json", keep_checksum=way == "new checksum")
            return False
        path.write_bytes(text)
        return True
    _write_record(path, content, way)
    return way == "stale checksum"


def _replace(content: Any, place: Sequence[Any], rng: random.Random) -> None:
    *holders, last = place
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
    """Content of a file in another file, and all records that name it refer to that."""
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
