"""Threads of the CPU: how many a process uses by default, how they wait for each other, and what a fork leaves of them.
Does not import torch."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

# Iterations that a thread of GNU OpenMP (in the packages of torch for Linux) spins before it sleeps: about 0.05 ms
# instead of 15 ms, which is longer than a time slice. Intel and LLVM OpenMP (macOS, conda) take milliseconds, by
# default 200.
WAITING = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
WAIT_POLICIES = ("OMP_WAIT_POLICY", *WAITING)


def limit_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let threads that wait for others sleep after a short time, unless the user has set how they wait.

    A thread that spins occupies a core. If another process runs on that core, the thread that the others wait for may
    get none, and all of them make no progress. Must be called before torch is imported, which reads the variables.

    Args:
        environment: Environment variables. They are changed.
    """
    if not any(name in environment for name in WAIT_POLICIES):
        environment.update(WAITING)


def renew_after_fork() -> None:
    """Let processes that are forked from this one replace the thread pool of torch before they start threads.

    A fork leaves the pool unusable, and torch replaces it at its next use. If several threads use it first at the same
    time, for example those that decode images or answer requests, one of them may find no pool and fail.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
        os.register_at_fork(after_in_child=_renew_pool)


def _renew_pool() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):  # not half imported
        torch.set_num_threads(torch.get_num_threads())


def default_threads() -> int:
    """Return the number of threads of a process that does not specify it.

    Returns:
        The value of the environment variable OMP_NUM_THREADS, if it is set, else the number of available cores.
    """
    with suppress(ValueError):
        if (threads := int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0])) > 0:
            return threads
    return available_cores()


def available_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process can use: those it may run on, within the quota of its container.

    Args:
        root: Root of the file system with `proc` and `sys`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota(root))))


def _quota(root: Path) -> float:
    """Return the smallest CPU quota of the control groups of this process, in cores; infinity if there is none."""
    quota = math.inf
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            group = mount / path.lstrip("/")  # in a container, the group of the process may be the mounted one
            for folder in (mount, group, *(parent for parent in group.parents if parent.is_relative_to(mount))):
                quota = min(quota, _quota_of(folder))
    return quota


def _quota_of(folder: Path) -> float:
    """Return the CPU quota of a control group (version 2 or 1) in cores; infinity if it has none."""
    with suppress(OSError, ValueError):
        limit, period = (folder / "cpu.max").read_text().split()
        return math.inf if limit == "max" else int(limit) / int(period)
    with suppress(OSError, ValueError):
        limit, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return math.inf if int(limit) <= 0 else int(limit) / int(period)
    return math.inf
