"""Writes what the runs of a study came to into a small file: `python studies/record.py NAME FOLDER[=VARIANT] ...`.

A row for each run in the folders that has finished a task, failed and stopped ones too, in studies/records/NAME.csv. A
run that has a row there (same method, seed, variant and settings) gets a new one, unless that one is finished and this
is not; other rows stay, so that a study can be run on several machines and days. VARIANT names what differs from the
study otherwise, such as another precision. tables.py and figures.py make the tables and pictures of the documents from
these files.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from cscct.analysis.load import Run, find_runs, read_run
from cscct.analysis.statistics import METRICS
from cscct.learn.predict import HEADLINES

RECORDS = Path(__file__).parent / "records"
SETTINGS = {
    "B": ("protocol", "base"),
    "C": ("protocol", "step"),
    "batch": ("train", "batch_size"),
    "memory": ("memory", "per_class"),
}
KEY = ("method", "seed", "variant", *SETTINGS)
COLUMNS = (*KEY, "version", "status", "tasks", "prediction", *METRICS)
COLUMNS += (*(f"{name}.{metric}" for name in HEADLINES for metric in METRICS[:2]), "curve")


def row(run: Run, variant: str) -> dict[str, Any]:
    """Accuracies are percent, of the method's own prediction; those of every prediction follow, and then the accuracy
    after each task."""
    found = {key: run.settings[section][field] for key, (section, field) in SETTINGS.items()}
    found |= {"method": run.method, "seed": run.seed, "variant": variant, "version": run.settings.get("cscct_version")}
    found |= {"status": run.result["status"], "tasks": len(run.sizes), "prediction": run.headline}
    if run.finished:
        found |= {metric: rounded(run.summary[metric]) for metric in METRICS}
        for prediction, summary in run.result["summary"].items():
            found |= {f"{prediction}.{metric}": rounded(summary[metric]) for metric in METRICS[:2]}
        found["curve"] = " ".join(f"{task['accuracy'][run.headline]:.2f}" for task in run.result["tasks"])
    return found


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    name, *folders = sys.argv[1:]
    path = RECORDS / f"{name}.csv"
    rows: dict[tuple[str, ...], dict[str, Any]] = {key(one): one for one in read(path)}
    found = 0
    for folder, _, variant in (one.partition("=") for one in folders):
        for run in map(read_run, find_runs([Path(folder)])):
            if not run.result["tasks"]:
                continue
            one, found = row(run, variant), found + 1
            if run.finished or rows.get(key(one), one)["status"] != "finished":
                rows[key(one)] = one
    RECORDS.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=in_order))
    finished = sum(one["status"] == "finished" for one in rows.values())
    print(f"{found} runs read; {len(rows)} are recorded, {finished} of them finished.")


def key(one: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(one[column]) for column in KEY)


def in_order(one: dict[str, Any]) -> tuple[Any, ...]:
    return (one["variant"], one["method"], *(int(one[column]) for column in (*SETTINGS, "seed")))


if __name__ == "__main__":
    main()
