"""A small ImageNet-Subset with ResNet-18 at 224 pixels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import Silent, settings_for
from cscct.data.datasets.folders import subset_wnids
from cscct.features import DEFAULT_PREDICTORS
from cscct.learn.protocol import complete
from cscct.paper.cells import Request, find, plan_result
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.studies.datasets import load_dataset
from cscct.yamltext import parse_override


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of ImageNet with two training images and one test image per class; one is CMYK, one grey."""
    root = tmp_path_factory.mktemp("imagenet")
    rng = np.random.default_rng(0)
    for number, wnid in enumerate(subset_wnids()):
        for part, count in (("train", 2), ("val", 1)):
            folder = root / part / wnid
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)
                image = Image.fromarray(pixels).resize((280, 240 + number), Image.Resampling.BICUBIC)
                mode = {(0, 0): "CMYK", (0, 1): "L"}.get((number, i), "RGB")
                image.convert(mode).save(folder / f"{wnid}_{i}.JPEG", quality=70)
    return root


@pytest.mark.parametrize(("method", "backbone"), [("lucir+cscct", "lucir"), ("podnet+cscct", "podnet")])
def test_two_tasks(method: str, backbone: str, miniature: Path, tmp_path: Path) -> None:
    sets = ("train.epochs=1", "data.classes=3", "protocol.base=2", "protocol.step=1", "train.batch_size=3")
    quick = ("data.order=natural", "runtime.threads=1", *(["finetune.epochs=1"] if backbone == "podnet" else []))
    settings = settings_for(method, "imagenet-subset", *sets, *quick)
    assert (settings.network.backbone, settings.data.transform.size) == (f"{backbone}-resnet18", 224)
    listener = Silent()
    dataset = load_dataset(settings, miniature, listener.warnings.append)
    assert (len(dataset.class_names), len(dataset.train), len(dataset.test)) == (100, 200, 100)
    result = execute(
        complete(settings, dataset), dataset, RunFolder(tmp_path / "run"), listener, listener.warnings.append
    )
    assert result["status"] == "finished"
    assert [task["classes"] for task in result["tasks"]] == [list(subset_wnids()[:2]), list(subset_wnids()[2:3])]
    assert [record["stage"] for record in listener.epochs][:2] == ["train", "train"]
    assert len(listener.warnings) == 1  # fewer images than the memory could hold


def test_one_cell_of_table_2_runs_from_its_plan(miniature: Path, tmp_path: Path) -> None:
    """100 classes in six tasks; only epochs, images per class and their size are overridden."""
    sets = ("train.epochs=1", "data.train_per_class=1", "data.test_per_class=1", "data.transform.size=32")
    overrides = [parse_override(text) for text in sets]
    plan = plan_result(find("table2"), Request(seeds=(1,)), tmp_path, overrides)
    wanted = ("lucir+cscct", 50, 10)
    (planned,) = [planned for cell, planned in plan if (cell.method, cell.B, cell.C) == wanted]
    settings = planned.settings.model_copy(update={"runtime": replace(planned.settings.runtime, threads=1)})
    assert (settings.train.batch_size, settings.train.lr, settings.network.depth) == (64, 0.02, 18)
    dataset = load_dataset(settings, miniature, print)
    result = execute(complete(settings, dataset), dataset, RunFolder(tmp_path / "run"), Silent(), print)
    assert [len(task["classes"]) for task in result["tasks"]] == [50, 10, 10, 10, 10, 10]
    assert set(result["summary"]) == set(DEFAULT_PREDICTORS)
