"""Synthetic run folders."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conftest import settings_for
from cscct.analysis.groups import Group, group_runs
from cscct.analysis.load import find_runs, read_runs
from cscct.data.tasks import class_order, split_tasks
from cscct.features import DEFAULT_PREDICTORS
from cscct.learn.evaluation import matrix_row
from cscct.metrics import cumulative, summarize
from cscct.runs.folder import RunFolder


def make_run(
    path: Path,
    method: str = "lucir",
    dataset: str = "digits",
    *sets: str,
    seed: int = 1,
    names: Sequence[str] | None = None,
    done: int | None = None,
    epochs: int = 2,
    per_class: int = 20,
    status: str = "finished",
) -> dict[str, Any]:
    """Write a run whose accuracy decreases with every task, less with add-ons. Returns its result."""
    settings = settings_for(method, dataset, f"seed={seed}", *sets)
    names = names or ([str(i) for i in range(10)] if dataset == "digits" else [f"class_{i:03}" for i in range(100)])
    order = class_order(seed if settings.data.order == "seed" else settings.data.order, len(names))
    tasks = split_tasks(len(names), settings.protocol.base or 4, settings.protocol.step or 2)
    done = len(tasks) if done is None else done
    sizes = [task.n_new * per_class for task in tasks]
    folder = RunFolder(path)
    folder.create(settings)
    rng = np.random.default_rng([seed, len(method)])
    matrix: dict[str, list[list[float]]] = {head: [] for head in DEFAULT_PREDICTORS}
    entries = []
    for task in tasks[:done]:
        tensors = {}
        for head, rows in matrix.items():
            draws = rng if head in ("classifier", "nme") else np.random.default_rng([seed, len(head), task.index])
            counts = _confusion(draws, task.n_old, task.n_new, task.index, per_class, len(method), head == "nme")
            tensors[f"confusion.{head}"] = counts
            rows.append(matrix_row(counts, tasks[: task.index + 1]))
        if task.index:
            tensors["similarity"] = torch.from_numpy(
                rng.normal(0.3, 0.25, (task.n_new, task.n_old)).clip(-1, 1)
            ).float()
        if task.index == len(tasks) - 1:
            tensors["labels"] = torch.arange(tasks[0].n_new).repeat_interleave(per_class)
            centres = torch.from_numpy(rng.normal(size=(tasks[0].n_new, 16)))
            tensors["features"] = (centres[tensors["labels"]] + 0.4 * torch.randn(len(tensors["labels"]), 16)).float()
        folder.save_task(task.index, tensors)
        for epoch in range(epochs):
            parts = _losses(settings.terms, task.index, epoch, rng)
            folder.append_metrics(
                {"task": task.index, "stage": "train", "epoch": epoch, "lr": 0.1, "loss": sum(parts.values())}
                | {"losses": parts, "images_per_second": 1000.0}
            )
        accuracy = {head: cumulative(rows, sizes)[-1] for head, rows in matrix.items()}
        classes = [names[order[c]] for c in range(task.n_old, task.n_old + task.n_new)]
        entries.append({"task": task.index, "classes": classes, "accuracy": accuracy, "seconds": 60.0})
    result = {
        "status": status,
        "method": settings.method,
        "dataset": dataset,
        "seed": seed,
        "headline": settings.predict.predictor,
        "tasks": entries,
        "task_sizes": sizes,
        "matrix": matrix,
        "summary": {head: summarize(rows, sizes) for head, rows in matrix.items() if rows},
        "weights_sha256": None,
        "environment": {"cscct": "0.2.0", "torch": "2.13.0", "python": "3.11.7", "device": "cpu", "threads": 1},
    }
    folder.write_result(result)
    return result


def _confusion(
    rng: np.random.Generator, old: int, new: int, task: int, per_class: int, skill: int, nme: bool
) -> torch.Tensor:
    seen = old + new
    counts = np.zeros((seen, seen), dtype=np.int32)
    for label in range(seen):
        right = 0.92 - (0.3 - 0.01 * skill) * (1 - 0.8**task) * (label < old) - 0.02 * nme + rng.normal(0, 0.05)
        wrong = rng.dirichlet(np.where(np.arange(seen) >= old, 0.4, 0.1)) * (1 - min(0.99, right))
        chances = wrong + np.eye(seen)[label] * min(0.99, right)
        counts[label] = rng.multinomial(per_class, chances / chances.sum())
    return torch.from_numpy(counts)


def _losses(terms: Any, task: int, epoch: int, rng: np.random.Generator) -> dict[str, float]:
    falling = 1 / (1 + 0.1 * epoch)
    sign = {"csc": -1.0}
    active = [term for term in terms if task or term.first_task]
    return {term.name: sign.get(term.name, 1) * term.weight * falling * float(rng.uniform(0.8, 1)) for term in active}


def groups_in(folder: Path, warnings: list[str] | None = None) -> list[Group]:
    """The groups of the runs in a folder."""
    return group_runs(read_runs(find_runs([folder]), (warnings if warnings is not None else []).append))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
