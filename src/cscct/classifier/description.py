"""What a model folder or a run folder holds, for a person who finds one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..runs.folder import RunFolder
from .store import ModelFolder, is_model_folder, is_run_folder


def describe(path: Path) -> dict[str, Any]:
    """Classes with their numbers of images (None where that is not stored), network, predictor, versions and size.
    `finetuned`: the classes whose images the network was fine-tuned with."""
    check_is_model(path)
    found = _run(RunFolder(path)) if is_run_folder(path) else _model(ModelFolder(path))
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return {"path": str(path), **found, "megabytes": round(size / 1e6, 3)}


def check_is_model(path: Path) -> None:
    """Refuse a folder that holds neither a model nor a run."""
    if not path.is_dir():
        raise UserError(f"There is no folder {path}: name that of a model (`cscct learn` makes one) or of a run.")
    if not is_model_folder(path) and not is_run_folder(path):
        raise UserError(f"{path} holds neither a model (`cscct learn` makes one) nor a run.")


def _model(folder: ModelFolder) -> dict[str, Any]:
    model = folder.current_record().model
    return {
        "kind": "model",
        "classes": {str(one.label): one.count for one in model.classes},
        "backbone": model.backbone,
        "predictor": model.params.get("predictor"),
        "finetuned": [str(label) for label in model.tuned],
        "exemplars": sum(len(one.exemplars) for one in model.classes),
        "versions": [{**asdict(one), "classes": len(one.classes)} for one in folder.versions()],
    }


def _run(folder: RunFolder) -> dict[str, Any]:
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
