"""Attacks the software with everything that may happen to its files and inputs, and counts what comes of it.

    python attack/attack.py --seed 1                          all of it
    python attack/attack.py --seed 1 --only damage --case 12  one case again

A failure is a traceback, a hang, a crash, a changed number or a changed file outside. Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import watch
from damage import Damage
from fuzz_images import Images
from fuzz_pickles import Pickles
from fuzz_reports import Reports
from fuzz_settings import OddRuns, SettingsTexts
from kills import Kills
from streams import Streams
from watch import Found, Kind

CLASSES: tuple[type[Kind], ...] = (Kills, Damage, SettingsTexts, OddRuns, Images, Pickles, Reports, Streams)
KINDS = {kind.name: kind for kind in CLASSES}
_kind: Kind  # of the worker processes, which are forks


def attack_one(kind: Kind, seed: int, number: int, scratch: Path) -> Found:
    """A case depends on the seed, the kind and its number only."""
    folder = Path(tempfile.mkdtemp(prefix=f"{kind.name}-{number}-", dir=scratch))
    rng = random.Random(f"{seed} {kind.name} {number}")
    try:
        return kind.attack(number, rng, folder)
    except Exception:
        return Found("", "the attack itself failed", [traceback.format_exc()])
    finally:
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)


def _work(seed: int, number: int, scratch: Path) -> tuple[int, Found]:
    return number, attack_one(_kind, seed, number, scratch)


def attack_kind(kind: Kind, seed: int, numbers: list[int], scratch: Path, workers: int) -> dict[int, Found]:
    """Cases of one kind, several at a time, each in forks of a process that has everything imported."""
    global _kind
    _kind = kind
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, Progress(transient=True) as progress:
        bar = progress.add_task(kind.name, total=len(numbers))
        futures = [pool.submit(_work, seed, number, scratch) for number in numbers]
        found = {}
        for future in futures:
            number, one = future.result()
            found[number] = one
            progress.advance(bar)
    return found


def summary(found: dict[int, Found]) -> dict[str, Any]:
    """Counts of one kind, as they are printed and stored."""
    outcomes = Counter(one.outcome for one in found.values() if not one.faults)
    failures = {str(number): [one.detail, *one.faults] for number, one in sorted(found.items()) if one.faults}
    return {"cases": len(found), "outcomes": dict(sorted(outcomes.items())), "failures": failures}


def print_summaries(summaries: dict[str, Any], seed: int, console: Console) -> None:
    table = Table("attack", "cases", "outcomes", "failures", title=f"seed {seed}")
    for name, one in summaries.items():
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in one["outcomes"].items())
        table.add_row(name, str(one["cases"]), outcomes, str(len(one["failures"])))
    console.print(table)
    for name, one in summaries.items():
        for number, (detail, *faults) in one["failures"].items():
            console.print(f"\n{name} {number}: {detail}", markup=False, highlight=False)
            for fault in faults:
                console.print(f"  {fault}", markup=False, highlight=False)
            again = f"python attack/attack.py --seed {seed} --only {name} --case {number}"
            console.print(f"  again: {again}", markup=False, highlight=False)


def store(file: Path, seed: int, summaries: dict[str, Any], seconds: float) -> None:
    """Into a file that holds the newest attack of each seed."""
    stored = json.loads(file.read_text()) if file.is_file() else {}
    stored[str(seed)] = {"minutes": round(seconds / 60, 1), "kinds": summaries}
    file.write_text(json.dumps(dict(sorted(stored.items(), key=lambda item: int(item[0]))), indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS, help="one kind of attack")
    parser.add_argument("--case", type=int, help="one case of that kind")
    parser.add_argument("--cases", type=int, help="at most so many cases of each kind, drawn at random")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="store the counts in this file, beside those of other seeds")
    options = parser.parse_args()
    watch.preload()
    started, summaries = time.monotonic(), {}
    with tempfile.TemporaryDirectory(prefix="cscct-attack-") as name:
        scratch = Path(name)
        for kind_name in [options.only] if options.only else KINDS:
            kind = KINDS[kind_name](scratch / f"shared-{kind_name}")
            numbers = list(range(kind.cases)) if options.case is None else [options.case]
            if options.cases is not None and options.cases < len(numbers):
                numbers = sorted(random.Random(options.seed).sample(numbers, options.cases))
            summaries[kind_name] = summary(attack_kind(kind, options.seed, numbers, scratch, options.workers))
    seconds = time.monotonic() - started
    console = Console(soft_wrap=True)
    print_summaries(summaries, options.seed, console)
    console.print(f"{seconds / 60:.1f} minutes")
    if options.json is not None:
        store(options.json, options.seed, summaries, seconds)
    return int(any(one["failures"] for one in summaries.values()))


if __name__ == "__main__":
    sys.exit(main())
