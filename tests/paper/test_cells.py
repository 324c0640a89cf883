"""The paper's numbers and the plans behind them."""

import csv
import os
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Silent
from cscct.config import Settings
from cscct.data.base import ArrayImages, Dataset, Split
from cscct.errors import UserError
from cscct.learn.protocol import complete
from cscct.paper.cells import Cell, Request, find, paper_results, plan_result
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from cscct.studies.datasets import load_dataset
from cscct.studies.plan import PlannedRun
from cscct.yamltext import parse_override

NAMES = ("table1", "table2", "table3", "s1", "s2", "apt-act", "tsne", "phases")
CELLS = {"table1": 36, "table2": 36, "table3": 24, "s1": 16, "s2": 16, "apt-act": 24, "tsne": 2, "phases": 18}


def plan(name: str, scale: str = "paper", recipe: str = "released", **more: Any) -> list[tuple[Cell, PlannedRun]]:
    return plan_result(find(name), Request(scale, recipe, **more), Path("nowhere"))


def flat(node: Any, path: str = "") -> dict[str, Any]:
    if isinstance(node, dict) and node:
        return {k: v for key, value in node.items() for k, v in flat(value, f"{path}.{key}" if path else key).items()}
    return {path: tuple(node) if isinstance(node, list) else node}


def test_published_numbers_are_complete() -> None:
    rows = list(csv.DictReader((resources.files("cscct") / "paper" / "published.csv").read_text().splitlines()))
    assert len(rows) == 186
    assert {name: len(result.cells) for name, result in paper_results().items()} == CELLS
    assert sum(float(row["value"]) for row in rows) == pytest.approx(6659.95, abs=0.005)


@pytest.mark.parametrize(
    ("name", "method", "B", "C", "batch", "memory", "value"),
    [
        ("table1", "icarl", 50, 1, 128, 20, 43.39),
        ("table1", "lucir+cscct", 50, 5, 128, 20, 62.01),
        ("table3", "lucir+cscct", 50, 5, 128, 20, 62.01),
        ("s1", "lucir+cscct", 50, 5, 128, 20, 60.01),  # the paper contradicts itself: printed as it stands
        ("s2", "lucir", 50, 5, 128, 40, 63.60),
    ],
)
def test_published_numbers(name: str, method: str, B: int, C: int, batch: int, memory: int, value: float) -> None:
    (actual,) = [
        cell.published
        for cell in find(name).cells
        if (cell.method, cell.B, cell.C, cell.batch_size, cell.memory) == (method, B, C, batch, memory)
    ]
    assert actual == value


def test_gains_are_printed_beside_only_one_variant() -> None:
    for cell in find("table1").cells:
        assert (cell.printed_gain is not None) == (cell.variant == "CSCCT")


# What the paper's sources say of each base, by dataset; CIFAR-100's learning rates and batches are those of B=50, C=5.
CIFAR: dict[str, Any] = {
    "data.order": "seed-1993",
    "data.classes": None,
    "data.train_per_class": None,
    "data.test_per_class": None,
    "data.transform.size": None,
    "data.transform.padding": 4,
    "data.transform.flip": True,
    "memory.policy": "per_class",
    "memory.per_class": 20,
    "memory.herding": "official",
    "network.depth": 32,
    "network.freeze_old": True,
    "train.epochs": 160,
    "train.batch_size": 128,
    "train.lr": 0.1,
    "train.momentum": 0.9,
    "train.weight_decay": 5e-4,
    "loss.csc.weight": 3.0,
    "loss.ct.weight": 1.5,
    "loss.ct.temperature": 2.0,
    "loss.ct.form": "official",
    "protocol.base": 50,
    "protocol.step": 5,
}
COSINE: dict[str, Any] = {
    "network.backbone": "lucir-resnet",
    "network.head": "cosine",
    "network.proxies_per_class": 1,
    "network.imprint": "mean",
    "data.transform.brightness": 0.0,
    "data.transform.mean": (0.5071, 0.4866, 0.4409),
    "data.transform.std": (0.2009, 0.1984, 0.2023),
    "train.schedule.kind": "multistep",
    "train.schedule.milestones": (80, 120),
    "train.schedule.factor": 0.1,
    "train.schedule.epoch_offset": 1,
    "train.clip_grad_value": None,
    "finetune": None,
    "predict.nme_aug": "bgr",
    "loss.cross_entropy.weight": 1.0,
}
ICARL: dict[str, Any] = {
    "predict.predictor": "nme",
    "loss.logit_distillation.weight": 1.0,
    "loss.logit_distillation.weight_scaling": "constant",
    "loss.logit_distillation.temperature": 2.0,
}
LUCIR: dict[str, Any] = {
    "predict.predictor": "classifier",
    "loss.less_forget.weight": 5.0,
    "loss.less_forget.weight_scaling": "sqrt_old_over_new",
    "loss.margin_ranking.weight": 1.0,
    "loss.margin_ranking.k": 2,
    "loss.margin_ranking.margin": 0.5,
}
PODNET: dict[str, Any] = {
    "network.backbone": "podnet-resnet",
    "network.head": "proxies",
    "network.proxies_per_class": 10,
    "network.imprint": "kmeans",
    "data.transform.brightness": 63 / 255,
    "data.transform.mean": (0.5071, 0.4867, 0.4408),
    "data.transform.std": (0.2675, 0.2565, 0.2761),
    "train.schedule.kind": "cosine",
    "train.schedule.epoch_offset": -1,
    "train.clip_grad_value": 5.0,
    "finetune.epochs": 20,
    "finetune.batch_size": 128,
    "finetune.lr": 0.05,
    "finetune.momentum": 0.9,
    "finetune.weight_decay": 5e-4,
    "finetune.schedule.kind": "constant",
    "finetune.batch_norm": "update",
    "finetune.clip_grad_value": 5.0,
    "predict.predictor": "classifier",
    "predict.nme_aug": "hflip",
    "loss.nca.margin": 0.6,
    "loss.nca.form": "official",
    "loss.pod_spatial.weight": 3.0,
    "loss.pod_spatial.weight_scaling": "sqrt_seen_over_new",
    "loss.pod_flat.weight": 1.0,
    "loss.pod_flat.weight_scaling": "sqrt_seen_over_new",
}
IMAGENET: dict[str, Any] = {
    "protocol.step": 10,
    "network.depth": 18,
    "data.transform.size": 224,
    "data.transform.brightness": 63 / 255,
    "data.transform.mean": (0.485, 0.456, 0.406),
    "data.transform.std": (0.229, 0.224, 0.225),
    "train.epochs": 90,
    "train.batch_size": 64,
}
IMAGENET_COSINE: dict[str, Any] = {
    "network.backbone": "lucir-resnet18",
    "train.lr": 0.02,
    "train.weight_decay": 1e-4,
    "train.schedule.milestones": (30, 60),
    "train.schedule.epoch_offset": 0,
    "predict.nme_aug": "none",
}
IMAGENET_PODNET: dict[str, Any] = {
    "network.backbone": "podnet-resnet18",
    "train.lr": 0.05,
    "finetune.lr": 0.01,
    "finetune.batch_size": 64,
    "loss.pod_spatial.weight": 8.0,
    "loss.pod_flat.weight": 10.0,
}
SPEC = {
    ("cifar100", "icarl"): CIFAR | COSINE | ICARL,
    ("cifar100", "lucir"): CIFAR | COSINE | LUCIR,
    ("cifar100", "podnet"): CIFAR | PODNET,
    ("imagenet-subset", "icarl"): CIFAR | COSINE | ICARL | IMAGENET | IMAGENET_COSINE,
    ("imagenet-subset", "lucir"): CIFAR
    | COSINE
    | LUCIR
    | IMAGENET
    | IMAGENET_COSINE
    | {"loss.less_forget.weight": 10.0},
    ("imagenet-subset", "podnet"): CIFAR | PODNET | IMAGENET | IMAGENET_PODNET,
}


def expected(cell: Cell, recipe: str) -> dict[str, Any]:
    usual = {"cifar100": 128, "imagenet-subset": 64}[cell.dataset]
    wanted = dict(SPEC[cell.dataset, cell.base])
    if cell.dataset == "imagenet-subset":
        wanted.pop("data.transform.padding")  # files get a random resized crop
    if recipe == "printed":
        wanted["train.lr"] = {"cifar100": 0.4, "imagenet-subset": 0.02}[cell.dataset]
        milestones = {"cifar100": (80, 120), "imagenet-subset": (30, 60)}[cell.dataset]
        wanted |= {"train.schedule.kind": "multistep", "train.schedule.milestones": milestones}
        wanted |= {"train.schedule.factor": 0.1, "train.schedule.epoch_offset": 0, "loss.ct.form": "paper"}
    wanted |= {"protocol.base": cell.B, "protocol.step": cell.C, "memory.per_class": cell.memory}
    wanted |= {"train.batch_size": cell.batch_size, "train.lr": wanted["train.lr"] * cell.batch_size / usual}
    return {
        key: value
        for key, value in wanted.items()
        if not key.startswith(("loss.csc", "loss.ct")) or key.split(".")[1] in cell.variant.lower()
    }


@pytest.mark.parametrize("recipe", ["released", "printed"])
@pytest.mark.parametrize("name", NAMES)
def test_paper_scale_is_the_recipe_value_by_value(name: str, recipe: str) -> None:
    actual = plan(name, recipe=recipe)
    assert len(actual) == 3 * CELLS[name]
    for cell, planned in actual:
        dump = flat(planned.settings.dump())
        wanted = expected(cell, recipe)
        got = {key: dump.get(key, "absent") for key in wanted}
        assert got == {
            key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()
        }
        losses = {key.split(".")[1] for key in dump if key.startswith("loss.")}
        assert losses == {key.split(".")[1] for key in wanted if key.startswith("loss.")}
        assert (planned.settings.method, planned.settings.recipe) == (cell.method, recipe)


def test_batch_sizes_have_the_linear_rate() -> None:
    rates = {(cell.batch_size, planned.settings.train.lr) for cell, planned in plan("s1")}
    assert rates == {(128, 0.1), (256, 0.2), (512, 0.4), (1024, 0.8)}


def test_results_share_runs() -> None:
    names = {name: {planned.name: planned.settings for _, planned in plan(name)} for name in NAMES}
    assert set(names["apt-act"]) == set(names["table3"])
    assert set(names["phases"]) <= set(names["table1"])
    assert set(names["tsne"]) <= set(names["table3"])
    every: dict[str, Settings] = {}
    for runs in names.values():
        for run, settings in runs.items():
            assert every.setdefault(run, settings) == settings


def test_orders() -> None:
    assert {planned.settings.data.order for _, planned in plan("tsne", order="podnet")} == {
        "podnet-1",
        "podnet-2",
        "podnet-3",
    }
    with pytest.raises(UserError, match="three class orders"):
        Request(order="podnet", seeds=(4,))


@pytest.mark.parametrize(("name", "hint"), [("table4", "did you mean 'table"), ("tnse", "did you mean 'tsne'")])
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        find(name)
    with pytest.raises(UserError, match="no scale"):
        Request("gpu")


def generated(settings: Settings) -> Dataset:
    """A dataset with 100 classes, two training images and one test image each."""
    rng = np.random.default_rng(0)

    def part(count: int) -> Split:
        images = rng.integers(0, 256, (100 * count, 3, 8, 8), dtype=np.uint8)
        return Split(ArrayImages(torch.from_numpy(images)), np.repeat(np.arange(100), count))

    return Dataset("cifar100", tuple(f"class {i}" for i in range(100)), part(2), part(1), channels=3)


@pytest.mark.parametrize(
    ("name", "method", "B", "C"),
    [
        ("table1", "podnet+cscct", 50, 5),
        ("s1", "lucir+cscct", 50, 5),
        ("s2", "lucir+cscct", 5, 5),
        ("tsne", "lucir+csc", 50, 5),
        ("phases", "icarl+cscct", 5, 5),
    ],
)
def test_one_cell_runs_from_its_plan(name: str, method: str, B: int, C: int, tmp_path: Path) -> None:
    """Only epochs and images per class are overridden. Uses the real images if CSCCT_DATA is set."""
    sets = ["train.epochs=1", "data.train_per_class=1", "data.test_per_class=1"]
    sets += ["finetune.epochs=1"] if method.startswith("podnet") else []
    every = plan_result(find(name), Request(seeds=(1,)), tmp_path, [parse_override(text) for text in sets])
    matching = [(cell, planned) for cell, planned in every if (cell.method, cell.B, cell.C) == (method, B, C)]
    cell, planned = matching[-1]  # of batch and memory sizes the largest
    changed = {
        key for key, value in flat(planned.settings.dump()).items() if flat(plain(name, planned)).get(key) != value
    }
    assert changed <= {
        *("train.epochs", "train.schedule.milestones", "train.schedule.epoch_offset", "finetune.epochs"),
        *("data.train_per_class", "data.test_per_class"),
    }
    # One thread: the tests share the cores.
    settings = planned.settings.model_copy(update={"runtime": replace(planned.settings.runtime, threads=1)})
    dataset = load_dataset(settings, None, print) if "CSCCT_DATA" in os.environ else generated(settings)
    listener = Silent()
    result = execute(complete(settings, dataset), dataset, RunFolder(tmp_path / "run"), listener, print)
    assert result["status"] == "finished"
    assert [len(task["classes"]) for task in result["tasks"]] == [cell.B] + [cell.C] * ((100 - cell.B) // cell.C)
    assert {"csc", "ct"} & set(listener.epochs[-1]["losses"]) <= set(planned.settings.loss)
    assert listener.epochs[-1]["lr"] > 0


def plain(name: str, planned: PlannedRun) -> dict[str, Any]:
    """The same run of the plan without overrides."""
    (same,) = [run for _, run in plan(name, seeds=(1,)) if run.name == planned.name]
    return same.settings.dump()
