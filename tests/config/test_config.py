"""Settings: layers, validation and error messages."""

from pathlib import Path

import pytest
import yaml

from conftest import settings_for
from cscct.config import known_keys, resolve, tuned_for
from cscct.config.renames import RENAMED, RENAMED_VALUES, with_new_names
from cscct.errors import UserError
from cscct.methods import METHODS
from cscct.yamltext import flatten, nested, parse_override, parse_yaml, read_config

DATASETS = ("digits", "cifar100", "imagenet-subset", "folder")


@pytest.mark.parametrize(
    ("dataset", "recipe"), [*((d, "released") for d in DATASETS), *((d, "printed") for d in DATASETS[1:3])]
)
def test_dumped_settings_resolve_to_themselves(dataset: str, recipe: str) -> None:
    assert len(METHODS) >= 5
    for method in METHODS:
        addon = "" if not METHODS[method].trains else "+ct" if METHODS[method].grows else "+cscct"
        name = f"{method}{addon}"
        settings = settings_for(name, dataset, recipe=recipe)
        again = resolve(config=yaml.safe_load(yaml.safe_dump(settings.dump())))
        assert again == settings
        assert again.dump() == settings.dump()


ICARL_BCE = {
    "network.head": "linear",
    "network.relu_head": True,
    "network.backbone": "podnet-resnet",
    "train.lr": 2.0,
    "train.weight_decay": 5e-5,
    "train.epochs": 70,
    "train.schedule.milestones": [49, 63],
    "train.schedule.factor": 0.2,
}


def test_recipe_of_icarl_bce() -> None:
    """The recipes of the methods of the paper are tested in tests/paper/test_cells.py."""
    resolved = flatten(settings_for("icarl-bce", "cifar100").dump())
    assert {key: resolved[key] for key in ICARL_BCE} == ICARL_BCE


def test_overrides_win_and_keep_their_types() -> None:
    settings = settings_for("lucir+cscct", "digits", "train.lr=1e-3", "loss.ct.form=batchmean", "memory.per_class=7")
    assert (settings.train.lr, settings.loss["ct"].form, settings.memory.per_class) == (1e-3, "batchmean", 7)
    assert settings_for("lucir", "digits", "train.lr=2").train.lr == 2
    assert settings_for("lucir", "digits", "loss.margin_ranking=null").loss["margin_ranking"] is None
    assert "margin_ranking" not in {t.name for t in settings_for("lucir", "digits", "loss.margin_ranking=").terms}
    assert settings_for("podnet", "digits", "finetune=null").finetune is None


def test_milestones_scale_with_the_epochs() -> None:
    assert settings_for("lucir", "cifar100", "train.epochs=20").train.schedule.milestones == (10, 15)
    overrides = ("train.epochs=20", "train.schedule.milestones=[5]")
    assert settings_for("lucir", "cifar100", *overrides).train.schedule.milestones == (5,)
    dumped = settings_for("lucir", "cifar100", "train.epochs=20").dump()
    assert resolve(config=dumped).train.schedule.milestones == (10, 15)  # and are not scaled a second time
    shorter = resolve(config=dumped, overrides=[parse_override("train.epochs=8")])
    assert shorter.train.schedule.milestones == (4, 6)
    for epochs in (1, 2, 3):  # the released schedule runs one epoch early; the first keeps the full rate all the same
        stage = settings_for("lucir", "cifar100", f"train.epochs={epochs}").train
        assert stage.schedule.rate(stage.lr, 0, epochs) == 0.1


def test_complete_config_with_another_method() -> None:
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
    ("sets", "parts"),
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
        (["network.proxies_per_class=2"], ["network.proxies_per_class is 2", "cosine"]),
        (["memory.herding=herd"], ["no form of herding 'herd'", "official, icarl"]),
        (["memory.store=logit"], ["memory.store", "did you mean 'logits'"]),
        (["memory.held_back=1"], ["memory.held_back"]),
        (["loss.logit_replay.weight=1"], ["memory.store"]),
        (["train.optimizer=AdmW"], ["train.optimizer", "did you mean 'adamw'"]),
        (["train.optimizer=LBFGS"], ["train.optimizer lbfgs is not supported", "several times per step", "sgd, adamw"]),
        (["train.optimizer=SparseAdam"], ["train.optimizer sparseadam is not supported", "sparse gradients"]),
        (["finetune.epochs=1", "finetune.optimizer=x"], ["finetune.optimizer"]),
        (["train.optimizer_options.lr=1"], ["train.optimizer_options.lr is not an option: set train.lr"]),
        (["finetune.epochs=1", "finetune.optimizer_options={momentum: 0}"], ["set finetune.momentum"]),
        (["train.optimizer_options.eps=.nan"], ["train.optimizer_options.eps is nan: must be a finite number"]),
        (["train.optimizer_options.betas=[0.9, [1]]"], ["train.optimizer_options.betas is", "or a list of these"]),
        (["train.optimizer_options.betas.a=1"], ["train.optimizer_options.betas is {'a': 1}"]),
        (["train.optimizer_options=3"], ["train.optimizer_options is 3"]),
        (["loss.less_forget.weight_scaling=sqrt"], ["loss.less_forget.weight_scaling", "sqrt_old_over_new"]),
        (["network.imprint=kmeans"], ["proxies"]),
        (["protocol.base=0"], ["protocol.base is 0"]),
        (["protocol.base=11"], ["B (protocol.base) is 11", "10 classes"]),
        (["protocol.step=99"], ["C (protocol.step) is 99"]),
        (["protocol.tasks=[3, 1, 4]"], ["protocol.tasks has 8 classes", "10 are learned", "last task needs 6"]),
        (["protocol.tasks=[9, 1, 4]"], ["protocol.tasks has 14 classes", "10 are learned"]),
        (["protocol.tasks=[2, 2]", "data.classes=4"], []),
        (["protocol.tasks=[[0, 1], [0, 2]]"], ["protocol.tasks", "class 0 occurs twice"]),
        (["protocol.tasks=[5, [a]]"], ["protocol.tasks", "list of class counts"]),
        (["protocol.tasks=[5, 0, 5]"], ["protocol.tasks", "list of class counts"]),
        (["protocol.tasks=[5, 5]", "protocol.base=5"], ["B (protocol.base) and protocol.tasks"]),
        (["data.classes=11"], ["data.classes is 11"]),
        (["data.order=podnet-1"], ["podnet-1", "100 classes"]),
        (["data.order=[0,1,1]"], ["different classes"]),
        (["loss.cross_entropy=null"], ["first task"]),
        (["seed=-1"], ["seed is -1"]),
        (["protocol.base=11", "seed=-1", "train.lr=x", "loss.foo.weight=1"], ["4 problems", "B (", "seed", "'foo'"]),
    ],
)
def test_user_errors(sets: list[str], parts: list[str]) -> None:
    if not parts:
        settings_for("lucir+ct", "digits", *sets)
        return
    with pytest.raises(UserError) as caught:
        settings_for("lucir+ct", "digits", *sets)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_addons_are_selected_by_name() -> None:
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
    for text, message in (
        ("a: 1\nb: [", "line [23]"),
        ("- 1", "key: value"),
        ("a: 1\na: 2", "repeated"),
        ("\x00", "YAML"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
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


def test_old_names_of_settings_are_accepted() -> None:
    assert len(RENAMED) == 16
    for old, new in RENAMED.items():
        old, new = old.replace("*", "csc"), new.replace("*", "csc")
        assert flatten(with_new_names(nested(old, 1))) == {new: 1}
        assert new.startswith("loss.") or new in known_keys()
    for (name, old_value), value in RENAMED_VALUES.items():
        assert flatten(with_new_names(nested(name, old_value))) == {name: value}
    overrides = [parse_override("loss.csc.growth=sqrt_old_over_new"), parse_override("data.cache=40")]
    settings = resolve("lucir+cscct", "digits", overrides=overrides).dump()
    assert settings["loss"]["csc"]["weight_scaling"] == "sqrt_old_over_new"
    assert settings["data"]["resize_cache_px"] == 40
