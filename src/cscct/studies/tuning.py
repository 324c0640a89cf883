"""Tuning of settings on validation images: a study of Optuna whose trials are ordinary runs.

The journal in the output folder stores all trials. Several processes can work on it, and a killed one is continued by
any other: its runs resume from their checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..config import Settings, dotted_layers, resolve
from ..errors import UserError, install_hint
from ..runs.folder import RunFolder
from ..storage import check_not_link, write_text
from ..text import suggest
from ..yamltext import Raw, flatten, merge, read_config
from .plan import PlannedRun
from .space import Parameter, search_space

if TYPE_CHECKING:
    from optuna import Study

JOURNAL, DEFINITION, BEST = "journal.log", "tune.yaml", "best.yaml"
METRICS = ("average_incremental_accuracy", "last_accuracy", "harmonic_mean", "apt", "act")


@dataclass(frozen=True)
class Tuning:
    """What is tuned, and how settings are compared.

    Attributes:
        method: Name of the method.
        dataset: Name of the dataset.
        folder: Folder of the journal and the runs.
        over: Values of each tuned setting, see `search_space`.
        seeds: Seeds of the runs of a trial. They also define its class orders, unless `data.order` is set.
        metric: Metric on validation images whose mean over the seeds is maximised.
        recipe: Recipe of the presets, or None for the default.
        config: Settings from a file.
        overrides: Further settings of all runs.
        parameters: The search space, from `over`.
    """

    method: str
    dataset: str
    folder: Path
    over: Mapping[str, str | Sequence[Any]]
    seeds: tuple[int, ...]
    metric: str = METRICS[0]
    recipe: str | None = None
    config: Raw = field(default_factory=dict)
    overrides: Sequence[Raw] = ()
    parameters: tuple[Parameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise UserError(
                f"The metric {self.metric!r} cannot be tuned{suggest(self.metric, METRICS)}; use one of "
                f"{', '.join(METRICS)}."
            )
        if not self.seeds:
            raise UserError("Tuning needs at least one seed.")
        if self.settings({}).data.validation is None:
            raise UserError(
                "Trials are compared on validation images, and there are none: hold out some of the training images, "
                "for example with --set data.validation=0.1."
            )
        parameters = search_space(self.over, lambda key, value: self.settings({key: value}))
        object.__setattr__(self, "parameters", parameters)

    def settings(self, values: Mapping[str, Any], seed: int | None = None) -> Settings:
        """Return the settings of a run with these values of tuned settings."""
        fixed = merge(merge({}, self.config), _merged(self.overrides))
        ordered = "order" in (fixed.get("data") or {})
        layers = [*([] if ordered else [{"data": {"order": "seed"}}]), *self.overrides, *dotted_layers(values)]
        layers.append({"seed": self.seeds[0] if seed is None else seed})
        return resolve(self.method, self.dataset, recipe=self.recipe, config=self.config, overrides=layers)

    def runs(self, number: int, values: Mapping[str, Any]) -> list[PlannedRun]:
        """Return the runs of a trial, one for each seed."""
        name = f"trial-{number:04}"
        folders = [RunFolder(self.folder / f"{name}-seed{seed}") for seed in self.seeds]
        plans = zip(self.seeds, folders, strict=True)
        return [PlannedRun(name, self.settings(values, seed), folder) for seed, folder in plans]

    def defaults(self) -> dict[str, Any] | None:
        """Return the current values of the tuned settings, or None if one is outside its range."""
        current = flatten(self.settings({}).dump())
        values = {parameter.key: current.get(parameter.key) for parameter in self.parameters}
        return values if all(parameter.contains(values[parameter.key]) for parameter in self.parameters) else None

    def definition(self) -> Raw:
        """Return what must not change when tuning is continued, as plain values."""
        fixed = merge(merge({}, self.config), _merged(self.overrides))
        return {
            "method": self.settings({}).method,
            "dataset": self.dataset,
            "recipe": self.recipe,
            "metric": self.metric,
            "seeds": list(self.seeds),
            "over": {parameter.key: str(parameter) for parameter in self.parameters},
            "set": {key: value for key, value in flatten(fixed).items() if not key.startswith("runtime.")},
        }

    def open(self) -> Study:
        """Open the journal, and create it if the folder is new. The first trial has the current settings.

        Raises:
            UserError: If Optuna is not installed, or the folder contains another study or other files.
        """
        try:
            import optuna
            from optuna.storages.journal import JournalFileBackend, JournalStorage
        except ImportError as error:
            raise UserError(f"Tuning needs Optuna, which is not installed: {install_hint('tune')}.") from error
        self._check_folder()
        path = check_not_link(self.folder / JOURNAL)
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            with file_lock(path, "creation"):
                storage = JournalStorage(JournalFileBackend(str(path), file_lock(path, "write")))
                study = optuna.create_study(
                    storage=storage, study_name="cscct", direction="maximize", load_if_exists=True
                )
                defaults = self.defaults()
                if not study.get_trials(deepcopy=False) and defaults is not None:
                    study.enqueue_trial(defaults)
        except (ValueError, KeyError, AssertionError) as error:
            raise UserError(f"{path} is damaged ({error}): choose another folder with --out.") from error
        finally:
            optuna.logging.set_verbosity(verbosity)
        return study

    def _check_folder(self) -> None:
        """Write the definition to a new folder, or compare it with that of an existing one."""
        path, definition = self.folder / DEFINITION, self.definition()
        if path.is_file():
            stored, wanted = flatten(read_config(path)), flatten(definition)
            for key in dict.fromkeys([*stored, *wanted]):
                if stored.get(key) != wanted.get(key):
                    raise UserError(
                        f"The folder {self.folder} contains another study: {key} was {stored.get(key)} and is now "
                        f"{wanted.get(key)}. Choose another folder with --out."
                    )
            return
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise UserError(f"{self.folder} exists and contains no study: choose another folder with --out.")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(path, yaml.safe_dump(definition, sort_keys=False, allow_unicode=True))


def _merged(layers: Sequence[Raw]) -> Raw:
    merged: Raw = {}
    for layer in layers:
        merge(merged, layer)
    return merged


def file_lock(path: Path, purpose: str) -> Any:
    """Return a lock that the operating system releases when the process ends, unlike those of Optuna."""
    from filelock import FileLock

    return FileLock(check_not_link(path.with_name(f".{path.name}.{purpose}.lock")))
