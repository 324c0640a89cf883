"""Small scales of the experiments of the paper."""

from pathlib import Path

import pytest

from cscct.config import preset_layers
from cscct.paper.cells import Cell, Request, find, paper_results, plan_result
from cscct.paper.scales import SCALES, USUAL_BATCH
from cscct.studies.plan import PlannedRun

NAMES = tuple(paper_results())
SMALL = [name for name, scale in SCALES.items() if scale is not None]


def plan(name: str, scale: str, recipe: str = "released") -> list[tuple[Cell, PlannedRun]]:
    return plan_result(find(name), Request(scale, recipe, seeds=(1,)), Path("nowhere"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("scale", "classes", "tasks"),
    [("cpu", 20, 6), ("cpu-pretrained", 100, 6)],
)
def test_sizes_of_small_scales(name: str, scale: str, classes: int, tasks: int) -> None:
    for cell, planned in plan(name, scale):
        settings = planned.settings
        base, step = settings.protocol.base, settings.protocol.step
        assert settings.dataset == "cifar100"
        assert settings.data.classes is not None
        assert base is not None
        assert step is not None
        assert settings.data.classes >= classes
        assert 1 + (settings.data.classes - base) // step >= tasks
        assert (settings.data.classes - base) % step == 0
        assert (base == step) == (cell.B == cell.C)
        assert settings.runtime.threads == 1
        balanced = settings.finetune.epochs if settings.finetune else 0
        spec = SCALES[scale]
        assert spec.epochs is None or settings.train.epochs + balanced == spec.epochs
        assert settings.data.train_per_class == spec.images[step]
        assert (settings.data.order == "seed") == (scale == "cpu-pretrained")
        assert settings.method == cell.method


def test_summaries_of_small_scales() -> None:
    for name, scale in SCALES.items():
        if scale is not None:
            assert f"{scale.classes} classes of CIFAR-100" in scale.summary(), name
            assert scale.network in scale.summary()


@pytest.mark.parametrize("recipe", ["released", "printed"])
@pytest.mark.parametrize("scale", SMALL)
@pytest.mark.parametrize("name", ["table1", "table2", "s1"])
def test_learning_rates_follow_the_batch_sizes(name: str, scale: str, recipe: str) -> None:
    """The supplement's linear rule, in training and in the balanced stage."""
    spec = SCALES[scale]
    for cell, run in plan(name, scale, recipe):
        preset = preset_layers(cell.base, "cifar100", recipe, spec.settings)
        train, balanced = run.settings.train, run.settings.finetune
        assert train.batch_size == 128 * cell.batch_size / USUAL_BATCH[cell.dataset] / spec.shrink
        rate = spec.lr / 128 if spec.lr else preset["train"]["lr"] / preset["train"]["batch_size"]
        assert train.lr / train.batch_size == pytest.approx(rate)
        if balanced is not None:
            stage = preset["finetune"]
            assert balanced.batch_size == 128 / spec.shrink
            assert balanced.lr / balanced.batch_size == pytest.approx(stage["lr"] / stage["batch_size"])


@pytest.mark.parametrize("scale", SMALL)
def test_small_scales_have_no_offset(scale: str) -> None:
    """Of 160 epochs one is lost in the rounding of so few."""
    for _, run in plan("table1", scale):
        assert run.settings.train.schedule.epoch_offset == 0
        assert all(milestone >= 1 for milestone in run.settings.train.schedule.milestones)
