"""Runs in several processes that are paused and continued, and plugins that are edited, raise or hang meanwhile."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

from kills import difference
from model_folders import checked
from small_runs import COMPARE, TINY, numbers_of, run_words, sets
from watch import CaseResult, Kind, Outside, command, started

LIMIT = 300.0  # seconds: processes that start anew import everything again
JOBS = (*COMPARE, "--jobs", "2")
DEVICES = (*run_words("lucir+cscct"), "--devices", "2")
PLUGIN = """
import time
from dataclasses import dataclass
from cscct import register_loss
from cscct.losses import Term

@register_loss
@dataclass(frozen=True)
class Odd(Term):
    '''A loss of nothing.'''

    weight: float = 1.0
    name = "odd"

    def value(self, step):
        {body}
        return step.student.features.sum() * {factor}
"""
BODIES = {
    "raises": 'raise RuntimeError("odd")',
    "hangs": "time.sleep(1000)",
    "ends": "raise SystemExit(0)",
    "edited": "pass",
}
PLUGINS = (
    *("compare", "lucir", "lucir+csc", "--seeds", "1", *sets(*TINY, "loss.odd.weight=1")),
    *("--plugin", "odd.py", "--jobs", "2", "--out", "comparison", "--quiet"),
)


class Pauses(Kind):
    """All processes of a command are stopped and continued, some times; it ends with the same numbers."""

    name, cases = "pauses", 8

    def __init__(self, scratch: Path):
        self.whole = {}
        for number, arguments in enumerate((JOBS, DEVICES)):
            folder = scratch / str(number)
            folder.mkdir(parents=True)
            checked(command(*arguments, folder=folder, limit=LIMIT))
            self.whole[arguments] = numbers_of(folder)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        arguments = (JOBS, DEVICES)[number % 2]
        outside, place = Outside(folder / "outside"), folder / "inside"
        place.mkdir()
        process = started(*arguments, folder=place)
        for _ in range(3):
            time.sleep(rng.uniform(0.1, 4.0))
            process.send(signal.SIGSTOP)
            time.sleep(rng.uniform(0.1, 3.0))
            process.send(signal.SIGCONT)
        ended = process.ended(LIMIT)
        result = CaseResult(
            "same numbers", f"{' '.join(arguments[-2:])} paused three times", ended.faults() + outside.faults()
        )
        if ended.code == 0 and (numbers := numbers_of(place)) != self.whole[arguments]:
            result.faults.append(f"changed number: {difference(self.whole[arguments], numbers)}")
        elif ended.code:
            result.faults.append(f"it ended with {ended.code}: {ended.err[-300:]}")
        return result


class Plugins(Kind):
    """A comparison with a plugin that fails; then the plugin is repaired, and the comparison ends as one that never
    failed. Results of other sources are not reused."""

    name, cases = "plugins", 8

    def __init__(self, scratch: Path):
        scratch.mkdir(parents=True)
        _write(scratch, "pass")
        checked(command(*PLUGINS, folder=scratch, limit=LIMIT))
        self.whole = _results(scratch)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        way = list(BODIES)[number % len(BODIES)]
        outside, place = Outside(folder / "outside"), folder / "inside"
        place.mkdir()
        _write(place, BODIES[way], "0.5" if way == "edited" else "0.0")
        process = started(*PLUGINS, folder=place)
        if way == "hangs":
            time.sleep(rng.uniform(5.0, 15.0))
            for _ in range(2):  # the first asks to stop, the second insists
                process.send(signal.SIGINT)
                time.sleep(2.0)
        first = process.ended(LIMIT)
        allowed = ("exit code 130", "no sentence", "crash (SIGINT)") if way == "hangs" else ()
        result = CaseResult("same numbers", f"a plugin that {way}: ended with {first.code}")
        result.faults = [fault for fault in first.faults() if not allowed or not fault.startswith(allowed)]
        if first.code == 0 and way != "edited":
            result.faults.append("a comparison whose runs failed ended with 0")
        _write(place, "pass")
        second = command(*PLUGINS, folder=place, limit=LIMIT)
        result.faults += second.faults() + outside.faults()
        if second.has_message and "plugin" in second.err:  # results of another source are not reused
            result.outcome = "refused in a sentence"
            shutil.rmtree(place / "comparison")
            second = command(*PLUGINS, folder=place, limit=LIMIT)
        if second.code or (results := _results(place)) != self.whole:
            detail = second.err[-300:] if second.code else difference(self.whole, results)
            result.faults.append(f"repaired, it does not give the same: {detail}")
        return result


def _write(folder: Path, body: str, factor: str = "0.0") -> None:
    (folder / "odd.py").write_text(PLUGIN.format(body=body, factor=factor))


def _results(folder: Path) -> dict[str, object]:
    return {name: numbers for name, numbers in numbers_of(folder).items() if name.endswith("result.json")}
