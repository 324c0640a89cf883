"""Studies as lists of runs."""

from pathlib import Path
from typing import Any

import pytest

from cscct.errors import UserError
from cscct.studies.grid import group_name, parse_study, plan_comparison, plan_study
from cscct.studies.plan import PlannedRun
from cscct.yamltext import parse_override, parse_yaml


def plan(text: str, *sets: str) -> list[PlannedRun]:
    study = parse_study(parse_yaml(text, "study.yaml"), "study.yaml")
    return plan_study(study, Path("out"), [parse_override(text) for text in sets])


def test_every_combination_once() -> None:
    runs = plan("""
dataset: cifar100
methods: [lucir, lucir+csc+ct]
seeds: [1, 2]
set: {train.epochs: 20, memory: {herding: icarl}}
grid:
  protocol: [{base: 50, step: 5}, {base: 5, step: 5}]
  memory.per_class: [10, 20, 40]
""")
    assert len({run.name for run in runs}) == len(runs) == 2 * 2 * 3 * 2
    keys = {(s.method, s.protocol.base, s.memory.per_class, s.seed) for s in (run.settings for run in runs)}
    assert len(keys) == 24
    assert {run.settings.method for run in runs} == {"lucir", "lucir+cscct"}
    assert all(run.settings.train.epochs == 20 for run in runs)
    assert all(run.settings.memory.herding == "icarl" for run in runs)
    assert runs[0].group == "lucir_protocol-base50-step5_memory.per_class-10"
    assert runs[0].folder.path == Path("out") / "lucir_protocol-base50-step5_memory.per_class-10_seed1"


def test_settings_of_ct_do_not_repeat_the_method_without_it() -> None:
    runs = plan("""
dataset: digits
methods: [lucir, lucir+ct]
seeds: [3]
grid: {loss.ct.form: [official, batchmean], loss.ct.weight: [1.5, 6]}
""")
    assert runs[0].group == "lucir"
    assert len(runs) == 1 + 4
    assert {run.settings.loss["ct"].form for run in runs[1:]} == {"official", "batchmean"}


@pytest.mark.parametrize(("recipe", "rates"), [("released", [0.1, 0.2, 0.8]), ("printed", [0.4, 0.8, 3.2])])
def test_linear_rate(recipe: str, rates: list[float]) -> None:
    text = f"""
dataset: cifar100
methods: [lucir]
seeds: [1]
recipe: {recipe}
grid: {{train.batch_size: [128, 256, 1024]}}
"""
    assert [run.settings.train.lr for run in plan(text)] == [rates[0]] * 3
    assert [run.settings.train.lr for run in plan(text + "linear_lr: true")] == pytest.approx(rates)
    assert [run.settings.train.lr for run in plan(text + "linear_lr: true", "train.lr=0.03")] == [0.03] * 3


def test_a_recipe_can_vary() -> None:
    runs = plan("{dataset: cifar100, methods: [lucir], seeds: [1], grid: {recipe: [released, printed]}}")
    assert [(run.settings.recipe, run.settings.train.lr) for run in runs] == [("released", 0.1), ("printed", 0.4)]


def test_b_and_c_are_abbreviations() -> None:
    runs = plan("{dataset: cifar100, methods: [lucir], seeds: [1], set: {C: 5}, grid: {B: [50, 5]}}")
    assert [(run.settings.protocol.base, run.settings.protocol.step) for run in runs] == [(50, 5), (5, 5)]
    assert runs[0].group == "lucir_B-50"


def test_group_names_are_folder_names() -> None:
    assert group_name("lucir", {"data.order": [3, 1, 2], "finetune": None}) == "lucir_data.order-3-1-2_finetune-None"
    assert "/" not in group_name("lucir", {"a": "x/../y"})
    long = [group_name("lucir", {"data.order": [*range(100), last]}) for last in (1, 2)]
    assert long[0] != long[1]
    assert all(len(name) < 140 for name in long)


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ("{methods: [lucir]}", "'dataset' is missing"),
        ("{dataset: digits, methods: lucir}", "methods is 'lucir'"),
        ("{dataset: digits, methods: []}", "methods is \\[\\]"),
        ("{dataset: digits, methods: [lucir], seedz: [1]}", "a study has no key 'seedz'.*did you mean 'seeds'"),
        ("{dataset: digits, methods: [lucir, lucir]}", "methods contains 'lucir' twice"),
        ("{dataset: digits, methods: [lucir], grid: {seed: [1]}}", "seed cannot be in `set` or `grid`: use `seeds`"),
        ("{dataset: digits, methods: [lucir], grid: {train.epochs: 3}}", "grid.train.epochs is 3"),
        ("{dataset: digits, methods: [lucir], grid: {train.epoch: [3]}}", "no setting train.epoch .*train.epochs"),
        ("{dataset: digits, methods: [lucri]}", "did you mean 'lucir'"),
        ("{dataset: digits, methods: [lucir], grid: {loss.ct.weight: [1]}}", "none of lucir has that loss"),
        ("{dataset: digits, methods: [lucir], set: {loss.ct.weight: 1}}", "loss.ct is set, but none"),
        ("{dataset: digits, methods: [lucir], recipe: old}", "old"),
    ],
)
def test_invalid_studies_are_rejected(study: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(study)


def test_the_rate_of_the_balanced_stage_follows_its_batch_too() -> None:
    text = "{dataset: cifar100, methods: [podnet], seeds: [1], set: {finetune.batch_size: 32}, linear_lr: true}"
    (run,) = plan(text)
    assert run.settings.finetune.lr == pytest.approx(0.05 / 4)
    assert run.settings.train.lr == 0.1


def test_a_comparison_is_a_study_without_a_grid() -> None:
    runs = plan_comparison(["lucir", "lucir+csc+ct"], "digits", [1, 3], Path("out"))
    assert [run.name for run in runs] == [
        "lucir-seed1",
        "lucir-seed3",
        "lucir+cscct-seed1",
        "lucir+cscct-seed3",
    ]  # as version 0.2 called them
    assert {run.settings.dataset for run in runs} == {"digits"}


def test_the_config_of_a_comparison_is_no_override() -> None:
    config: dict[str, Any] = {
        "recipe": "printed",
        "dataset": "cifar100",
        "method": "podnet",
        "loss": {"csc": {"weight": 7.0}},
    }
    runs = plan_comparison(
        ["lucir", "lucir+csc"], "cifar100", [1], Path("out"), config={**config, "train": {"epochs": 3}}
    )
    assert [(run.settings.recipe, run.settings.dataset, run.settings.train.epochs) for run in runs] == [
        ("printed", "cifar100", 3)
    ] * 2
    assert [run.settings.method for run in runs] == ["lucir", "lucir+csc"]
    assert runs[1].settings.loss["csc"].weight == 7.0
    stronger = {"train": {"epochs": 4}}
    del config["recipe"]
    methods = ["lucir", "lucir+csc"]
    (first, *_) = plan_comparison(methods, "digits", [1], Path("out"), config=config, overrides=[stronger])
    assert (first.settings.dataset, first.settings.train.epochs) == ("digits", 4)


@pytest.mark.parametrize("methods", [["lucir"], ["lucir", "lucir"], ["lucir+csc+ct", "lucir+cscct"], []])
def test_a_comparison_needs_two_methods(methods: list[str]) -> None:
    with pytest.raises(UserError, match=r"at least two methods.*`cscct run "):
        plan_comparison(methods, "digits", [1], Path("out"))
