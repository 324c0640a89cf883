"""The machine a run is carried out on: device, threads, memory and compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from contextlib import suppress
from typing import cast

import torch

from ..config import Device
from ..errors import UserError
from .protocol import available_cores


def is_available(device: str) -> bool:
    """Whether this machine has it; `auto` names none."""
    return {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}.get(device, False)


def choose_device(wanted: str) -> Device:
    """auto: a GPU if there is one."""
    if wanted == "auto":
        return "cuda" if is_available("cuda") else "mps" if is_available("mps") else "cpu"
    if not is_available(wanted):
        raise UserError(f"There is no {wanted} device on this machine; use --device auto or cpu.")
    return cast(Device, wanted)


def keep_freed_memory() -> None:
    """Large tensors are freed and wanted again in every step. By default the C library gives those above 32 MB back
    to the system each time, which then has to clear every page anew: a third of the time at batch 1024."""
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # their numbers in malloc.h
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(mmap_threshold, 1 << 30):  # older ones refuse so much
            mallopt(mmap_max, 0)
        mallopt(trim_threshold, (1 << 31) - 1)


def require_compiler(compile_: str) -> None:
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if compile_ != "none" and shutil.which(name) is None:
        raise UserError(
            f"numerics.compile is {compile_}, which needs a C++ compiler, and {name} was not found: install one, "
            "name it in the variable CXX, or leave out --compile."
        )


def choose_threads(wanted: int) -> int:
    """0: as many as there are cores."""
    return wanted or available_cores()


def explain_torch_error(error: Exception) -> str | None:
    """A sentence for what torch says in its own words, if it is something that a user can change."""
    said = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in said or "can't allocate memory" in said:
        return "There is not enough memory: make train.batch_size or runtime.eval_batch_size smaller, or the network."
    if "expected more than 1 value per channel" in said:
        return (
            "A batch holds a single image whose last map is one pixel, and batch norm needs more: choose another "
            "train.batch_size (or finetune.batch_size), or larger images."
        )
    return None
