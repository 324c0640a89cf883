"""Models whose network is trained."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from cscct import IncrementalClassifier, UserError
from cscct.classifier import learning, training
from cscct.data import inputs
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


def model(method: str, **parameters: object) -> IncrementalClassifier:
    return IncrementalClassifier(small_network(), image_size=16, method=method, **parameters)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = {
        "network": {"batch_norm": "frozen", "train_from": 1},
        "train": {"epochs": 2, "batch_size": 16, "lr": 0.01},
    }
    monkeypatch.setattr(training, "load_preset", lambda name: {"common": preset})


@pytest.mark.parametrize("method", ["lucir+cscct", "icarl", "podnet", "wa+cscct", "der++", "bic", "replay"])
def test_every_kind_of_method_learns_in_steps(method: str, tmp_path: Path) -> None:
    trained = model(method, memory_per_class=10).learn(*images("red", "blue"))
    trained.learn(*images("green")).learn(*images("grey"))
    assert trained.class_names == ("blue", "red", "green", "grey")
    assert trained.training_ is not None
    assert trained.training_.tasks == 3
    assert trained.reader_.network.head.classes == 4
    assert {len(kept) for kept in trained.exemplars_.values()} <= set(range(5, 11))
    x = images("red", "green", "grey")[0]
    trained.save(tmp_path / "m")
    again = IncrementalClassifier.load(tmp_path / "m", backbone=small_network())
    np.testing.assert_array_equal(again.predict_proba(x), trained.predict_proba(x))
    again.learn(pictures((200, 200, 60), 10), "yellow")
    assert again.class_names[-1] == "yellow"
    assert again.training_ is not None
    assert again.training_.tasks == 4


def test_training_changes_only_the_trained_stages() -> None:
    trained = model("lucir+cscct", memory_per_class=5).learn(*images("red", "blue"))
    old = {name: tensor.clone() for name, tensor in trained.reader_.network.backbone.state_dict().items()}
    seen: list[str] = []
    trained.learn(*images("green", "grey"), progress=lambda what, done, total: seen.append(what))
    weights = trained.reader_.network.backbone.state_dict()
    changed = {name for name, tensor in weights.items() if not torch.equal(tensor, old[name])}
    assert changed
    assert all(name.startswith("stages.1") for name in changed)  # earlier stages are frozen by network.train_from
    assert trained.tuned_ == ["blue", "red", "green", "grey"]
    assert {count for _, count in trained.report_.after.values()} == {1, 2}  # held-out images
    assert "training" in seen
    figures = trained.report_.training
    assert figures is not None
    assert (figures["method"], figures["kept"]) == ("lucir+cscct", True)
    assert set(figures["accuracy"]) == {"lucir+cscct"}


def test_held_out_images_are_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth image of a class is black; no image that is drawn for training is."""
    drawn = []
    original = inputs._ItemFiles.train

    def train(self, indices, generator, part=slice(None)):  # type: ignore[no-untyped-def]
        drawn.append(original(self, indices, generator, part))
        return drawn[-1]

    monkeypatch.setattr(inputs._ItemFiles, "train", train)
    trained = model("lucir+cscct", memory_per_class=7)
    for names in (("red", "blue"), ("green",), ("grey",)):
        x, y = images(*names)
        x[4::5] = 0
        trained.learn(x, y)
    assert len(drawn) > 6
    assert min(float(batch.amax(dim=(1, 2, 3)).min()) for batch in drawn) > -0.9  # black is -1


@pytest.mark.parametrize("better", ["lda", "lucir+cscct"])
def test_auto_keeps_the_larger_likelihood(better: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = model("lda").learn(*images("red", "blue")).learn(*images("green"))
    original = learning._held_out
    trained_likelihood = 10.0 if better != "lda" else -10.0

    def evaluation(*arguments):  # type: ignore[no-untyped-def]
        result = original(*arguments)
        return learning._HeldOut(result.evaluation, trained_likelihood if evaluation.trained else 0.0)  # type: ignore[attr-defined]

    def evaluated(self, *arguments):  # type: ignore[no-untyped-def]
        evaluation.trained = True  # type: ignore[attr-defined]
        try:
            return method(self, *arguments)
        finally:
            evaluation.trained = False  # type: ignore[attr-defined]

    evaluation.trained = False  # type: ignore[attr-defined]
    method = learning.TrainingStep._evaluated
    monkeypatch.setattr(learning, "_held_out", evaluation)
    monkeypatch.setattr(learning.TrainingStep, "_evaluated", evaluated)
    automatic = model("auto").learn(*images("red", "blue")).learn(*images("green"))
    figures = automatic.report_.training
    assert figures is not None
    assert set(figures["log_likelihood"]) == set(figures["accuracy"]) == {"lda", "lucir+cscct"}
    assert figures["kept"] == (better != "lda")
    x = images("red", "green", "grey")[0]
    same = np.array_equal(automatic.predict_proba(x), plain.predict_proba(x))
    assert same == (better == "lda")
    assert (automatic.tuned_ == []) == (better == "lda")
    if better == "lda":
        assert automatic.exemplars_ == plain.exemplars_
        assert automatic.report_.after == plain.report_.after


def test_auto_compares_by_real_likelihoods() -> None:
    automatic = model("auto").learn(*images("red", "blue", "green"))
    figures = automatic.report_.training
    assert figures is not None
    best = max(figures["log_likelihood"], key=lambda name: figures["log_likelihood"][name])
    assert figures["kept"] == (best == "lucir+cscct")


def test_traces_in_the_weights_are_reported(tmp_path: Path) -> None:
    trained = model("lucir+cscct").learn(*images("red", "blue", "green"))
    trained.save(tmp_path / "m")
    again = IncrementalClassifier.load(tmp_path / "m", backbone=small_network())
    again.rename({"red": "crimson"})
    with pytest.warns(UserWarning, match="trained on images of crimson"):
        again.forget("crimson")
    assert "keep what it learned" in again.report_.notes[0]
    x = images("blue", "green")[0]
    kept = trained.predict_proba(x)[:, [0, 1]]
    np.testing.assert_allclose(again.predict_proba(x), kept / kept.sum(axis=1, keepdims=True), atol=1e-5)


def test_reasons_against_training() -> None:
    without = model("lda", memory_mb=0).learn(*images("red", "blue"))
    with pytest.raises(UserError, match="none are stored for blue, red"):
        without.set_params(method="lucir+cscct").learn(*images("green"))
    assert without.class_names == ("blue", "red")
    automatic = without.set_params(method="auto").learn(*images("green"))
    assert "exemplars of the known classes" in automatic.report_.notes[0]
    few = model("auto").learn(*images("red", "blue", count=4))
    assert "needs 5 images per class" in few.report_.notes[0]
    assert "no new classes" in few.learn(*images("red")).report_.notes[0]
    with pytest.raises(UserError, match="at least two classes"):
        model("lucir").learn(*images("red"))
    with pytest.raises(UserError, match="no network to train"):
        IncrementalClassifier(None, method="auto").learn(np.ones((4, 3)), [0, 0, 1, 1])


def test_module_without_weights() -> None:
    """Its features stay the same; only the head learns."""
    trained = IncrementalClassifier(Colours(), image_size=16, method="lucir").learn(*images("red", "blue"))
    assert trained.predict(images("red")[0]).shape == (10,)


@pytest.mark.parametrize(
    ("parameters", "advice", "candidates"),
    [
        ({"predictor": "ncm"}, "method='ncm'", ("ncm", "")),
        ({"finetune": "never", "predictor": "ridge"}, "method='ridge'", ("ridge", "")),
        ({"finetune": "always"}, r"method='lucir\+cscct'", ("", "lucir+cscct")),
        ({"finetune": "always", "method": "podnet"}, "method='podnet'", ("", "podnet")),
        ({"finetune": "auto"}, "method='auto'", ("lda", "lucir+cscct")),
        ({"finetune": "auto", "method": "podnet"}, "method='auto'", ("lda", "podnet")),
    ],
)
def test_deprecated_parameters_still_work(parameters: dict[str, str], advice: str, candidates: tuple[str, str]) -> None:
    deprecated = IncrementalClassifier(small_network(), image_size=16, **parameters)  # type: ignore[arg-type]
    assert deprecated.candidates() == candidates
    with pytest.warns(FutureWarning, match=advice):
        deprecated.learn(*images("red", "blue"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model("ncm").learn(*images("red", "blue"))
