"""From a study to a list of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cscct.errors import UserError
from cscct.studies.grid import group_name, parse_study, plan_comparison, plan_study
from cscct.studies.plan import PlannedRun
from cscct.yamltext import parse_override, parse_yaml


def plan(text: str, *sets: str) -> list[PlannedRun]:
    study = parse_study(parse_yaml(text, "study.yaml"), "study.yaml")
    return plan_study(study, Path("out"), [parse_override(one) for one in sets])


def test_every_combination_once() -> None:
    found = plan("""
dataset: cifar100
methods: [lucir, lucir+csc+ct]
seeds: [1, 2]
set: {train.epochs: 20, memory: {herding: icarl}}
grid:
  protocol: [{base: 50, step: 5}, {base: 5, step: 5}]
  memory.per_class: [10, 20, 40]
""")
    assert len({one.name for one in found}) == len(found) == 2 * 2 * 3 * 2
    keys = {(s.method, s.protocol.base, s.memory.per_class, s.seed) for s in (one.settings for one in found)}
    assert len(keys) == 24
    assert {one.settings.method for one in found} == {"lucir", "lucir+cscct"}
    assert all(one.settings.train.epochs == 20 for one in found)
    assert all(one.settings.memory.herding == "icarl" for one in found)
    assert found[0].group == "lucir_protocol-base50-step5_memory.per_class-10"
    assert found[0].folder.path == Path("out") / "lucir_protocol-base50-step5_memory.per_class-10_seed1"


def test_an_axis_of_ct_does_not_repeat_the_bare_method() -> None:
    found = plan("""
dataset: digits
methods: [lucir, lucir+ct]
seeds: [3]
grid: {loss.ct.form: [official, batchmean], loss.ct.weight: [1.5, 6]}
""")
    assert found[0].group == "lucir"
    assert len(found) == 1 + 4
    assert {one.settings.loss["ct"].form for one in found[1:]} == {"official", "batchmean"}


@pytest.mark.parametrize(("recipe", "rates"), [("released", [0.1, 0.2, 0.8]), ("printed", [0.4, 0.8, 3.2])])
def test_linear_rate(recipe: str, rates: list[float]) -> None:
    text = f"""
dataset: cifar100
methods: [lucir]
seeds: [1]
recipe: {recipe}
grid: {{train.batch_size: [128, 256, 1024]}}
"""
    assert [one.settings.train.lr for one in plan(text)] == [rates[0]] * 3
    assert [one.settings.train.lr for one in plan(text + "linear_lr: true")] == pytest.approx(rates)
    assert [one.settings.train.lr for one in plan(text + "linear_lr: true", "train.lr=0.03")] == [0.03] * 3


def test_a_recipe_can_vary() -> None:
    found = plan("{dataset: cifar100, methods: [lucir], seeds: [1], grid: {recipe: [released, printed]}}")
    assert [(one.settings.recipe, one.settings.train.lr) for one in found] == [("released", 0.1), ("printed", 0.4)]


def test_b_and_c_by_their_short_names() -> None:
    found = plan("{dataset: cifar100, methods: [lucir], seeds: [1], set: {C: 5}, grid: {B: [50, 5]}}")
    assert [(one.settings.protocol.base, one.settings.protocol.step) for one in found] == [(50, 5), (5, 5)]
    assert found[0].group == "lucir_B-50"


def test_names_are_for_folders() -> None:
    assert group_name("lucir", {"data.order": [3, 1, 2], "finetune": None}) == "lucir_data.order-3-1-2_finetune-None"
    assert "/" not in group_name("lucir", {"a": "x/../y"})
    long = [group_name("lucir", {"data.order": [*range(100), last]}) for last in (1, 2)]
    assert long[0] != long[1]
    assert all(len(name) < 140 for name in long)


@pytest.mark.parametrize(
    ("study", "words"),
    [
        ("{methods: [lucir]}", "'dataset' is missing"),
        ("{dataset: digits, methods: lucir}", "methods is 'lucir'"),
        ("{dataset: digits, methods: []}", "methods is \\[\\]"),
        ("{dataset: digits, methods: [lucir], seedz: [1]}", "there is no 'seedz' in a study.*did you mean 'seeds'"),
        ("{dataset: digits, methods: [lucir, lucir]}", "methods names 'lucir' twice"),
        ("{dataset: digits, methods: [lucir], grid: {seed: [1]}}", "seed is not a setting of the grid.*`seeds`"),
        ("{dataset: digits, methods: [lucir], grid: {train.epochs: 3}}", "grid.train.epochs is 3"),
        ("{dataset: digits, methods: [lucir], grid: {train.epoch: [3]}}", "no setting train.epoch .*train.epochs"),
        ("{dataset: digits, methods: [lucri]}", "did you mean 'lucir'"),
        ("{dataset: digits, methods: [lucir], grid: {loss.ct.weight: [1]}}", "none of lucir has that loss"),
        ("{dataset: digits, methods: [lucir], set: {loss.ct.weight: 1}}", "loss.ct is set, but none"),
        ("{dataset: digits, methods: [lucir], recipe: old}", "old"),
    ],
)
def test_mistakes(study: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        plan(study)


def test_the_rate_of_the_balanced_stage_follows_its_batch_too() -> None:
    text = "{dataset: cifar100, methods: [podnet], seeds: [1], set: {finetune.batch_size: 32}, linear_lr: true}"
    (run,) = plan(text)
    assert run.settings.finetune is not None
    assert run.settings.finetune.lr == pytest.approx(0.05 / 4)
    assert run.settings.train.lr == 0.1


def test_a_comparison_is_a_study_without_a_grid() -> None:
    found = plan_comparison(["lucir", "lucir+csc+ct"], "digits", [1, 3], Path("out"))
    assert [run.name for run in found] == [
        "lucir-seed1",
        "lucir-seed3",
        "lucir+cscct-seed1",
        "lucir+cscct-seed3",
    ]  # as version 0.2 called them
    assert {run.settings.dataset for run in found} == {"digits"}


def test_the_config_of_a_comparison_is_no_override() -> None:
    config: dict[str, Any] = {
        "recipe": "printed",
        "dataset": "cifar100",
        "method": "podnet",
        "loss": {"csc": {"weight": 7.0}},
    }
    found = plan_comparison(
        ["lucir", "lucir+csc"], "cifar100", [1], Path("out"), config={**config, "train": {"epochs": 3}}
    )
    assert [(run.settings.recipe, run.settings.dataset, run.settings.train.epochs) for run in found] == [
        ("printed", "cifar100", 3)
    ] * 2
    assert [run.settings.method for run in found] == ["lucir", "lucir+csc"]
    assert found[1].settings.loss["csc"].weight == 7.0
    stronger = {"train": {"epochs": 4}}
    del config["recipe"]
    methods = ["lucir", "lucir+csc"]
    (first, *_) = plan_comparison(methods, "digits", [1], Path("out"), config=config, overrides=[stronger])
    assert (first.settings.dataset, first.settings.train.epochs) == ("digits", 4)


@pytest.mark.parametrize("methods", [["lucir"], ["lucir", "lucir"], ["lucir+csc+ct", "lucir+cscct"], []])
def test_a_comparison_needs_two_methods(methods: list[str]) -> None:
    with pytest.raises(UserError, match=r"two or more methods.*`cscct run "):
        plan_comparison(methods, "digits", [1], Path("out"))


def test_overrides_reach_every_run() -> None:
    found = plan("{dataset: digits, methods: [lucir, podnet], seeds: [1]}", "train.epochs=2")
    epochs: list[Any] = [one.settings.train.epochs for one in found]
    assert epochs == [2, 2]
