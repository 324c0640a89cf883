"""Records the results of a study in studies/records: `python studies/record.py NAME FOLDER[=VARIANT] ...`.

NAME.csv gets one row for each run in the folders that has finished a task, including failed and stopped runs. A row
with the same method, seed, variant and settings is replaced, unless it is finished and the run is not. Other rows are
kept, so that a study can be run on several machines. VARIANT names a difference from the study, such as another
precision. tables.py and figures.py read these files.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

from cscct.analysis.load import StoredRun, find_runs, read_run
from cscct.analysis.statistics import METRICS
from cscct.features import DEFAULT_PREDICTORS
from cscct.runs.folder import EXEMPLARS, MODEL
from cscct.storage import read_tensors

RECORDS = Path(__file__).parent / "records"
SETTINGS = {
    "B": ("protocol", "base"),
    "C": ("protocol", "step"),
    "batch": ("train", "batch_size"),
    "memory": ("memory", "per_class"),
}
KEY = ("method", "seed", "variant", *SETTINGS)
COLUMNS = (*KEY, "version", "status", "tasks", "prediction", *METRICS)
COLUMNS += (*(f"{name}.{metric}" for name in DEFAULT_PREDICTORS for metric in METRICS[:2]), "curve")
COLUMNS += ("seconds_after_first", "parameters", "kept_bytes")
BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def row(run: StoredRun, variant: str) -> dict[str, Any]:
    """Return the row of a run: metrics of its predictor, of all predictors, and the accuracy after each task."""
    entry = {key: run.settings[section][field] for key, (section, field) in SETTINGS.items()}
    entry |= {"method": run.method, "seed": run.seed, "variant": variant, "version": run.settings.get("cscct_version")}
    entry |= {"status": run.result["status"], "tasks": len(run.sizes), "prediction": run.headline}
    if run.finished:
        entry |= {metric: rounded(run.summary[metric]) for metric in METRICS}
        for prediction, summary in run.result["summary"].items():
            if prediction in DEFAULT_PREDICTORS:  # that of a method alone is in the columns of its run
                entry |= {f"{prediction}.{metric}": rounded(summary[metric]) for metric in METRICS[:2]}
        entry["curve"] = " ".join(f"{task['accuracy'][run.headline]:.2f}" for task in run.result["tasks"])
        entry |= costs(run)
    return entry


def costs(run: StoredRun) -> dict[str, int | float]:
    """Return what a finished run takes.

    Returns:
        Seconds of all tasks but the first, which runs may share; parameters of the final network; and bytes of what is
        kept for the next task besides the network: exemplars as 8-bit pixels, their stored targets and the state of
        the extension.
    """
    model, metadata = read_tensors(run.path / MODEL)
    weights = {name: tensor for name, tensor in model.items() if name.startswith(("backbone.", "head."))}
    kept, _ = read_tensors(run.path / EXEMPLARS)
    state = sum(tensor.nbytes for name, tensor in kept.items() if name.startswith(("stored.", "extension.")))
    images = sum(name.startswith("images.") for name in kept)
    pixels = int(metadata["channels"]) * math.prod(json.loads(metadata["image_size"]))
    return {
        "seconds_after_first": round(sum(task["seconds"] for task in run.result["tasks"][1:]), 1),
        "parameters": sum(tensor.numel() for name, tensor in weights.items() if not name.endswith(BUFFERS)),
        "kept_bytes": images * pixels + state,
    }


def rounded(value: float | None) -> float | None:
    """Return a value with four digits."""
    return None if value is None else round(value, 4)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, if it exists."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    name, *folders = sys.argv[1:]
    path = RECORDS / f"{name}.csv"
    rows: dict[tuple[str, ...], dict[str, Any]] = {key(entry): entry for entry in read(path)}
    runs = 0
    for folder, _, variant in (folder.partition("=") for folder in folders):
        for run in map(read_run, find_runs([Path(folder)])):
            if not run.result["tasks"]:
                continue
            entry, runs = row(run, variant), runs + 1
            if run.finished or rows.get(key(entry), entry)["status"] != "finished":
                rows[key(entry)] = entry
    RECORDS.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=order))
    finished = sum(entry["status"] == "finished" for entry in rows.values())
    print(f"Read {runs} runs. {path.name} has {len(rows)} rows, {finished} of them finished.")


def key(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the columns that identify a row."""
    return tuple(str(entry[column]) for column in KEY)


def order(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Return the sort key of a row."""
    return (entry["variant"], entry["method"], *(int(entry[column]) for column in (*SETTINGS, "seed")))


if __name__ == "__main__":
    main()
