"""Precedence of settings: presets, methods, pretrained backbones, users."""

from collections.abc import Iterator
from typing import Any

import pytest

from cscct.config import Settings, resolve
from cscct.data.registry import DATASETS
from cscct.methods import METHODS, Method, register
from cscct.yamltext import parse_override

LITE = "network.backbone=efficientnet-lite0"


def settings(method: str, dataset: str, *sets: str) -> Settings:
    return resolve(method, dataset, overrides=[parse_override(text) for text in sets])


def test_settings_of_a_pretrained_backbone() -> None:
    resolved = settings("icarl-bce+cscct", "folder", LITE)
    assert resolved.data.transform.size == 224
    assert resolved.data.transform.mean == resolved.data.transform.std == (0.5,)
    assert (resolved.network.train_from, resolved.network.batch_norm) == (5, "frozen")
    assert resolved.train.lr == 0.003  # not the 1.0 that the preset has for this method
    assert "csc" in resolved.loss
    assert settings("icarl", "folder", "network.backbone=efficientnet-lite2").data.transform.size == 260


def test_user_settings_win() -> None:
    resolved = settings("lucir", "folder", LITE, "data.transform.size=96", "network.train_from=0", "train.epochs=3")
    assert (resolved.data.transform.size, resolved.network.train_from, resolved.train.epochs) == (96, 0, 3)
    assert resolved.train.schedule.kind == "cosine"


def test_images_in_memory_keep_their_size() -> None:
    resolved = settings("lucir", "cifar100", LITE)
    assert resolved.data.transform.size is None
    assert resolved.network.train_from == 5


def test_untrained_backbone_changes_no_settings() -> None:
    plain, fresh = settings("lucir", "folder"), settings("lucir", "folder", LITE, "network.pretrained=false")
    assert plain.train == fresh.train
    assert plain.data == fresh.data
    assert plain.network.train_from == fresh.network.train_from == 0


OWN_SETTINGS: dict[str, Any] = {
    "network": {"backbone": "podnet-resnet", "depth": 14, "head": "cosine"},
    "loss": {"cross_entropy": {}, "less_forget": {"weight": 7.0}},
    "train": {"lr": 0.07, "weight_decay": 0.0},
    "memory": {"per_class": 7},
    "predict": {"predictor": "nme", "nme_aug": "none"},
}


@pytest.fixture(params=["", "lucir", "podnet"], ids=["no preset", "preset of lucir", "preset of podnet"])
def own_method(request: pytest.FixtureRequest) -> Iterator[str]:
    register(Method("own", "a method with settings that presets have too", OWN_SETTINGS, preset_from=request.param))
    yield "own"
    del METHODS["own"]


def test_settings_of_a_method_win_over_presets(own_method: str) -> None:
    assert len(DATASETS) >= 5
    for dataset in DATASETS:
        resolved = settings(own_method, dataset)
        assert (resolved.network.backbone, resolved.network.depth) == ("podnet-resnet", 14)
        assert (resolved.train.lr, resolved.train.weight_decay) == (0.07, 0.0)
        assert resolved.memory.per_class == 7
        assert (resolved.predict.predictor, resolved.predict.nme_aug) == ("nme", "none")
        assert resolved.loss["less_forget"].weight == 7.0
        assert resolved.finetune is None or METHODS[own_method].preset_from == "podnet"
    changed = settings(own_method, "digits", "memory.per_class=3", "train.lr=0.5")
    assert (changed.memory.per_class, changed.train.lr) == (3, 0.5)


def test_settings_of_a_method_win_over_those_of_a_pretrained_backbone(own_method: str) -> None:
    for dataset in DATASETS:
        resolved = settings(own_method, dataset, LITE)
        assert (resolved.train.lr, resolved.train.weight_decay) == (0.07, 0.0)
        assert (resolved.train.epochs, resolved.network.train_from) == (8, 5)  # which the method does not set


def test_the_preset_entry_with_the_name_of_a_method_belongs_to_it() -> None:
    assert METHODS["lucir"].settings["loss"]["less_forget"]["weight"] == 5.0
    assert settings("lucir", "cifar100").loss["less_forget"].weight == 5.0
    assert settings("lucir", "imagenet-subset").loss["less_forget"].weight == 10.0
    assert settings("icarl+balanced", "cifar100").predict.predictor == "classifier"
    assert settings("icarl+balanced", "digits").predict.predictor == "nme"


def test_published_folders_have_the_preset_of_folders() -> None:
    for dataset in ("tiny-imagenet", "cub200"):
        assert settings("lucir", dataset).data.transform == settings("lucir", "folder").data.transform
