"""Tuned weights of a base method and of CSCCT: `python studies/tuned.py NAME FOLDER [--outputs FOLDER] [--record]`.

For each base, its own weights are tuned, then, on top of them, those of CSC and CT in as many trials: on validation
images of the tuning orders. The weights are reported on other seeds, seed by seed, so that an unfinished study has
complete pairs; all bases have the first half of the seeds before one has the second. The same command continues after
an interruption; tuning that is complete in studies/records is not repeated. `--record` writes what FOLDER contains so
far to studies/records: `trials-NAME.csv` has a row for each trial, `tuned-NAME.csv` one for each reported run, with
these variants:

- (empty): default weights
- `tuned`: tuned weights of the base and, with +cscct, tuned weights of CSC and CT
- `tuned CSCCT`: default weights of the base, tuned weights of CSC and CT
- those in the file of the study
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from record import RECORDS

from cscct.analysis.tuning import tuning_result
from cscct.config import dotted_layers, resolve
from cscct.experiments import Hooks, run_settings
from cscct.progress import display_mode
from cscct.runs.first_tasks import FirstTaskCache
from cscct.studies.execution import ExecutionOptions
from cscct.studies.tuning import Tuning
from cscct.tuning import tune_settings

STUDIES = Path(__file__).parent
OWN: dict[str, dict[str, str]] = {  # weights of the bases; the defaults are within all ranges
    "icarl": {
        "loss.logit_distillation.weight": "0.1:30:log",
        "loss.logit_distillation.temperature": "0.5:8:log",
        "loss.logit_distillation.weight_scaling": "constant,sqrt_old_over_new",
    },
    "lucir": {
        "loss.less_forget.weight": "0.5:50:log",
        "loss.less_forget.weight_scaling": "constant,sqrt_old_over_new",
        "loss.margin_ranking.weight": "0.1:10:log",
    },
    "podnet": {
        "loss.pod_spatial.weight": "0.3:30:log",
        "loss.pod_spatial.weight_scaling": "constant,sqrt_seen_over_new",
        "loss.pod_flat.weight": "0.1:10:log",
        "loss.pod_flat.weight_scaling": "constant,sqrt_seen_over_new",
    },
}
CSCCT = {
    "loss.csc.weight": "0.03:30:log",
    "loss.csc.weight_scaling": "constant,sqrt_old_over_new",
    "loss.ct.weight": "0.1:30:log",
    "loss.ct.weight_scaling": "constant,sqrt_old_over_new",
    "loss.ct.temperature": "0.1:4:log",
    "loss.ct.form": "official,batchmean",
}
OPTIONS = ExecutionOptions(jobs=1, in_process=True)
TRIAL_COLUMNS = ("method", "trial", "state", "seeds", "tasks", "value", "seconds", "settings", "error")
Values = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A study of tuned weights.

    Attributes:
        name: Name of the study.
        folder: Folder of all runs.
        content: Content of `tuned/NAME.yaml`.
        outputs: Folder of outputs of frozen stages, or None.
    """

    name: str
    folder: Path
    content: Mapping[str, Any]
    outputs: str | None

    @property
    def settings(self) -> Values:
        """Settings of all runs."""
        return {**self.content["set"], "runtime.frozen_cache_dir": self.outputs}

    def tuning(self, method: str) -> Tuning:
        """Return the tuning study of a base, or of a base with CSCCT on top of its tuned weights."""
        base, _, addon = method.partition("+")
        settings = {**self.settings, "data.validation": self.content["tuning"]["validation"]}
        settings |= self.weights(base) if addon else {}
        seeds = tuple(self.content["tuning"]["seeds"])
        over = CSCCT if addon else OWN[base]
        folder = self.folder / f"tuning-{method}"
        return Tuning(method, self.content["dataset"], folder, over, seeds, overrides=dotted_layers(settings))

    def recorded(self, method: str) -> list[dict[str, str]]:
        """Return the recorded trials of a method."""
        return [row for row in read(trials_path(self.name)) if row["method"] == method]

    def weights(self, method: str) -> Values:
        """Return the tuned values of a method, from the records or by tuning."""
        ended = [row for row in self.recorded(method) if row["state"] != "running"]
        complete = [row for row in ended if row["state"] == "complete"]
        if len(ended) == self.content["tuning"]["trials"] and complete:
            values: Values = json.loads(max(complete, key=lambda row: float(row["value"]))["settings"])
            return values
        tuning, trials = self.tuning(method), self.content["tuning"]["trials"]
        result = tune_settings(tuning, trials, OPTIONS, None, hooks(), prune=self.content["tuning"]["prune"]).result
        if result.best is None:
            raise RuntimeError(f"No trial of {method} is complete.")
        return result.best.settings

    def arms(self, base: str) -> Iterator[tuple[str, str, Values]]:
        """Yield variant, method and settings of each reported row of a base."""
        for addons in ("", "+cscct", "+balanced"):
            yield "", base + addons, {}
        own, added = self.weights(base), self.weights(f"{base}+cscct")
        yield "tuned", base, own
        yield "tuned", f"{base}+cscct", {**own, **added}
        yield "tuned CSCCT", f"{base}+cscct+balanced", added
        for arm in self.content.get("arms", ()):
            if arm["method"].partition("+")[0] == base:
                yield arm["variant"], arm["method"], arm["set"]

    def report(self) -> None:
        """Tune and run the reported seeds."""
        seeds = self.content["seeds"]
        for half in (seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :]):
            for base in self.content["bases"]:
                self.report_base(base, half)

    def report_base(self, base: str, seeds: Sequence[int]) -> None:
        """Run the seeds of a base."""
        arms = list(self.arms(base))
        cache = FirstTaskCache(self.folder / "first-tasks")
        for seed in seeds:
            for variant, method, values in arms:
                layers = [*dotted_layers({**self.settings, **values}), {"seed": seed}]
                settings = resolve(method, self.content["dataset"], overrides=layers)
                out = self.folder / variant_folder(variant) / f"{method}-seed{seed}"
                run_settings(settings, out=out, first_tasks=cache, hooks=hooks())

    def record(self) -> None:
        """Write the trials and runs so far to the records."""
        rows = {(row["method"], row["trial"]): row for row in read(trials_path(self.name))}
        for method in (base + addon for base in self.content["bases"] for addon in ("", "+cscct")):
            if (self.folder / f"tuning-{method}").exists():
                rows |= {(row["method"], row["trial"]): row for row in self.trials(method)}
        with trials_path(self.name).open("w", newline="") as file:
            writer = csv.DictWriter(file, TRIAL_COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[key] for key in sorted(rows, key=lambda key: (key[0], int(key[1]))))
        print(f"{trials_path(self.name).name} has {len(rows)} trials.")
        variants = dict.fromkeys(
            ["", "tuned", "tuned CSCCT", *(arm["variant"] for arm in self.content.get("arms", ()))]
        )
        folders = {variant: self.folder / variant_folder(variant) for variant in variants}
        arguments = [f"{folder}={variant}" for variant, folder in folders.items() if folder.exists()]
        if arguments:
            command = [sys.executable, str(STUDIES / "record.py"), f"tuned-{self.name}", *arguments]
            subprocess.run(command, check=True)

    def trials(self, method: str) -> list[dict[str, str]]:
        """Return the rows of the trials of a method that are in the folder."""
        tuning = self.tuning(method)
        rows = []
        for trial in tuning_result(tuning, tuning.open()).trials:
            row = {"method": method, "trial": trial.number, "state": trial.state, "tasks": trial.tasks}
            row |= {"seeds": " ".join(map(str, tuning.seeds)), "seconds": round(trial.seconds, 1)}
            row |= {"value": "" if trial.value is None else round(trial.value, 4), "error": trial.error or ""}
            rows.append({**{key: str(value) for key, value in row.items()}, "settings": json.dumps(trial.settings)})
        return rows


def hooks() -> Hooks:
    """Return display hooks of a command without a terminal."""
    return Hooks(display_mode(quiet=False))


def trials_path(name: str) -> Path:
    """Return the file with the trials of a study."""
    return RECORDS / f"trials-{name}.csv"


def variant_folder(variant: str) -> str:
    """Return the name of the folder of a variant."""
    return variant.replace(" ", "-").lower() or "default"


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file, if it exists."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="digits or pretrained: the study in tuned/NAME.yaml")
    parser.add_argument("folder", type=Path, help="folder of all runs")
    parser.add_argument("--outputs", help="folder of outputs of frozen stages")
    parser.add_argument("--record", action="store_true", help="write the runs so far to studies/records")
    arguments = parser.parse_args()
    content = yaml.safe_load((STUDIES / "tuned" / f"{arguments.name}.yaml").read_text())
    study = Study(arguments.name, arguments.folder, content, arguments.outputs)
    if arguments.record:
        study.record()
    else:
        study.report()


if __name__ == "__main__":
    main()
