"""Descriptions of model folders and run folders."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..runs.folder import RunFolder
from .evaluation import accuracies
from .folder import check_is_model
from .packing import Packed
from .parameters import training_free_predictor
from .records import RecordReader
from .unpacking import read_evaluation, read_novelty
from .versions import StoredVersions, has_versions, is_run_folder


def describe(path: Path) -> dict[str, Any]:
    """Return what a folder contains: classes with their numbers of images (None if unknown), network, method, versions,
    size in megabytes, and the run if it is one."""
    check_is_model(path)
    folder = StoredVersions(path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    run = _describe_run(RunFolder(path)) if is_run_folder(path) else {}
    stored = _describe_version(folder) if has_versions(path) and folder.current() else {}
    versions = [{**asdict(version), "classes": len(version.classes)} for version in folder.versions()]
    return {"path": str(path), **run, **stored, "versions": versions, "megabytes": round(size / 1e6, 3)}


def _describe_version(folder: StoredVersions) -> dict[str, Any]:
    model = folder.current_record().model
    params = model.params
    method = params.get("predictor") if params.get("finetune") == "never" else params.get("method")
    return {
        "kind": "model",
        "classes": {str(entry.label): entry.count for entry in model.classes},
        "backbone": model.backbone,
        "method": method,
        "predictor": method if training_free_predictor(str(method)) else None,
        "trained_on": [str(label) for label in model.tuned],
        "exemplars": sum(len(entry.exemplars) for entry in model.classes),
        **_describe_accuracy(folder, model),
    }


def _describe_accuracy(folder: StoredVersions, model: Packed) -> dict[str, Any]:
    """Correct predictions and tested images of each class at the last measurement, and the number of images then."""
    read = RecordReader(folder.path).file
    evaluation, novelty = read_evaluation(model, read), read_novelty(model, read)
    if evaluation is None:
        return {"accuracy": None, "unknown_detection": None}
    measured = accuracies(evaluation.confusion([entry.label for entry in model.classes]))
    detection = None if novelty is None else novelty.detection_rate()
    return {"accuracy": measured, "measured_images": int(evaluation.images), "unknown_detection": detection}


def _describe_run(folder: RunFolder) -> dict[str, Any]:
    config, result = folder.config(), folder.result()
    return {
        "kind": "run",
        "classes": {str(name): None for entry in result.get("tasks", ()) for name in entry["classes"]},
        "backbone": config.get("network", {}).get("backbone"),
        "predictor": result.get("headline"),
        "method": config.get("method"),
        "dataset": config.get("dataset"),
        "status": result.get("status"),
    }
