"""Damaged files of run folders: commands reject the folder with a message, or give the same results."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kills import Killer, count_operations, difference
from small_runs import COMPARE, LUCIR, numbers_of, reproducible_values
from watch import CaseResult, CommandResult, Kind, Outside, run_command, run_function

LIMIT = 30.0
RESUME = ("resume", "run", "--json")
REPORT = ("report", "run", "--out", "report", "--quiet")
# Names of temporary files of the package.
WORKING = (".lock", ".lock-holder", ".result.json.tmp", ".config.yaml.tmp", ".model.safetensors.tmp", "messages.txt")
WHOLE = {
    b"[]",
    b"null",
    b"{}",
    b'"text"',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"1" * 5000,
    b"\xff\xfe\x00",
    b"a: &a [*a]",
}


def _flip(content: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 8) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _digit(content: bytearray, rng: random.Random) -> bytes:
    """Replace a digit by another one, so that the file remains readable."""
    positions = [position for position, byte in enumerate(content) if 48 <= byte <= 57]
    if positions:
        position = rng.choice(positions)
        content[position] = rng.choice([byte for byte in range(48, 58) if byte != content[position]])
    return bytes(content)


CONTENTS: dict[str, Callable[[bytearray, random.Random], bytes]] = {
    "flip": _flip,
    "digit": _digit,
    "truncate": lambda content, rng: bytes(content[: rng.randrange(len(content) or 1)]),
    "extend": lambda content, rng: bytes(content) + rng.randbytes(rng.randint(1, 100)),
    "twice": lambda content, rng: bytes(content) * 2,
    "lines": lambda content, rng: b"\n".join(rng.sample(lines := bytes(content).split(b"\n"), len(lines))),
    "empty": lambda content, rng: b"",
    "whole": lambda content, rng: rng.choice(sorted(WHOLE)),
    "random": lambda content, rng: rng.randbytes(rng.randint(1, 3000)),
}
PLACES = ("delete", "swap", "directory", "fifo", "dangling link", "link outside", "link to folder outside")
_ALL = (*CONTENTS, *PLACES)
PAIRS = tuple(_ALL[place : place + 2] for place in range(0, len(_ALL), 2))  # similar damages; a seed selects one of two


def damage(path: Path, how: str, rng: random.Random, folder: Path, outside: Path) -> None:
    """Damage a file of a run, or replace it by something else."""
    if how in CONTENTS:
        content = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        _clear(path)
        path.write_bytes(CONTENTS[how](content, rng))
        return
    if how == "swap":
        others = [
            other for other in sorted(folder.rglob("*")) if other.is_file() and path not in (other, *other.parents)
        ]
        other = rng.choice(others)
        content, another = path.read_bytes() if path.is_file() else b"", other.read_bytes()
        _clear(path)
        path.write_bytes(another)
        other.write_bytes(content)
        return
    _clear(path)
    if how == "directory":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    elif how == "fifo":
        os.mkfifo(path)
    elif how != "delete":
        targets = {"dangling link": "nothing", "link outside": rng.choice(("notes.txt", "result.json"))}
        path.symlink_to(outside / targets.get(how, ""))


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Damage(Kind):
    """Half of the damages to each file of three folders: a finished run, an interrupted run, and a comparison."""

    name = "damage"

    def __init__(self, scratch: Path):
        self.sources = {name: scratch / name for name in ("finished", "interrupted", "comparison")}
        for folder in self.sources.values():
            folder.mkdir(parents=True)
        operations = count_operations(self.sources["finished"], *LUCIR)
        self.numbers = numbers_of(self.sources["finished"])
        self.predictions = _checked(predict(self.sources["finished"])).stdout
        _checked(run_command(*REPORT, folder=self.sources["finished"]))
        self.summary = (self.sources["finished"] / "report" / "summary.csv").read_text()
        run_command(*LUCIR, folder=self.sources["interrupted"], before=Killer(int(0.65 * operations)).install)
        assert len(list((self.sources["interrupted"] / "run" / "checkpoints").glob("*.json"))) > 1
        whole = scratch / "comparison-whole"
        whole.mkdir()
        operations = count_operations(whole, *COMPARE)
        self.compared = numbers_of(whole)
        run_command(*COMPARE, folder=self.sources["comparison"], before=Killer(int(0.8 * operations)).install)
        self.points: list[tuple[str, str, tuple[str, ...]]] = []
        for name, folder in self.sources.items():
            # Not the folders that a command names, which may be links.
            inside = [path for path in folder.rglob("*") if path.parent.name != "figures" and path.parent != folder]
            files = {str(path.relative_to(folder)) for path in inside}
            files |= {f"run/{other}" for other in WORKING if name != "comparison"}
            self.points += itertools.product([name], sorted(files), PAIRS)
        self.cases = len(self.points)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        source, file, pair = self.points[number]
        how = rng.choice(pair)
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self.sources[source], workdir)
        damage(workdir / file, how, rng, workdir, outside.folder)
        result = CaseResult("same numbers", f"{source}: {file}: {how}")
        for completed, fault in self._use(source, workdir, rng):
            result.faults += completed.faults()
            result.faults += [f"{fault} after {completed.description[:60]}"] if fault and completed.code == 0 else []
            if completed.has_message:
                result.outcome = "rejected with a message"
        result.faults += outside.faults()
        return result

    def _use(self, source: str, workdir: Path, rng: random.Random) -> Sequence[tuple[CommandResult, str]]:
        """Run commands on the folder. Returns each with a fault in its results, if any."""
        if source == "comparison":
            completed = run_command(*COMPARE, folder=workdir, limit=LIMIT)
            return [(completed, self._compared(workdir) if completed.code == 0 else "")]
        steps = []
        if source == "finished":
            completed = predict(workdir)
            steps.append(
                (completed, "" if completed.stdout == self.predictions else f"changed number: {completed.stdout[:80]}")
            )
            if rng.random() < 0.25:
                completed = run_command(*REPORT, folder=workdir, limit=LIMIT)
                steps.append((completed, self._summary(workdir) if completed.code == 0 else ""))
        for arguments in (RESUME, LUCIR) if rng.random() < 0.5 else (LUCIR, RESUME):
            completed = run_command(*arguments, folder=workdir, limit=LIMIT)
            steps.append((completed, self._numbers(workdir, completed) if completed.code == 0 else ""))
        return steps

    def _numbers(self, workdir: Path, completed: CommandResult) -> str:
        """Return a fault in the printed result, the stored result, the model, or, without a message about damage, the
        epochs."""
        result = self.numbers["run/result.json"]
        if "--json" in completed.description and reproducible_values(json.loads(completed.stdout)) != result:
            return f"changed number: {difference(result, reproducible_values(json.loads(completed.stdout)))}"
        try:
            stored = reproducible_values(json.loads((workdir / "run" / "result.json").read_text()))
        except (OSError, ValueError) as error:
            return f"changed number: {error}"
        return "" if stored == result else f"changed number: {difference(result, stored)}"

    def _summary(self, workdir: Path) -> str:
        result = (workdir / "report" / "summary.csv").read_text()
        return "" if result == self.summary else "changed number in summary.csv"

    def _compared(self, workdir: Path) -> str:
        for name, expected in self.compared.items():
            if name.endswith(("result.json", "compare.json", "compare.csv")):
                text = (workdir / name).read_text()
                result = text if name.endswith("csv") else reproducible_values(json.loads(text))
                if result != expected:
                    return f"changed number: {name} {difference(expected, result)}"
        return ""


def predict(workdir: Path) -> CommandResult:
    """Load the model in `run` and print its predictions for some images."""

    def main() -> None:
        import numpy as np

        import cscct
        from cscct.errors import UserError

        images = np.random.default_rng(0).integers(0, 256, (5, 1, 8, 8), dtype=np.uint8)
        try:
            model = cscct.load("run")
            print(json.dumps([model.predict(images).tolist(), model.predict_proba(images).tolist()]))
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None

    return run_function(main, "cscct.load and predict", workdir, LIMIT)


def _checked(completed: CommandResult) -> CommandResult:
    assert completed.code == 0, completed.stderr
    return completed
