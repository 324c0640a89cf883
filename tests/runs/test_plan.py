"""What a plan says before anything is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import run_quietly, settings_for
from cscct.runs.estimate import seconds
from cscct.runs.plan import Planned, as_json, outlook, settled
from cscct.runs.store import RunFolder

QUICK = ("train.epochs=1", "data.train_per_class=20", "runtime.threads=1")


def planned(folder: Path, method: str, seed: int, *sets: str) -> Planned:
    settings = settings_for(method, "digits", *QUICK, *sets, f"seed={seed}")
    return settled(Planned(method, settings, RunFolder(folder / f"{method}_seed{seed}")), 10, 1)


def test_counts_states_and_shared_first_tasks(tmp_path: Path) -> None:
    plan = [planned(tmp_path, method, seed) for method in ("lucir", "lucir+cscct", "icarl") for seed in (1, 2)]
    before = outlook(plan, 1)
    assert (before.first_tasks, before.shared, before.count("free")) == (2, 4, 6)  # iCaRL's first task is LUCIR's
    run_quietly(tmp_path / "lucir_seed1", "lucir", *QUICK)
    after = outlook(plan, 2)
    assert (after.count("finished"), after.count("free")) == (1, 5)
    assert (after.first_tasks, after.shared) == (1, 4)
    assert after.measured
    assert not before.measured
    assert after.runs[0][2] == 0
    listing = json.loads(json.dumps(as_json(after)))
    assert [run["state"] for run in listing["runs"]].count("finished") == 1
    assert listing["runs"][1]["settings"]["seed"] == 2


def test_other_threads_do_not_make_another_run(tmp_path: Path) -> None:
    run_quietly(tmp_path / "lucir_seed1", "lucir", *QUICK)
    state, one = planned(tmp_path, "lucir", 1, "runtime.threads=2").taken_up()
    assert (state, one.settings.runtime.threads) == ("finished", 1)


def test_estimates_grow_with_the_work() -> None:
    def total(*sets: str, method: str = "lucir", dataset: str = "cifar100") -> float:
        found = seconds(settings_for(method, dataset, "runtime.threads=1", *sets))
        assert found is not None
        return sum(found)

    whole = total()
    assert total("train.epochs=80") == pytest.approx(whole / 2, rel=0.03)
    assert total("data.train_per_class=250", "memory.per_class=10") == pytest.approx(whole / 2, rel=0.03)
    assert total("network.depth=8") < whole / 4
    assert total("protocol.step=1") > whole
    assert total("runtime.threads=2") == pytest.approx(whole / 2)
    assert total(method="podnet") > whole
    assert total(dataset="imagenet-subset") > 20 * whole
    assert seconds(settings_for("lucir", "folder")) is None


def test_multiplications_are_those_of_the_networks() -> None:
    """Of ResNet-32 at 32 pixels 69 million, of ResNet-18 at 224 pixels 1.8 thousand million."""
    from cscct.runs.estimate import _multiplications

    assert _multiplications(settings_for("lucir", "cifar100"), 32) == pytest.approx(69e6, rel=0.02)
    assert _multiplications(settings_for("lucir", "imagenet-subset"), 224) == pytest.approx(1.8e9, rel=0.06)


NO_TORCH = """
import sys
sys.argv = ["cscct", *{words!r}]
from cscct.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("torch" in sys.modules, "matplotlib" in sys.modules)
"""


@pytest.mark.parametrize("name", ["table1", "tsne"])
def test_a_dry_run_needs_neither_torch_nor_data(name: str, tmp_path: Path) -> None:
    """That is what makes it quick: importing torch takes longer than planning a hundred runs."""
    code = NO_TORCH.format(words=["reproduce", name, "--dry-run"])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False False"
    assert "first tasks are to be trained" in done.stdout
    assert list(tmp_path.iterdir()) == []
