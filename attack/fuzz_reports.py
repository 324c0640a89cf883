"""Run folders from untrusted sources, for `cscct report` and `cscct.load`: unusual values, tensors and names."""

from __future__ import annotations

import csv
import json
import random
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from damage import predict
from small_runs import LUCIR
from watch import CaseResult, Kind, Outside, result_of, run_command

NAMES = (
    *(
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "=cmd|' /C calc'!A0",
        "+1+1",
        "-2",
        "@SUM(1)",
        "\tx",
    ),
    *(
        "caf\udce9",
        "\udcff\udcfe",
        "数字",
        "\u202egnp",
        "$x_1$",
        "$\\frac{",
        "a\nb",
        "",
        " ",
        "x" * 3000,
        "\x00",
        "%s",
        "_",
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 10**400, -(10**30), 2**63, 1e308, 5e-324, 0.5, -0.0, float("nan"), float("inf"), "", "1"),
    *([], {}, [[]], [None], {"a": []}, [1, 2, 3], ["x"] * 2000, {"": None}, [[[[1]]]], *NAMES),
)
DTYPES = ("bfloat16", "float16", "float64", "int8", "uint8", "int64", "bool", "float8_e4m3fn", "complex64", "uint16")
SHAPES = ((), (0,), (1,), (4, 4), (2, 2), (0, 4), (1000, 3), (4, 0), (3, 3, 3), (1, 1), (100_000,))


def odd_result(result: Any, rng: random.Random) -> Any:
    """Replace some values, and use class names that need escaping."""
    entries = list(_entries(result))
    for _ in range(rng.randint(0, 4)):
        holder, key = rng.choice(entries)
        holder[key] = rng.choice(VALUES)
    if rng.random() < 0.5:
        for task in result["tasks"] if isinstance(result.get("tasks"), list) else ():
            if isinstance(task, dict) and isinstance(task.get("classes"), list):
                task["classes"] = [rng.choice(NAMES) + str(i) * rng.randrange(2) for i, _ in enumerate(task["classes"])]
    return result


def _entries(value: Any) -> list[tuple[Any, Any]]:
    """Return every list or mapping inside a value, with each of its keys."""
    result: list[tuple[Any, Any]] = []
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        result += [(value, key), *_entries(value[key])]
    return result


def odd_tensors(tensors: dict[str, torch.Tensor], rng: random.Random) -> dict[str, torch.Tensor]:
    """Replace, remove or convert one to three tensors."""
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([*tensors, "similarity", "features", "labels", "confusion.nme"])
        old = tensors.get(name, torch.zeros(1))
        dtype = getattr(torch, rng.choice(DTYPES))
        changes = (
            lambda old=old, dtype=dtype: old.to(dtype),
            lambda dtype=dtype: torch.ones(rng.choice(SHAPES)).to(dtype),
            lambda old=old: torch.full_like(old.float(), rng.choice((float("nan"), float("inf"), 1e38, -1.0, 0.0))),
            lambda old=old: -old.float(),
            lambda old=old: old.double() * 10**9,
            lambda old=old: old[:1] if old.ndim else old,
        )
        if rng.random() < 0.1:
            tensors.pop(name, None)
        else:
            tensors[name] = rng.choice(changes)().contiguous().clone()
    return tensors


def odd_lines(text: str, rng: random.Random) -> str:
    """Return lines of metrics.jsonl with unusual values."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        if rng.random() < 0.5:
            holder, key = rng.choice(_entries(line))
            holder[key] = rng.choice(VALUES)
    return "".join(json.dumps(line) + "\n" for line in lines)


class Reports(Kind):
    """A report and predictions from a finished run with unusual content."""

    name, cases = "reports", 120

    def __init__(self, scratch: Path):
        self.source = scratch
        scratch.mkdir(parents=True)
        completed = run_command(*LUCIR, folder=scratch)
        assert completed.code == 0, completed.stderr

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self.source, workdir)
        parts = rng.sample(sorted(PARTS), rng.choice((1, 1, 2, 4)))
        for part in parts:
            PARTS[part](workdir / "run", rng)
        title = ["--title", rng.choice(NAMES[:6])] if rng.random() < 0.2 else []
        log = ["--log"] if rng.random() < 0.3 else []
        steps = [run_command("report", "run", "--out", "report", *title, *log, folder=workdir), predict(workdir)]
        result = result_of(steps, outside, "reported", ", ".join(parts))
        if steps[0].code == 0:
            result.faults += unsafe(workdir / "report")
        return result


class _Page(HTMLParser):
    """Parser that collects scripts and event handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.unsafe: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script" or any(name.startswith("on") for name, _ in attrs):
            self.unsafe.append(f"{tag} {attrs}"[:80])


def unsafe(report: Path) -> list[str]:
    """Return scripts in the page and formulas in the tables."""
    page = _Page()
    page.feed((report / "index.html").read_text(encoding="utf-8"))
    faults = [f"unsafe page: {tag}" for tag in page.unsafe]
    for file in report.rglob("*.csv"):
        with file.open(encoding="utf-8", newline="") as lines:
            cells = [cell for row in csv.reader(lines) for cell in row]
        formulas = [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not _number(cell)]
        faults += [f"formula in {file.name}: {cell[:40]}" for cell in formulas]
    return faults


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _change_result(run: Path, rng: random.Random) -> None:
    result = json.loads((run / "result.json").read_text())
    result.pop("sha256", None)  # as in folders made by hand or by an older version
    (run / "result.json").write_text(json.dumps(odd_result(result, rng)))


def _change_tasks(run: Path, rng: random.Random) -> None:
    file = rng.choice(sorted((run / "tasks").iterdir()))
    save_file(odd_tensors(load_file(file), rng), file)


def _change_model(run: Path, rng: random.Random) -> None:
    metadata = {
        "class_names": json.dumps(rng.choice((["a", "b", "c", "d"], list(NAMES[:4]), *VALUES[:30]))),
        "channels": rng.choice(("1", "3", "0", "-1", "x", "", "9" * 5000)),
        "image_size": rng.choice(("[8, 8]", "null", "[8]", "[]", "x", "[-1, 8]", "[1e9, 2]", '{"a": 1}')),
    }
    kept = {key: value for key, value in metadata.items() if rng.random() < 0.7}
    tensors = load_file(run / "model.safetensors")
    save_file(odd_tensors(tensors, rng) if rng.random() < 0.6 else tensors, run / "model.safetensors", kept)


def _change_metrics(run: Path, rng: random.Random) -> None:
    (run / "metrics.jsonl").write_text(odd_lines((run / "metrics.jsonl").read_text(), rng))


def _change_config(run: Path, rng: random.Random) -> None:
    import yaml

    config = yaml.safe_load((run / "config.yaml").read_text())
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(_entries(config))
        holder[key] = rng.choice(VALUES)
    (run / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=rng.random() < 0.5), errors="surrogateescape")


PARTS = {
    "result": _change_result,
    "tasks": _change_tasks,
    "model": _change_model,
    "metrics": _change_metrics,
    "config": _change_config,
}
