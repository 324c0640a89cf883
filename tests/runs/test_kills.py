"""Every method finishes with identical bits after its process was killed.

`make soak` kills every method 20 times (CSCCT_KILLS). Without it, three bases are killed three times, others once.
"""

import os
import random
import signal
from functools import partial
from pathlib import Path

import pytest
from torch.nn import functional

from conftest import run_command, signal_at_call, signal_plugin
from cscct.methods import METHODS
from cscct.runs.checkpoints import Checkpoints
from interrupted import BASES, EVERY_STEP, go, same, small, small_sets, with_addon

REQUESTED = os.environ.get("CSCCT_KILLS")
TRAINED = [name for name, method in METHODS.items() if method.trains]
UNTRAINED = [name for name, method in METHODS.items() if not method.trains]


def kills_of(base: str) -> int:
    return int(REQUESTED or (3 if base in BASES else 1))


def command(base: str, *more: str) -> list[str]:
    sets = [*small_sets(base), *more, EVERY_STEP]
    options = [argument for text in sets for argument in ("--set", text)]
    return ["run", with_addon(base), "digits", *options, "--out", "run", "--quiet"]


@pytest.mark.parametrize("base", TRAINED)
def test_killed_at_random_instants(base: str, tmp_path: Path) -> None:
    """SIGKILL with checkpoints after every step. The kills are spread over the whole run."""
    kills = kills_of(base)
    more = [f"train.epochs={2 + kills}"]
    steps = [0]

    def count() -> bool:
        steps[0] += 1
        return False

    go(tmp_path / "whole", small(base, *more), count)
    rng = random.Random(f"{base}{kills}")
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    total, written = steps[0] + 2, 0  # each step has a checkpoint, and the end of each task but the last
    arguments = command(base, *more)
    for kill in range(kills):
        after = max(1, total * (kill + 1) // (kills + 1) - rng.randint(0, 2) - written)
        after = 0 if kill % 4 == 3 else after  # while it starts or reads the checkpoint
        plugin = signal_plugin(tmp_path / f"kill{kill}.py", "run", after=after, wait=rng.uniform(0.001, 0.05))
        killed = run_command(tmp_path, *arguments, "--plugin", plugin.name)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        written = checkpoints._numbers()[-1]
        arguments = ["resume", "run", "--quiet"]
    newest = checkpoints.latest(print)
    assert kills < 3 or newest.state["task"] == 2
    done = run_command(tmp_path, "resume", "run", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("base", UNTRAINED)
def test_methods_without_training_are_killed(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL at a convolution, anywhere in the run. They have no steps, and repeat the task that was interrupted."""
    calls, real = [0], functional.conv2d

    def counted(*arguments: object, **named: object) -> object:
        calls[0] += 1
        return real(*arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(functional, "conv2d", counted)
        go(tmp_path / "whole", small(base))
    assert calls[0] > 20
    kills = kills_of(base)
    for number in random.Random(base).sample(range(1, calls[0] + 1), kills):
        (folder := tmp_path / f"kill{number}").mkdir()
        kill = partial(signal_at_call, "torch.nn.functional.conv2d", number, signal.SIGKILL)
        killed = run_command(folder, *command(base), prepare=kill)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = run_command(folder, *command(base))
        assert (done.returncode, done.stderr) == (0, "")
        same(tmp_path / "whole", folder / "run")
