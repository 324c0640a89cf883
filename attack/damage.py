"""Every file of a run folder is damaged in every way, and then used: it is refused in a sentence, or gives the same."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kills import Killer, counted_operations, difference
from small_runs import COMPARE, LUCIR, numbers_of, plain
from watch import CaseResult, Ended, Kind, Outside, command, guarded

LIMIT = 30.0
RESUME = ("resume", "run", "--json")
REPORT = ("report", "run", "--out", "report", "--quiet")
# Names that the software gives to files while it works.
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
    """Another digit, which leaves the file as readable as it was."""
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if places:
        place = rng.choice(places)
        content[place] = rng.choice([byte for byte in range(48, 58) if byte != content[place]])
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


def damage(path: Path, how: str, rng: random.Random, folder: Path, outside: Path) -> None:
    """Damages one file of a run, or puts something else in its place."""
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
    """Three folders (a finished run, an interrupted one, a comparison of both) times their files times the damages."""

    name = "damage"

    def __init__(self, scratch: Path):
        self.sources = {name: scratch / name for name in ("finished", "interrupted", "comparison")}
        for folder in self.sources.values():
            folder.mkdir(parents=True)
        operations = counted_operations(self.sources["finished"], *LUCIR)
        self.numbers = numbers_of(self.sources["finished"])
        self.predictions = _checked(predict(self.sources["finished"])).out
        _checked(command(*REPORT, folder=self.sources["finished"]))
        self.summary = (self.sources["finished"] / "report" / "summary.csv").read_text()
        command(*LUCIR, folder=self.sources["interrupted"], before=Killer(int(0.65 * operations)).install)
        assert len(list((self.sources["interrupted"] / "run" / "checkpoints").glob("*.json"))) > 1
        whole = scratch / "comparison-whole"
        whole.mkdir()
        operations = counted_operations(whole, *COMPARE)
        self.compared = numbers_of(whole)
        command(*COMPARE, folder=self.sources["comparison"], before=Killer(int(0.8 * operations)).install)
        self.points: list[tuple[str, str, str]] = []
        for name, folder in self.sources.items():
            # Not the folders that a command names: those may be links, as their owner wishes.
            inside = [path for path in folder.rglob("*") if path.parent.name != "figures" and path.parent != folder]
            files = {str(path.relative_to(folder)) for path in inside}
            files |= {f"run/{other}" for other in WORKING if name != "comparison"}
            self.points += itertools.product([name], sorted(files), [*CONTENTS, *PLACES])
        self.cases = len(self.points)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        source, file, how = self.points[number]
        outside, place = Outside(folder / "outside"), folder / "inside"
        shutil.copytree(self.sources[source], place)
        damage(place / file, how, rng, place, outside.folder)
        result = CaseResult("same numbers", f"{source}: {file}: {how}")
        for ended, fault in self._use(source, place, rng):
            result.faults += ended.faults()
            result.faults += [f"{fault} after {ended.what[:60]}"] if fault and ended.code == 0 else []
            if ended.has_message:
                result.outcome = "refused in a sentence"
        result.faults += outside.faults()
        return result

    def _use(self, source: str, place: Path, rng: random.Random) -> Sequence[tuple[Ended, str]]:
        """Commands on the folder, each with a fault in its results."""
        if source == "comparison":
            ended = command(*COMPARE, folder=place, limit=LIMIT)
            return [(ended, self._compared(place) if ended.code == 0 else "")]
        steps = []
        if source == "finished":
            ended = predict(place)
            steps.append((ended, "" if ended.out == self.predictions else f"changed number: {ended.out[:80]}"))
            if rng.random() < 0.25:
                ended = command(*REPORT, folder=place, limit=LIMIT)
                steps.append((ended, self._summary(place) if ended.code == 0 else ""))
        for arguments in (RESUME, LUCIR) if rng.random() < 0.5 else (LUCIR, RESUME):
            ended = command(*arguments, folder=place, limit=LIMIT)
            steps.append((ended, self._numbers(place, ended) if ended.code == 0 else ""))
        return steps

    def _numbers(self, place: Path, ended: Ended) -> str:
        """Faults of the printed and stored result, the model, and the epochs unless a message reports damage."""
        result = self.numbers["run/result.json"]
        if "--json" in ended.what and plain(json.loads(ended.out)) != result:
            return f"changed number: {difference(result, plain(json.loads(ended.out)))}"
        try:
            stored = plain(json.loads((place / "run" / "result.json").read_text()))
        except (OSError, ValueError) as error:
            return f"changed number: {error}"
        return "" if stored == result else f"changed number: {difference(result, stored)}"

    def _summary(self, place: Path) -> str:
        result = (place / "report" / "summary.csv").read_text()
        return "" if result == self.summary else "changed number in summary.csv"

    def _compared(self, place: Path) -> str:
        for name, expected in self.compared.items():
            if name.endswith(("result.json", "compare.json", "compare.csv")):
                text = (place / name).read_text()
                result = text if name.endswith("csv") else plain(json.loads(text))
                if result != expected:
                    return f"changed number: {name} {difference(expected, result)}"
        return ""


def predict(place: Path) -> Ended:
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

    return guarded(main, "cscct.load and predict", place, LIMIT)


def _checked(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended
