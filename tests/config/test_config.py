"""Settings: layers, strictness, sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import settings_for
from cscct.config import known_keys, resolve, tuned_for
from cscct.errors import UserError
from cscct.methods import METHODS
from cscct.yamltext import parse_override, parse_yaml, read_config

DATASETS = ("digits", "cifar100", "imagenet-subset", "folder")


@pytest.mark.parametrize(
    ("dataset", "recipe"), [*((d, "released") for d in DATASETS), *((d, "printed") for d in DATASETS[1:3])]
)
def test_every_method_resolves_on_every_dataset_and_its_dump_resolves_to_itself(dataset: str, recipe: str) -> None:
    assert len(METHODS) >= 5
    for method in METHODS:
        name = f"{method}+cscct" if METHODS[method].trains else method
        settings = settings_for(name, dataset, recipe=recipe)
        again = resolve(config=yaml.safe_load(yaml.safe_dump(settings.dump())))
        assert again == settings
        assert again.dump() == settings.dump()


def flat(settings: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}

    def walk(node: dict[str, Any], path: str) -> None:
        for key, value in node.items():
            if isinstance(value, dict):
                walk(value, f"{path}{key}.")
            else:
                out[path + key] = value

    walk(settings.dump(), "")
    return out


CIFAR = {
    "protocol.base": 50,
    "protocol.step": 5,
    "data.order": "seed-1993",
    "data.transform.padding": 4,
    "data.transform.flip": True,
    "memory.policy": "per_class",
    "memory.per_class": 20,
    "memory.herding": "official",
    "train.epochs": 160,
    "train.batch_size": 128,
    "train.lr": 0.1,
    "train.momentum": 0.9,
    "train.weight_decay": 5e-4,
    "loss.csc.weight": 3.0,
    "loss.ct.weight": 1.5,
    "loss.ct.temperature": 2.0,
    "loss.ct.form": "official",
}
LUCIR_NET = {
    "network.backbone": "lucir-resnet",
    "network.depth": 32,
    "network.head": "cosine",
    "network.imprint": "mean",
    "network.freeze_old": True,
    "data.transform.brightness": 0.0,
    "data.transform.mean": [0.5071, 0.4866, 0.4409],
    "data.transform.std": [0.2009, 0.1984, 0.2023],
    "train.schedule.kind": "multistep",
    "train.schedule.milestones": [80, 120],
    "train.schedule.factor": 0.1,
    "train.schedule.offset": 1,
    "train.clamp_gradients": None,
    "finetune": None,
    "predict.nme_aug": "bgr",
}
RECIPES = {
    ("lucir+cscct", "cifar100"): {
        **CIFAR,
        **LUCIR_NET,
        "loss.less_forget.weight": 5.0,
        "loss.less_forget.growth": "sqrt_old_over_new",
        "loss.margin_ranking.k": 2,
        "loss.margin_ranking.margin": 0.5,
        "loss.margin_ranking.weight": 1.0,
        "predict.headline": "classifier",
    },
    ("icarl+cscct", "cifar100"): {
        **CIFAR,
        **LUCIR_NET,
        "loss.logit_distillation.weight": 1.0,
        "loss.logit_distillation.temperature": 2.0,
        "predict.headline": "nme",
    },
    ("podnet+cscct", "cifar100"): {
        **CIFAR,
        "network.backbone": "podnet-resnet",
        "network.head": "proxies",
        "network.rows_per_class": 10,
        "network.imprint": "kmeans",
        "data.transform.brightness": 63 / 255,
        "data.transform.mean": [0.5071, 0.4867, 0.4408],
        "data.transform.std": [0.2675, 0.2565, 0.2761],
        "train.schedule.kind": "cosine",
        "train.schedule.offset": -1,
        "train.clamp_gradients": 5.0,
        "loss.pod_spatial.weight": 3.0,
        "loss.pod_flat.weight": 1.0,
        "loss.pod_flat.growth": "sqrt_seen_over_new",
        "loss.nca.form": "official",
        "finetune.epochs": 20,
        "finetune.lr": 0.05,
        "finetune.weight_decay": 5e-4,
        "finetune.schedule.kind": "constant",
        "finetune.batch_norm": "drift",
        "finetune.clamp_gradients": 5.0,
        "predict.headline": "classifier",
        "predict.nme_aug": "hflip",
    },
    ("icarl-bce", "cifar100"): {
        "network.head": "linear",
        "network.relu_head": True,
        "network.backbone": "podnet-resnet",
        "train.lr": 2.0,
        "train.weight_decay": 5e-5,
        "train.epochs": 70,
        "train.schedule.milestones": [49, 63],
        "train.schedule.factor": 0.2,
    },
    ("lucir+cscct", "imagenet-subset"): {
        "network.backbone": "lucir-resnet18",
        "data.transform.size": 224,
        "data.transform.mean": [0.485, 0.456, 0.406],
        "data.transform.std": [0.229, 0.224, 0.225],
        "train.epochs": 90,
        "train.batch_size": 64,
        "train.lr": 0.02,
        "train.weight_decay": 1e-4,
        "train.schedule.milestones": [30, 60],
        "train.schedule.offset": 0,
        "loss.less_forget.weight": 10.0,
        "finetune": None,
        "predict.nme_aug": "none",
    },
    ("podnet+cscct", "imagenet-subset"): {
        "network.backbone": "podnet-resnet18",
        "train.epochs": 90,
        "train.batch_size": 64,
        "train.lr": 0.05,
        "train.weight_decay": 5e-4,
        "loss.pod_spatial.weight": 8.0,
        "loss.pod_flat.weight": 10.0,
        "finetune.lr": 0.01,
        "predict.nme_aug": "hflip",
    },
}


@pytest.mark.parametrize(("method", "dataset"), RECIPES, ids=" ".join)
def test_released_recipes_value_by_value(method: str, dataset: str) -> None:
    found = flat(settings_for(method, dataset))
    assert {key: found[key] for key in RECIPES[method, dataset]} == RECIPES[method, dataset]


@pytest.mark.parametrize("method", ["lucir+cscct", "icarl+cscct", "podnet+cscct"])
def test_printed_recipe(method: str) -> None:
    found = flat(settings_for(method, "cifar100", recipe="printed"))
    assert (found["train.lr"], found["train.schedule.kind"], found["loss.ct.form"]) == (0.4, "multistep", "paper")
    assert (found["train.schedule.milestones"], found["train.schedule.offset"]) == ([80, 120], 0)
    large = flat(settings_for(method, "imagenet-subset", recipe="printed"))
    assert (large["train.lr"], large["train.batch_size"], large["train.epochs"]) == (0.02, 64, 90)
    assert large["train.schedule.milestones"] == [30, 60]
    assert "ct" not in settings_for(method.split("+")[0], "cifar100", recipe="printed").loss  # tunes, never adds


def test_overrides_win_and_keep_their_types() -> None:
    settings = settings_for("lucir+cscct", "digits", "train.lr=1e-3", "loss.ct.form=batchmean", "memory.per_class=7")
    assert (settings.train.lr, settings.loss["ct"].form, settings.memory.per_class) == (1e-3, "batchmean", 7)
    assert settings_for("lucir", "digits", "train.lr=2").train.lr == 2
    assert settings_for("lucir", "digits", "loss.margin_ranking=null").loss["margin_ranking"] is None
    assert "margin_ranking" not in {t.name for t in settings_for("lucir", "digits", "loss.margin_ranking=").terms}
    assert settings_for("podnet", "digits", "finetune=null").finetune is None


def test_decays_follow_the_epochs_unless_said_otherwise() -> None:
    assert settings_for("lucir", "cifar100", "train.epochs=20").train.schedule.milestones == (10, 15)
    given = ("train.epochs=20", "train.schedule.milestones=[5]")
    assert settings_for("lucir", "cifar100", *given).train.schedule.milestones == (5,)
    dumped = settings_for("lucir", "cifar100", "train.epochs=20").dump()
    assert resolve(config=dumped).train.schedule.milestones == (10, 15)  # and are not scaled a second time
    shorter = resolve(config=dumped, overrides=[parse_override("train.epochs=8")])
    assert shorter.train.schedule.milestones == (4, 6)
    for epochs in (1, 2, 3):  # the released schedule runs one epoch early; the first keeps the full rate all the same
        stage = settings_for("lucir", "cifar100", f"train.epochs={epochs}").train
        assert stage.schedule.rate(stage.lr, 0, epochs) == 0.1


def test_a_whole_config_is_not_mixed_with_another_method() -> None:
    dumped = settings_for("lucir", "cifar100").dump()
    for wrong in ({"method": "icarl"}, {"dataset": "digits"}, {"recipe": "printed"}):
        with pytest.raises(UserError, match="whole run"):
            resolve(**{"config": dumped, **wrong})  # type: ignore[arg-type]
    assert resolve("lucir", "cifar100", config=dumped).method == "lucir"
    for key in ("method", "dataset", "recipe"):
        with pytest.raises(UserError, match=f"{key} is not set with --set"):
            settings_for("lucir", "cifar100", f"{key}=x")
    with pytest.raises(UserError, match="paper says nothing of digits"):
        settings_for("lucir", "digits", recipe="printed")
    for config in ({"method": 3, "dataset": "digits"}, {"method": "lucir", "dataset": ["digits"]}):
        with pytest.raises(UserError, match="must be a name"):
            resolve(config=config)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["train.epoch=3"], ["no setting train.epoch", "'train.epochs'"]),
        (["trian.epochs=3"], ["no setting trian", "train"]),
        (["loss.cct.form=x"], ["no loss 'cct'"]),
        (["loss.ct.form=official"], []),
        (["loss.ct.form=offical"], ["loss.ct.form is 'offical'", "'official'"]),
        (["loss.ct.temp=2"], ["no setting loss.ct.temp", "loss.ct.temperature"]),
        (["loss.ct.temperature=0"], ["loss.ct.temperature"]),
        (["train.lr=abc"], ["train.lr is 'abc'", "number"]),
        (["train.lr=nan"], ["train.lr is nan", "finite"]),
        (["train.lr=-1"], ["train.lr is -1"]),
        (["train.epochs=2.5"], ["train.epochs is 2.5", "integer"]),
        (["train.epochs=0"], ["train.epochs is 0"]),
        (["train.momentum=1"], ["train.momentum"]),
        (["train.schedule.milestones=[]"], ["multistep", "train.schedule.milestones"]),
        (["train.epochs=5", "train.schedule=null"], ["train.schedule"]),
        (["train=null"], ["train"]),
        (["memory.per_class=true"], ["memory.per_class is True"]),
        (["network.depth=9"], ["network.depth", "6n+2"]),
        (["network.backbone=resnet"], ["no backbone 'resnet'", "lucir-resnet"]),
        (["network.head=linaer"], ["no head 'linaer'", "did you mean 'linear'", "network.head is one of"]),
        (["network.imprint=mena"], ["network.imprint", "did you mean 'mean'"]),
        (["network.after_task=align"], ["network.after_task", "align_norms"]),
        (["network.after_task=align_norms"], ["needs network.head positive or linear"]),
        (["network.after_task=correct_bias"], ["needs network.head linear", "memory.held_back"]),
        (["network.rows_per_class=2"], ["network.rows_per_class is 2", "cosine"]),
        (["memory.herding=herd"], ["no form of herding 'herd'", "official, icarl"]),
        (["memory.carry=logit"], ["memory.carry", "did you mean 'logits'"]),
        (["memory.held_back=1"], ["memory.held_back"]),
        (["loss.logit_replay.weight=1"], ["memory.carry"]),
        (["train.optimizer=adam"], ["train.optimizer", "did you mean 'adamw'"]),
        (["finetune.epochs=1", "finetune.optimizer=x"], ["finetune.optimizer"]),
        (["loss.less_forget.growth=sqrt"], ["loss.less_forget.growth", "sqrt_old_over_new"]),
        (["network.imprint=kmeans"], ["proxies"]),
        (["protocol.base=0"], ["protocol.base is 0"]),
        (["protocol.base=11"], ["B (protocol.base) is 11", "10 classes"]),
        (["protocol.step=99"], ["C (protocol.step) is 99"]),
        (["data.classes=11"], ["data.classes is 11"]),
        (["data.order=podnet-1"], ["podnet-1", "100 classes"]),
        (["data.order=[0,1,1]"], ["different classes"]),
        (["loss.cross_entropy=null"], ["first task"]),
        (["seed=-1"], ["seed is -1"]),
        (["protocol.base=11", "seed=-1", "train.lr=x", "loss.foo.weight=1"], ["4 problems", "B (", "seed", "'foo'"]),
    ],
)
def test_mistakes_are_named(sets: list[str], words: list[str]) -> None:
    if not words:
        settings_for("lucir+ct", "digits", *sets)
        return
    with pytest.raises(UserError) as caught:
        settings_for("lucir+ct", "digits", *sets)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_additions_come_by_name() -> None:
    with pytest.raises(UserError, match=r"lucir\+ct"):
        settings_for("lucir", "digits", "loss.ct.form=paper")
    assert settings_for("lucir", "digits", "loss.ct=null").loss["ct"] is None
    assert settings_for("lucir", "digits", "loss.pod_flat.weight=2").loss["pod_flat"].weight == 2
    layers = [parse_override("loss.ct.form=paper"), parse_override("train.lr=1")]
    assert tuned_for(layers, ["lucir", "lucir+ct"]) == [[{"loss": {}}, layers[1]], layers]
    with pytest.raises(UserError, match="none of lucir, lucir\\+csc has it"):
        tuned_for(layers, ["lucir", "lucir+csc"])


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("method: lucir+csc\ndataset: digits\ntrain: {lr: 1e-2}\n")
    assert resolve(config=read_config(path)).train.lr == 0.01
    assert resolve("icarl", "digits", config=read_config(path)).method == "icarl"
    for text, words in (("a: 1\nb: [", "line [23]"), ("- 1", "key: value"), ("a: 1\na: 2", "twice"), ("\x00", "YAML")):
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            read_config(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_config(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match="method and a dataset"):
        resolve(config={"train": {"lr": 1.0}})


def test_overrides_are_parsed() -> None:
    assert parse_override("a.b=[1, 2]") == {"a": {"b": [1, 2]}}
    assert parse_override("a=1e-3") == {"a": 1e-3}
    assert parse_override("a=") == {"a": None}
    assert parse_yaml("a: -1e5\nb: seed-1993\nc: 1e\n", "x") == {"a": -1e5, "b": "seed-1993", "c": "1e"}
    with pytest.raises(UserError, match="KEY=VALUE"):
        parse_override("train.lr")


def test_known_keys_reach_the_leaves() -> None:
    keys = known_keys()
    assert {"train.schedule.milestones", "loss.ct.form", "finetune.batch_norm", "memory.herding"} <= set(keys)
    assert len(keys) > 60
