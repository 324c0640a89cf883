"""Runs in several processes that are paused and continued, and plugins that are edited, raise errors or hang."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

from kills import difference
from model_folders import checked
from small_runs import COMPARE, TINY, numbers_of, run_arguments, set_options
from watch import CaseResult, Kind, Outside, run_command, start_command

LIMIT = 300.0  # seconds: new processes import everything again
JOBS = (*COMPARE, "--jobs", "2")
DEVICES = (*run_arguments("lucir+cscct"), "--devices", "2")
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
    *("compare", "lucir", "lucir+csc", "--seeds", "1", *set_options(*TINY, "loss.odd.weight=1")),
    *("--plugin", "odd.py", "--jobs", "2", "--out", "comparison", "--quiet"),
)


class Pauses(Kind):
    """All processes of a command are stopped and continued several times. The results are those of an undisturbed
    command."""

    name, cases = "pauses", 8

    def __init__(self, scratch: Path):
        self.expected = {}
        for number, arguments in enumerate((JOBS, DEVICES)):
            folder = scratch / str(number)
            folder.mkdir(parents=True)
            checked(run_command(*arguments, folder=folder, limit=LIMIT))
            self.expected[arguments] = numbers_of(folder)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        arguments = (JOBS, DEVICES)[number % 2]
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        workdir.mkdir()
        process = start_command(*arguments, folder=workdir)
        for _ in range(3):
            time.sleep(rng.uniform(0.1, 4.0))
            process.send(signal.SIGSTOP)
            time.sleep(rng.uniform(0.1, 3.0))
            process.send(signal.SIGCONT)
        completed = process.wait(LIMIT)
        result = CaseResult(
            "same numbers", f"{' '.join(arguments[-2:])} paused three times", completed.faults() + outside.faults()
        )
        if completed.code == 0 and (numbers := numbers_of(workdir)) != self.expected[arguments]:
            result.faults.append(f"changed number: {difference(self.expected[arguments], numbers)}")
        elif completed.code:
            result.faults.append(f"exit code {completed.code}: {completed.stderr[-300:]}")
        return result


class Plugins(Kind):
    """A comparison with a failing plugin, which is then repaired. The repeated comparison gives the results of one that
    did not fail, and reuses no results of another plugin source."""

    name, cases = "plugins", 8

    def __init__(self, scratch: Path):
        scratch.mkdir(parents=True)
        _write(scratch, "pass")
        checked(run_command(*PLUGINS, folder=scratch, limit=LIMIT))
        self.expected = _results(scratch)

    def attack(self, number: int, rng: random.Random, folder: Path) -> CaseResult:
        way = list(BODIES)[number % len(BODIES)]
        outside, workdir = Outside(folder / "outside"), folder / "inside"
        workdir.mkdir()
        _write(workdir, BODIES[way], "0.5" if way == "edited" else "0.0")
        process = start_command(*PLUGINS, folder=workdir)
        if way == "hangs":
            time.sleep(rng.uniform(5.0, 15.0))
            for _ in range(2):  # the first requests a stop, the second ends the process
                process.send(signal.SIGINT)
                time.sleep(2.0)
        first = process.wait(LIMIT)
        allowed = ("exit code 130", "no message", "crash (SIGINT)") if way == "hangs" else ()
        result = CaseResult("same numbers", f"a plugin that {way}: exit code {first.code}")
        result.faults = [fault for fault in first.faults() if not allowed or not fault.startswith(allowed)]
        if first.code == 0 and way != "edited":
            result.faults.append("a comparison whose runs failed completed with 0")
        _write(workdir, "pass")
        second = run_command(*PLUGINS, folder=workdir, limit=LIMIT)
        result.faults += second.faults() + outside.faults()
        if second.has_message and "plugin" in second.stderr:  # results of another source are not reused
            result.outcome = "rejected with a message"
            shutil.rmtree(workdir / "comparison")
            second = run_command(*PLUGINS, folder=workdir, limit=LIMIT)
        if second.code or (results := _results(workdir)) != self.expected:
            detail = second.stderr[-300:] if second.code else difference(self.expected, results)
            result.faults.append(f"different result after the repair: {detail}")
        return result


def _write(folder: Path, body: str, factor: str = "0.0") -> None:
    (folder / "odd.py").write_text(PLUGIN.format(body=body, factor=factor))


def _results(folder: Path) -> dict[str, object]:
    return {name: numbers for name, numbers in numbers_of(folder).items() if name.endswith("result.json")}
