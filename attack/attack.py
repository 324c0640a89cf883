"""Attacks on files, inputs and processes, with counts of the outcomes.

    python attack/attack.py --seed 1                          all of it
    python attack/attack.py --seed 1 --only damage            one kind
    python attack/attack.py --seed 1 --only damage --case 12  one case again

With --json, the counts of the kinds are stored beside those of other kinds and seeds, so that an attack can be
executed in parts.

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
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import watch
from change_models import ChangedModels
from damage import Damage
from damage_models import DamagedModels
from fuzz_images import Images
from fuzz_pickles import Pickles
from fuzz_reports import Reports
from fuzz_settings import OddRuns, SettingsTexts
from http_requests import Requests
from kills import Kills
from model_folders import register_tiny_backbone
from processes import Pauses, Plugins
from streams import Streams
from watch import CaseResult, Kind

CLASSES: tuple[type[Kind], ...] = (
    *(Kills, Damage, SettingsTexts, OddRuns, Images, Pickles, Reports, Streams),
    *(DamagedModels, ChangedModels, Requests, Pauses, Plugins),
)
# Their cases take up to a minute, most of it waiting. None is started late, so that no core is idle at the end.
LONG = (Pauses.name, Plugins.name, Requests.name)
KINDS = {kind.name: kind for kind in CLASSES}
_kinds: dict[str, Kind] = {}  # of the worker processes, which are forks


def attack_one(kind: Kind, seed: int, number: int, scratch: Path) -> CaseResult:
    """Run a case. Its random numbers depend on the seed, the kind and the number of the case only."""
    folder = Path(tempfile.mkdtemp(prefix=f"{kind.name}-{number}-", dir=scratch))
    rng = random.Random(f"{seed} {kind.name} {number}")
    try:
        return kind.attack(number, rng, folder)
    except Exception:
        return CaseResult("", "error in the attack", [traceback.format_exc()])
    finally:
        for path in [folder, *folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(name: str, scratch: Path) -> Kind | str:
    try:
        return KINDS[name](scratch / f"shared-{name}")
    except Exception:
        return traceback.format_exc()


def prepare_kinds(names: list[str], scratch: Path, workers: int) -> dict[str, Kind | str]:
    """Prepare what the cases of each kind share (runs, models, reference results). Returns the traceback of a kind that
    fails."""
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("fork")) as pool:
        return dict(zip(names, pool.map(_prepare, names, [scratch] * len(names)), strict=True))


def _work(name: str, seed: int, number: int, scratch: Path) -> tuple[str, int, CaseResult]:
    return name, number, attack_one(_kinds[name], seed, number, scratch)


def attack_all(
    kinds: dict[str, Kind], seed: int, numbers: dict[str, list[int]], scratch: Path, workers: int
) -> dict[str, dict[int, CaseResult]]:
    """Run the cases of all kinds in parallel, each in forks of a process that has imported everything. The cases of a
    kind are spread evenly, so that cases that wait and cases that compute run side by side."""
    _kinds.update(kinds)
    results: dict[str, dict[int, CaseResult]] = {name: {} for name in kinds}
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, Progress(transient=True) as progress:
        bars = {name: progress.add_task(name, total=len(numbers[name])) for name in kinds}
        places = {
            (name, number): place / len(numbers[name]) * (0.8 if name in LONG else 1)
            for name in kinds
            for place, number in enumerate(numbers[name])
        }
        futures = [
            pool.submit(_work, name, seed, number, scratch) for name, number in sorted(places, key=places.__getitem__)
        ]
        for future in as_completed(futures):
            name, number, result = future.result()
            results[name][number] = result
            progress.advance(bars[name])
    return results


def summary(results: dict[int, CaseResult]) -> dict[str, Any]:
    """Return the counts of a kind, as printed and stored."""
    outcomes = Counter(result.outcome for result in results.values() if not result.faults)
    failures = {
        str(number): [result.detail, *result.faults] for number, result in sorted(results.items()) if result.faults
    }
    return {"cases": len(results), "outcomes": dict(sorted(outcomes.items())), "failures": failures}


def print_summaries(summaries: dict[str, Any], seed: int, console: Console) -> None:
    table = Table("attack", "cases", "outcomes", "failures", title=f"seed {seed}")
    for name, result in summaries.items():
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in result["outcomes"].items())
        table.add_row(name, str(result["cases"]), outcomes, str(len(result["failures"])))
    console.print(table)
    for name, result in summaries.items():
        for number, (detail, *faults) in result["failures"].items():
            console.print(f"\n{name} {number}: {detail}", markup=False, highlight=False)
            for fault in faults:
                console.print(f"  {fault}", markup=False, highlight=False)
            repeat = f"python attack/attack.py --seed {seed} --only '{name}' --case {number}"
            console.print(f"  repeat: {repeat}", markup=False, highlight=False)


def store(file: Path, seed: int, summaries: dict[str, Any], seconds: float) -> None:
    """Store the counts in a file with the latest attack of each kind and seed."""
    stored = json.loads(file.read_text()) if file.is_file() else {}
    kinds = {**stored.get(str(seed), {}).get("kinds", {}), **summaries}
    ordered = {name: kinds[name] for name in KINDS if name in kinds}
    stored[str(seed)] = {"minutes": round(seconds / 60, 1), "kinds": ordered}  # minutes: of the last part
    file.write_text(json.dumps(dict(sorted(stored.items(), key=lambda item: int(item[0]))), indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=KINDS, action="append", help="one kind of attack; may be repeated")
    parser.add_argument("--case", type=int, help="one case of that kind")
    parser.add_argument("--cases", type=int, help="maximum number of cases of each kind, drawn at random")
    parser.add_argument("--workers", type=int, default=(os.cpu_count() or 1) + 1, help="some cases mostly wait")
    parser.add_argument("--json", type=Path, help="store the counts in this file, beside those of other seeds")
    options = parser.parse_args()
    watch.preload()
    register_tiny_backbone()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cscct-attack-") as folder:
        scratch = Path(folder)
        names = options.only or list(KINDS)
        ready = prepare_kinds(names, scratch, options.workers)
        kinds = {name: kind for name, kind in ready.items() if not isinstance(kind, str)}
        numbers = {}
        for name, kind in kinds.items():
            numbers[name] = list(range(kind.cases)) if options.case is None else [options.case]
            if options.cases is not None and options.cases < len(numbers[name]):
                numbers[name] = sorted(random.Random(options.seed).sample(numbers[name], options.cases))
        results = attack_all(kinds, options.seed, numbers, scratch, options.workers)
    for name, kind in ready.items():
        if isinstance(kind, str):
            results[name] = {0: CaseResult("", "preparation", [kind])}
    summaries = {name: summary(results[name]) for name in names}
    seconds = time.monotonic() - started
    console = Console(soft_wrap=True)
    print_summaries(summaries, options.seed, console)
    console.print(f"{seconds / 60:.1f} minutes")
    if options.json is not None:
        store(options.json, options.seed, summaries, seconds)
    return int(any(result["failures"] for result in summaries.values()))


if __name__ == "__main__":
    sys.exit(main())
