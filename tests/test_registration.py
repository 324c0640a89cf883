"""Parts are registered by name with decorators of the same form, without torch."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import cscct
from conftest import settings_for
from cscct.config.checks import PARTS
from cscct.data.registry import DATASETS, DatasetKind
from cscct.errors import UserError
from cscct.features import Predictor
from cscct.losses import TERMS, Term
from cscct.methods import EXTENSIONS, METHODS, Extension, Method

REGISTRIES: dict[str, Any] = {
    "register_after_task": PARTS["network.after_task"],
    "register_augmentation": PARTS["data.transform.augment"],
    "register_backbone": PARTS["network.backbone"],
    "register_dataset": DATASETS,
    "register_extension": EXTENSIONS,
    "register_head": PARTS["network.head"],
    "register_herding": PARTS["memory.herding"],
    "register_imprint": PARTS["network.imprint"],
    "register_loss": TERMS,
    "register_method": METHODS,
    "register_optimizer": PARTS["train.optimizer"],
    "register_sampler": PARTS["train.sampler"],
    "register_predictor": PARTS["predict.predictor"],
    "register_stored_target": PARTS["memory.store"],
    "register_weight_scaling": PARTS["loss.*.weight_scaling"],
}


@pytest.fixture(autouse=True)
def remove_registered() -> Iterator[None]:
    before = {name: set(registry) for name, registry in REGISTRIES.items()}
    yield
    for name, registry in REGISTRIES.items():
        for added in set(registry) - before[name]:
            del registry[added]


def test_all_are_public() -> None:
    assert {name for name in cscct.__all__ if name.startswith("register_")} == set(REGISTRIES)
    # Methods, losses, extensions and datasets are named by no setting.
    assert len(REGISTRIES) == len({id(part) for part in PARTS.values()}) + 4


@pytest.mark.parametrize(
    "name", sorted(set(REGISTRIES) - {"register_method", "register_loss", "register_extension", "register_dataset"})
)
def test_a_part_is_registered_and_returned(name: str) -> None:
    def part(*_: Any) -> None: ...

    def another(*_: Any) -> None: ...

    register = getattr(cscct, name)
    assert register("mine")(part) is part
    assert REGISTRIES[name]["mine"] is part
    with pytest.raises(ValueError, match="mine is already registered"):
        register("mine")(another)


def test_losses() -> None:
    @cscct.register_loss("zero")
    @dataclass(frozen=True)
    class Zero(Term):
        """Nothing."""

    @cscct.register_loss
    @dataclass(frozen=True)
    class Null(Term):
        """Nothing either."""

        name = "null_loss"

    assert (TERMS["zero"], TERMS["null_loss"]) == (Zero, Null)
    assert settings_for("lucir", "digits", "loss.zero.weight=2").loss["zero"] == Zero(weight=2)
    with pytest.raises(ValueError, match="zero is already registered"):
        cscct.register_loss("zero")(Null)


def test_extensions() -> None:
    @cscct.register_extension("counter")
    @dataclass(frozen=True)
    class Counter(Extension):
        """Counts."""

        start: int = 0

    assert settings_for("lucir", "digits", "extension.counter.start=2").active_extension == Counter(2)
    with pytest.raises(ValueError, match="counter is already registered"):
        cscct.register_extension("counter")(Extension)


def test_predictors() -> None:
    @cscct.register_predictor("mine")
    @dataclass(frozen=True)
    class Mine(Predictor):
        """Nothing."""

        scale: float = 1.0

    sets = ("predict.predictor=mine", "predict.options.lda.shrinkage=0.5")
    settings = settings_for("lucir", "digits", *sets, "predict.options.mine.scale=2")
    assert list(settings.predictors) == ["lda", "ridge", "mine"]
    assert settings.predictors["mine"] == Mine(scale=2)
    assert settings.dump()["predict"]["options"] == {"lda": {"shrinkage": 0.5}, "mine": {"scale": 2.0}}
    assert settings_for("lucir", "digits", *sets).predict.options["mine"] == {"scale": 1.0}  # defaults are recorded
    assert "options" not in settings_for("lucir", "digits").dump()["predict"]
    assert settings_for("lucir", "digits", "predict.options.mine=null").predict.options == {}
    for override, message in (
        ("predict.options.mine.scle=2", "scle.*scale"),
        ("predict.options.lda.shrinkage=2", "shrinkage"),
        ("predict.options.mime={}", "'mime'.*'mine'"),
        ("predict.predictor=mime", "'mime'.*'mine'.*classifier, nme, ncm"),
    ):
        with pytest.raises(UserError, match=message):
            settings_for("lucir", "digits", override)


def test_methods() -> None:
    @cscct.register_method("plain", preset_from="lucir", addon_settings={"csc": {"weight": 0.5}})
    def plain() -> dict[str, Any]:
        """Cross-entropy only.

        Not in the summary.
        """
        return {"loss": {"cross_entropy": {}}}

    assert plain() == {"loss": {"cross_entropy": {}}}
    assert METHODS["plain"] == Method(
        "plain", "Cross-entropy only.", plain(), preset_from="lucir", addon_settings={"csc": {"weight": 0.5}}
    )
    assert settings_for("plain+csc", "digits").loss["csc"].weight == 0.5
    method = Method("data", "as data", {"loss": {"cross_entropy": {}}})
    assert cscct.register_method(method) is METHODS["data"] is method
    with pytest.raises(ValueError, match="taken"):
        cscct.register_method("lucir")(plain)


def test_datasets() -> None:
    @cscct.register_dataset("stripes", num_classes=6)
    def load_stripes(request: Any) -> Any:
        """Six kinds of stripes."""

    assert DATASETS["stripes"] == DatasetKind("stripes", "Six kinds of stripes.", 6, load_stripes, fetchable=False)
    with pytest.raises(UserError, match=r"B .protocol.base. is 7, but there are only 6 classes"):
        settings_for("lucir", "stripes", "protocol.base=7")
    cscct.register_dataset(DatasetKind("dots", "dots", 2, load_stripes, fetchable=False))
    assert DATASETS["dots"].num_classes == 2
    with pytest.raises(UserError, match="dataset 'digits' is already registered"):
        cscct.register_dataset("digits")(load_stripes)


def test_registration_needs_no_torch() -> None:
    code = f"""
import sys
import cscct
for name in {sorted(REGISTRIES)}:
    getattr(cscct, name)("mine")
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
