"""Speed and size: `python benchmarks/bench.py [--tiny] [--only PART,...] [--json FILE] [--threads N]`

Speeds are ratios of two quantities measured in turns on random images, so that changes of the machine's speed affect
both. Use a quiet machine nevertheless. The exit code is 0 even if goals are not met. The file is written after every
part.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cscct  # before torch, because it sets how threads wait

# isort: split
import torch

import busy
import classifier
import costs
import growth
import large_images
import precision
import second_task
import startup
from parts import Size

PARTS = {
    "start-up": startup,
    "second-task": second_task,
    "costs": costs,
    "growth": growth,
    "large-images": large_images,
    "classifier": classifier,
    "precision": precision,
    "busy": busy,
}
# Seconds of other implementations for the same second task, measured once on two cores of an AMD EPYC with torch 2.13.
ELSEWHERE = {
    "PyCIL, iCaRL: 2 epochs, herding, test": 117.0,
    "PyCIL, PODNet: 2 epochs, 1 balanced, herding, test": 175.0,
    "released CSCCT code: training of an epoch": 49.5,
    "released CSCCT code: an epoch with its balanced pass and its test": 80.0,
}

AT_MOST, AT_LEAST = "<=", ">="
GOALS = {
    **{f"{base}{more} / floor": (AT_MOST, 1.12) for base in second_task.BASES for more in ("", "+cscct")},
    **{f"{base}+cscct / {base} - 1": (AT_MOST, 0.03) for base in second_task.BASES},
    "herding / forward pass": (AT_MOST, 1.1),
    "class means / forward pass": (AT_MOST, 1.1),
    "PyCIL, iCaRL: 2 epochs, herding, test / ours, icarl": (AT_LEAST, 2.0),
    "PyCIL, PODNet: 2 epochs, 1 balanced, herding, test / ours, podnet": (AT_LEAST, 3.0),
    **{
        f"released CSCCT code: an epoch with its balanced pass and its test / ours without them, {method}": (
            AT_LEAST,
            4.0,
        )
        for method in ("icarl+cscct", "podnet+cscct")
    },
    "waiting for data, 500 x 375": (AT_MOST, 0.1),
    "waiting for data, 4000 x 3000": (AT_MOST, 0.1),
    "CSC+CT at k=2048, d=512, MB": (AT_MOST, 200.0),
    "CSC+CT, k=2048 / k=1024": (AT_MOST, 4.4),  # quadratic would be 4
    "CSC+CT / LUCIR step, batch 128": (AT_MOST, 0.03),
    "CSC+CT / LUCIR step, batch 1024": (AT_MOST, 0.1),
    "loop / textbook": (AT_LEAST, 1.7),
    "peak memory, GB": (AT_MOST, 1.5),
    "checkpoints / time, default interval": (AT_MOST, 0.02),
    "checkpoints / time, a run of digits": (AT_MOST, 0.02),
    "LUCIR+CSCCT epoch, 32 bits / bf16": (AT_LEAST, 1.3),
    "cscct --help, s": (AT_MOST, 0.3),
    "classifier: 500 x 375, features / bare network": (AT_LEAST, 0.95),
    "classifier: 4000 x 3000, features / bare network": (AT_LEAST, 0.9),
    "classifier: learning, s": (AT_MOST, 40.0),
    "classifier: learning with fine-tuning, s": (AT_MOST, 240.0),
    "classifier: predict, a process, s": (AT_MOST, 2.5),
    "classifier: predict, loaded, ms": (AT_MOST, 60.0),
    "classifier: model on disk, MB": (AT_MOST, 40.0),
    **{f"one core busy: {work} / fair share": (AT_LEAST, 0.8) for work in busy.WORKS},
    **{f"quiet: {work} / {busy.BEFORE}": (AT_LEAST, 0.9) for work in busy.WORKS},
}


def published_comparisons(tasks: dict[str, Any]) -> dict[str, tuple[str, float]]:
    """Return the comparisons with published times: name, our measurement, published seconds."""
    training = ("data", "student", "teacher", "losses", "optimiser", "other")
    package = {method: entry["package"] for method, entry in tasks.items()}
    epoch = {
        method: sum(parts[part] for part in training) / second_task.FULL_EPOCHS for method, parts in package.items()
    }
    icarl, podnet, alone, whole = ELSEWHERE
    ours = {icarl: ("icarl", sum(package["icarl"].values())), podnet: ("podnet", sum(package["podnet"].values()))}
    results = {f"{theirs} / ours, {name}": (theirs, seconds) for theirs, (name, seconds) in ours.items()}
    for method in ("icarl+cscct", "podnet+cscct"):
        tested = epoch[method] + package[method]["evaluation"]
        results[f"{alone} / ours, {method}"] = (alone, epoch[method])
        results[f"{whole} / ours without them, {method}"] = (whole, epoch[method])
        results[f"{whole} / ours with a test, {method}"] = (whole, tested)
    return results


def published_ratios(tasks: dict[str, Any], machine: dict[str, Any]) -> dict[str, float]:
    """Return ratios to published times, on the same processor only."""
    if machine["tiny"] or machine["threads"] != 2 or "EPYC" not in machine["processor"]:
        return {}
    return {name: ELSEWHERE[theirs] / s for name, (theirs, s) in published_comparisons(tasks).items()}


def environment(size: Size) -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.processor())
    hardware = {"processor": model, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    versions = {"python": platform.python_version(), "torch": torch.__version__, "cscct": cscct.__version__}
    return {**hardware, "system": platform.system(), **versions, **asdict(size)}


def ratios(parts: dict[str, Any], machine: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the ratios of all parts. machine: machine on which each part was measured."""
    figures: dict[str, float] = {}
    for name, results in parts.items():
        figures |= PARTS[name].ratios(results)  # type: ignore[attr-defined]
    if "second-task" in parts:
        figures |= published_ratios(parts["second-task"], machine["second-task"])
    return figures


def met(name: str, value: float) -> bool | None:
    if name not in GOALS:
        return None
    side, goal = GOALS[name]
    return value <= goal if side == AT_MOST else value >= goal


def table(figures: dict[str, float]) -> list[str]:
    wide = max(map(len, figures)) + 2
    lines = [f"{'':{wide}}{'measured':>10}{'goal':>10}  met"]
    for name, value in sorted(
        figures.items(), key=lambda entry: list(GOALS).index(entry[0]) if entry[0] in GOALS else 99
    ):
        goal = "{} {:g}".format(*GOALS[name]) if name in GOALS else ""
        lines.append(
            f"{name:{wide}}{value:>10.4f}{goal:>10}  {({True: 'yes', False: 'NO', None: ''})[met(name, value)]}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed as ratios, and memory, on random images.")
    parser.add_argument("--tiny", action="store_true", help="smoke test with a small network and few images")
    parser.add_argument("--only", metavar="PART,...", default=",".join(PARTS), help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="results file; its other parts are kept")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of torch; default: all cores")
    args = parser.parse_args()
    chosen = args.only.split(",")
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]}; the parts are {', '.join(PARTS)}")
    torch.set_num_threads(args.threads or torch.get_num_threads())
    size = Size(torch.get_num_threads())
    if args.tiny:
        size = Size(size.threads, exemplars=1, depth=8, batch=16, epochs=1, rounds=1, tiny=True)
        growth.HOW_TO_START = "forkserver"  # imports everything once
        print("--tiny: the results are not meaningful")
    machine = environment(size)
    print(*(f"{name}: {value}" for name, value in machine.items()), sep="\n", flush=True)
    before = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    machines = before.get("machines", {})
    if any(entry["tiny"] != size.tiny for entry in machines.values()):
        before, machines = {}, {}
    results, began, failed = before.get("parts", {}), time.perf_counter(), list[str]()
    for name in chosen:
        print(f"\n{name}", flush=True)
        started = time.perf_counter()
        try:
            results[name] = PARTS[name].measure(size, lambda line: print(f"  {line}", flush=True))  # type: ignore[attr-defined]
        except Exception:  # the other parts are measured, and kept, all the same
            traceback.print_exc()
            failed.append(name)
            continue
        machines[name] = machine
        print(f"  {time.perf_counter() - started:.0f} s", flush=True)
        if args.json:
            write(args.json, machines, results)
    print("", *table(ratios(results, machines)), f"\n{(time.perf_counter() - began) / 60:.0f} minutes", sep="\n")
    if failed:
        sys.exit(f"failed, see above: {', '.join(failed)}")


def write(file: Path, machines: dict[str, Any], results: dict[str, Any]) -> None:
    """All figures so far, so that a part that fails or is interrupted does not lose those before it."""
    figures = ratios(results, machines)
    reached = {name: met(name, value) for name, value in figures.items() if name in GOALS}
    content = {"machines": machines, "ratios": figures, "met": reached, "parts": results}
    file.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
