"""`numerics.precision: auto`. The measurement is replaced: no test depends on the processor."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import Silent, settings_for
from cscct.config import PrecisionName, Settings
from cscct.data import ArrayImages, Dataset, Split
from cscct.learn import precision, protocol
from cscct.learn.precision import choose_precision, measure_speedup
from cscct.learn.protocol import complete, with_precision
from cscct.runs.folder import RunFolder
from cscct.runs.runner import execute
from planning import small_plan


def dataset_of(images: int) -> Dataset:
    pixels = ArrayImages(torch.zeros(images, 1, 8, 8, dtype=torch.uint8))
    split = Split(pixels, (torch.arange(images) % 10).numpy())
    return Dataset("digits", tuple("0123456789"), split, split, channels=1)


class Speedup:
    """A measurement with a given result, which counts its calls."""

    def __init__(self, value: float):
        self.value, self.calls = value, 0
        self.measured: list[object] = []

    def __call__(self, settings: Settings, mixed: PrecisionName, *_: object) -> float:
        self.calls += 1
        self.measured.append(mixed)
        return self.value


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(protocol, "MIN_PIXELS", 6400)
    return tmp_path / "cache"


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def choose(name: str) -> None:
        monkeypatch.setattr(precision, "choose_precision", lambda *_: name)

    return choose


def settings_of(*sets: str, method: str = "lucir") -> Settings:
    return settings_for(method, "digits", "runtime.device=cpu", *sets)


@pytest.mark.parametrize(("speedup", "chosen"), [(1.5, "bf16-mixed"), (1.1, "32-true"), (0.0, "32-true")])
def test_16_bits_are_used_where_they_pay_and_measured_once(speedup: float, chosen: str, cache: Path) -> None:
    measure = Speedup(speedup)
    assert choose_precision(settings_of(), dataset_of(100), measure) == chosen
    assert choose_precision(settings_of("seed=2", "train.epochs=9"), dataset_of(100), measure) == chosen
    assert measure.calls == 1
    choose_precision(settings_of("network.depth=20"), dataset_of(100), measure)  # another network
    assert measure.calls == 2


@pytest.mark.parametrize(
    ("capability", "method", "chosen"),
    [
        ((7, 5), "lucir", "fp16-mixed"),
        ((7, 5), "si", "32-true"),
        ((8, 0), "si", "bf16-mixed"),
        ((9, 0), "lucir", "bf16-mixed"),
    ],
)
def test_older_gpus_compute_in_float16_with_scaled_losses(
    capability: tuple[int, int], method: str, chosen: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU")
    measure = Speedup(2.0)
    for _ in range(2):  # the second decision is the stored one
        assert choose_precision(settings_of("runtime.device=cuda", method=method), dataset_of(100), measure) == chosen
    assert measure.measured == [chosen] * (chosen != "32-true")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"precision": "fp8"}', '{"key": {}, "precision": "bf16-mixed"}'])
def test_a_damaged_cache_is_measured_again(content: str, cache: Path) -> None:
    measure = Speedup(1.0)
    choose_precision(settings_of(), dataset_of(100), measure)
    (file,) = (cache / "cscct" / "precision").iterdir()
    file.write_text(content)
    assert choose_precision(settings_of(), dataset_of(100), measure) == "32-true"
    assert measure.calls == 2


def test_a_cache_that_cannot_be_written_is_not_an_error(cache: Path) -> None:
    cache.write_text("a file, not a folder")
    assert choose_precision(settings_of(), dataset_of(100), Speedup(2.0)) == "bf16-mixed"


def test_the_decision_of_a_run_that_measured_at_the_same_time_is_used(cache: Path) -> None:
    def measure(*_: object) -> float:
        assert choose_precision(settings_of(), dataset_of(100), Speedup(2.0)) == "bf16-mixed"
        return 1.0

    assert choose_precision(settings_of(), dataset_of(100), measure) == "bf16-mixed"


@pytest.mark.parametrize(
    ("images", "method", "sets"),
    [
        (99, "lucir", ()),
        (100, "lucir", ("data.train_per_class=9",)),
        (100, "lucir", ("runtime.devices=2",)),
        (100, "lda", ()),  # trains nothing
    ],
)
def test_where_a_measurement_does_not_pay_32_bits_are_used(
    images: int, method: str, sets: tuple[str, ...], cache: Path, choose: Callable[[str], None]
) -> None:
    choose("bf16-mixed")
    assert complete(settings_of(), dataset_of(100)).numerics.precision == "bf16-mixed"
    assert complete(settings_of(*sets, method=method), dataset_of(images)).numerics.precision == "32-true"


@pytest.mark.parametrize("mixed", ["bf16-mixed", "fp16-mixed"])
def test_the_measurement_runs_both_precisions(mixed: PrecisionName) -> None:
    state = torch.get_rng_state()
    assert measure_speedup(settings_of("train.batch_size=4"), mixed, 1, 8, torch.device("cpu")) > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert measure_speedup(settings_of(), mixed, -1, 8, torch.device("cpu")) == 0


QUICK = ("train.epochs=1", "protocol.base=5", "protocol.step=5", "runtime.threads=1")


def test_the_choice_is_recorded_and_kept(tmp_path: Path, cache: Path, choose: Callable[[str], None]) -> None:
    folder, dataset = RunFolder(tmp_path / "run"), dataset_of(100)
    choose("bf16-mixed")
    execute(settings_for("lucir", "digits", *QUICK), dataset, folder, Silent())
    assert folder.config()["numerics"]["precision"] == "bf16-mixed"
    choose("32-true")
    assert execute(settings_for("lucir", "digits", *QUICK), dataset, folder)["status"] == "finished"
    folder.create(complete(settings_for("lucir", "digits", *QUICK, "numerics.precision=bf16-mixed"), dataset))
    execute(settings_for("lucir", "digits", *QUICK), dataset, folder, Silent())  # unfinished, on another machine
    assert folder.config()["numerics"]["precision"] == "bf16-mixed"


def test_a_planned_run_chooses_when_it_starts(tmp_path: Path, cache: Path, choose: Callable[[str], None]) -> None:
    folder, settings = RunFolder(tmp_path / "run"), settings_for("lucir", "digits", *QUICK)
    folder.create(settings)
    assert folder.precision() == "auto"
    choose("bf16-mixed")
    execute(settings, dataset_of(100), folder, Silent())
    assert folder.precision() == "bf16-mixed"


def test_runs_of_a_plan_use_the_precision_of_those_that_started(tmp_path: Path) -> None:
    started = small_plan(tmp_path, "lucir", "icarl", "lda")[0]
    started.folder.create(with_precision(started.settings, "bf16-mixed"))
    plan = small_plan(tmp_path, "lucir", "icarl", "lda")
    chosen = {run.settings.method: run.settings.numerics.precision for run in plan}
    assert chosen == {"lucir": "bf16-mixed", "icarl": "bf16-mixed", "lda": "auto"}
    assert plan[0].first_task == small_plan(tmp_path, "lucir")[0].first_task


def test_float16_is_only_taken_over_by_runs_whose_extension_supports_it() -> None:
    methods = ("lucir", "ewc", "a-gem", "si")
    chosen = {name: with_precision(settings_of(method=name), "fp16-mixed").numerics.precision for name in methods}
    assert chosen == {"lucir": "fp16-mixed", "ewc": "fp16-mixed", "a-gem": "fp16-mixed", "si": "auto"}
