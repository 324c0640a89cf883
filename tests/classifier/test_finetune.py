"""Fine-tuning of the classifier's network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from cscct import IncrementalClassifier, UserError
from cscct.classifier import finetune
from cscct.nets import StagedBackbone
from small_models import Colours, pictures

COLOURS = {"red": (200, 60, 60), "blue": (60, 60, 200), "green": (60, 200, 60), "grey": (120, 120, 120)}


def convolution(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return StagedBackbone(convolution(3, 6), [convolution(6, 8), nn.Conv2d(8, 12, 1)], features=12)


def images(*names: str, count: int = 10) -> tuple[NDArray[np.uint8], list[str]]:
    return np.concatenate([pictures(COLOURS[name], count, len(name)) for name in names]), [
        name for name in names for _ in range(count)
    ]


def model(**settings: object) -> IncrementalClassifier:
    return IncrementalClassifier(small_network(), image_size=16, predictor="ncm", **settings)


@pytest.fixture(autouse=True)
def _short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = {
        "network": {"batch_norm": "frozen", "train_from": 1},
        "train": {"epochs": 2, "batch_size": 16, "lr": 0.01},
    }
    monkeypatch.setattr(finetune, "load_preset", lambda name: {"common": preset})


def test_a_kept_fine_tuning_changes_the_network_and_the_statistics() -> None:
    tuned = model(finetune="always", memory_per_class=5).learn(*images("red", "blue"))
    first = tuned.report_.finetune
    assert first is not None
    assert set(first) == {"training_free", "fine_tuned", "kept", "method", "seconds"}
    assert first["kept"]
    old = {name: one.clone() for name, one in tuned._extractor.backbone.state_dict().items()}
    seen: list[str] = []
    tuned.learn(*images("green", "grey"), progress=lambda what, done, total: seen.append(what))
    changed = {name for name, one in tuned._extractor.backbone.state_dict().items() if not torch.equal(one, old[name])}
    assert changed
    assert all(name.startswith("stages.1") for name in changed)  # what lies before network.train_from is frozen
    assert {label: one.count for label, one in tuned.statistics_.items()} == {
        "blue": 5,  # what is kept of the classes learned before
        "red": 5,
        "green": 10,
        "grey": 10,
    }
    assert tuned.tuned_ == ["blue", "red", "green", "grey"]
    assert {count for _, count in tuned.report_.after.values()} == {1, 2}  # the images that were held back
    assert "fine-tuning" in seen
    x = images("red")[0]
    rows = torch.from_numpy(tuned.features([*tuned.exemplars_["red"]]))
    torch.testing.assert_close(tuned.statistics_["red"].rows, rows, atol=1e-4, rtol=1e-4)
    assert tuned.predict(x).shape == (10,)


def test_a_refused_trial_leaves_the_training_free_model(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model().learn(*images("red", "blue")).learn(*images("green"))
    monkeypatch.setattr(finetune, "_percent", lambda confusion: 50.0)  # no better
    tried = model(finetune="auto").learn(*images("red", "blue")).learn(*images("green"))
    assert tried.report_.finetune is not None
    assert not tried.report_.finetune["kept"]
    x = images("red", "green", "grey")[0]
    np.testing.assert_array_equal(tried.predict_proba(x), plain.predict_proba(x))
    assert tried.tuned_ == []
    assert tried.exemplars_ == plain.exemplars_
    assert tried.report_.after == plain.report_.after


def test_nothing_is_trained_where_nothing_can_be_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetune, "_percent", lambda confusion: 100.0)
    monkeypatch.setattr(finetune.Learner, "learn", lambda *_: pytest.fail("it is trained"))
    tried = model(finetune="auto").learn(*images("red", "blue"))
    assert tried.report_.finetune is None
    assert "is mistaken without it" in tried.report_.notes[0]


def test_images_held_back_are_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth image of a class is black; what is drawn for training never is, in any step."""
    drawn = []
    real = finetune.ItemView.train

    def train(self, indices, generator, part=slice(None)):  # type: ignore[no-untyped-def]
        drawn.append(real(self, indices, generator, part))
        return drawn[-1]

    monkeypatch.setattr(finetune.ItemView, "train", train)
    one = model(finetune="always", memory_per_class=7)
    for names in (("red", "blue"), ("green",), ("grey",)):
        x, y = images(*names)
        x[4::5] = 0
        one.learn(x, y)
    assert len(drawn) > 6
    assert min(float(batch.amax(dim=(1, 2, 3)).min()) for batch in drawn) > -0.9  # black is -1


def test_what_stays_in_the_weights_is_told(tmp_path: Path) -> None:
    tuned = model(finetune="always").learn(*images("red", "blue", "green"))
    tuned.save(tmp_path / "m")
    again = IncrementalClassifier.load(tmp_path / "m", backbone=small_network())
    x = images("red", "grey")[0]
    np.testing.assert_array_equal(again.predict_proba(x), tuned.predict_proba(x))
    again.rename({"red": "crimson"})
    with pytest.warns(UserWarning, match="fine-tuned with images of crimson"):
        again.forget("crimson")
    assert "stays" in again.report_.notes[0]


def test_what_cannot_be_tried_is_told_in_a_sentence() -> None:
    without = model(memory_mb=0).learn(*images("red", "blue")).set_params(finetune="auto").learn(*images("green"))
    assert without.report_.finetune is None
    assert "kept images" in without.report_.notes[0]
    with pytest.raises(UserError, match="kept images of the classes learned before"):
        without.set_params(finetune="always").learn(*images("grey"))
    assert without.class_names == ("blue", "red", "green")
    few = model(finetune="auto").learn(*images("red", "blue", count=4))
    assert "needs 5" in few.report_.notes[0]
    assert "no new classes" in few.learn(*images("red")).report_.notes[0]
    with pytest.raises(UserError, match="no network to train"):
        IncrementalClassifier(None, finetune="auto").learn(np.ones((4, 3)), [0, 0, 1, 1])


def test_a_module_without_weights_to_train_is_no_crash() -> None:
    """Its features stay what they are; only the head would learn."""
    same = IncrementalClassifier(Colours(), image_size=16, finetune="auto").learn(*images("red", "blue"))
    assert same.report_.finetune is None or not same.report_.finetune["kept"]
