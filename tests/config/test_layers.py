"""What a backbone that comes with weights changes of the defaults."""

from __future__ import annotations

from cscct.config import Settings, resolve
from cscct.yamltext import parse_override

LITE = "network.backbone=efficientnet-lite0"


def settings(method: str, dataset: str, *sets: str) -> Settings:
    return resolve(method, dataset, overrides=[parse_override(text) for text in sets])


def test_a_pretrained_backbone_brings_its_settings() -> None:
    found = settings("icarl-bce+cscct", "folder", LITE)
    assert found.data.transform.size == 224
    assert found.data.transform.mean == found.data.transform.std == (0.5,)
    assert (found.network.train_from, found.network.batch_norm) == (5, "frozen")
    assert found.train.lr == 0.003  # not the 1.0 that the preset has for this method
    assert "csc" in found.loss
    assert settings("icarl", "folder", "network.backbone=efficientnet-lite2").data.transform.size == 260


def test_what_the_user_sets_wins() -> None:
    found = settings("lucir", "folder", LITE, "data.transform.size=96", "network.train_from=0", "train.epochs=3")
    assert (found.data.transform.size, found.network.train_from, found.train.epochs) == (96, 0, 3)
    assert found.train.schedule.kind == "cosine"


def test_images_in_memory_keep_their_size() -> None:
    found = settings("lucir", "cifar100", LITE)
    assert found.data.transform.size is None
    assert found.network.train_from == 5


def test_without_pretrained_weights_nothing_changes() -> None:
    plain, fresh = settings("lucir", "folder"), settings("lucir", "folder", LITE, "network.pretrained=false")
    assert plain.train == fresh.train
    assert plain.data == fresh.data
    assert plain.network.train_from == fresh.network.train_from == 0


def test_the_config_of_a_run_is_taken_as_it_is() -> None:
    first = settings("lucir", "folder", LITE, "network.train_from=2", "train.lr=0.5")
    assert resolve(config=first.dump()) == first
