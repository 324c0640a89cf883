"""Start-up times: seconds from the start of a process until output or the first training step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from parts import Size

UNTIL_FIRST_STEP = """
import os, sys
from cscct.learn import loop
build = loop.build_optimizer
def build_optimizer(*arguments):
    optimizer = build(*arguments)
    optimizer.register_step_post_hook(lambda *_: os._exit(0))
    return optimizer
loop.build_optimizer = build_optimizer
from cscct.cli import main
sys.argv = ["cscct", "run", "lucir+cscct", "digits", "--quiet"]
main()
"""


def measure(size: Size, say: Callable[[str], None]) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        python = [sys.executable]
        commands = {
            "python -c pass": [*python, "-c", "pass"],
            "import torch": [*python, "-c", "import torch"],
            "import torch and its compiler, as optimisers do": [*python, "-c", "import torch, torch._dynamo"],
            "import cscct": [*python, "-c", "import cscct"],
            "import cscct.losses, with a loss": [*python, "-c", "from cscct.losses import controlled_transfer"],
            "cscct --help": [*python, "-m", "cscct", "--help"],
            "cscct reproduce table1 --dry-run": [*python, "-m", "cscct", "reproduce", "table1", "--dry-run"],
            "cscct run lucir+cscct digits, first step": [*python, "-c", UNTIL_FIRST_STEP],
        }
        results = {name: seconds(command, folder, 1 if size.tiny else 5) for name, command in commands.items()}
    for name, value in results.items():
        say(f"{name}: {value:.2f} s")
    return results


def seconds(command: list[str], folder: str, times: int) -> float:
    spent = []
    environment: dict[str, Any] = {**os.environ, "COLUMNS": "100"}
    for _ in range(times):
        started = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        spent.append(time.perf_counter() - started)
    return median(spent)


def ratios(results: dict[str, float]) -> dict[str, float]:
    first_step, torch_alone = results["cscct run lucir+cscct digits, first step"], results["import torch"]
    torch_in_full = results.get("import torch and its compiler, as optimisers do", torch_alone)
    return {
        "cscct --help, s": results["cscct --help"],
        "first step - import torch, s": first_step - torch_alone,
        "first step - import torch and its compiler, s": first_step - torch_in_full,
    }
