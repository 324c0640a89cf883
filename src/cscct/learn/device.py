"""Execution environment of a run: device, threads, precision, memory allocation and compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, cast

import torch
from torch.amp import GradScaler

from ..config import Device
from ..errors import UserError

Precision = Callable[[], AbstractContextManager[Any]]  # returns the context manager of a forward pass
FULL_PRECISION: Precision = nullcontext
DTYPES = {"bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}  # of the products; weights have 32 bits
INITIAL_SCALE = 2.0**16  # of losses; the default of torch


def is_available(device: str) -> bool:
    """Return whether this machine has a device.

    Args:
        device: `cpu`, `cuda` or `mps`. Any other name, including `auto`, is not available.
    """
    return {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}.get(device, False)


def choose_device(name: str) -> Device:
    """Return the device to use.

    Args:
        name: `cpu`, `cuda`, `mps`, or `auto` for a GPU if one is available.

    Raises:
        UserError: If the device is not available.
    """
    if name == "auto":
        return "cuda" if is_available("cuda") else "mps" if is_available("mps") else "cpu"
    if not is_available(name):
        raise UserError(f"This machine has no {name} device: use --device auto or cpu.")
    return cast(Device, name)


def visible_gpus() -> list[str]:
    """Return the CUDA devices of this process, by their names in the environment variable CUDA_VISIBLE_DEVICES."""
    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [name.strip() for name in named.split(",")][:count] if named else [str(index) for index in range(count)]


def precision_context(name: str, device: torch.device) -> Precision:
    """Return the factory of the context manager for forward passes.

    Losses convert their inputs to float32 at least.

    Args:
        name: `32-true`, or `bf16-mixed` or `fp16-mixed` for float32 weights and products in 16 bits. `auto` is
            `32-true` where no run has chosen.
        device: Device of the network.
    """
    if name not in DTYPES:
        return FULL_PRECISION
    return lambda: torch.autocast(device.type, DTYPES[name])


def loss_scaler(name: str, device: torch.device) -> GradScaler:
    """Return the scaling of losses for a stage: float16 would round small gradients to zero.

    Args:
        name: Name of the precision. Only `fp16-mixed` scales losses.
        device: Device of the network.
    """
    return GradScaler(device.type, init_scale=INITIAL_SCALE, enabled=name == "fp16-mixed")


def require_scaling(name: str, device: torch.device) -> None:
    """Check that losses can be scaled on a device if the precision needs it.

    Args:
        name: Name of the precision.
        device: Device of the run.

    Raises:
        UserError: If they cannot.
    """
    if name == "fp16-mixed" and device.type not in ("cpu", "cuda"):
        raise UserError(f"numerics.precision fp16-mixed is not available on {device.type}: use --precision 32-true.")


def keep_freed_memory() -> None:
    """Configure the C library to reuse freed memory instead of returning it to the system.

    Every training step frees and allocates large tensors. By default, blocks above 32 MB are returned to the system,
    which clears every page of the next allocation: a third of the time at batch size 1024.
    """
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # constants of malloc.h
    with suppress(OSError, AttributeError, TypeError):  # not available in every C library
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(mmap_threshold, 1 << 30):  # older versions reject values this large
            mallopt(mmap_max, 0)
        mallopt(trim_threshold, (1 << 31) - 1)


def select_fast_convolutions() -> None:
    """Let cuDNN measure which algorithm of a convolution is the fastest for each shape of its input.

    Shapes rarely change during training. Runs on GPUs are not reproducible bit for bit with or without it.
    """
    torch.backends.cudnn.benchmark = True


def require_compiler(compile_: str, device: torch.device) -> None:
    """Check that networks can be compiled as requested. On a CPU, `torch.compile` needs a C++ compiler.

    Args:
        compile_: Value of `numerics.compile`.
        device: Device of the run.

    Raises:
        UserError: If the compiler is not installed, or if CUDA graphs are requested for another device.
    """
    if compile_ == "cuda-graphs" and device.type != "cuda":
        raise UserError(
            f"numerics.compile cuda-graphs needs a CUDA GPU, and this run uses {device.type}: use --compile all."
        )
    if device.type != "cpu":
        return
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if compile_ != "none" and shutil.which(name) is None:
        raise UserError(
            f"numerics.compile is {compile_}, which needs a C++ compiler, and {name} was not found: install one, "
            "set the environment variable CXX, or omit --compile."
        )


def explain_torch_error(error: Exception) -> str | None:
    """Return a message for an error of torch that the user can avoid.

    Args:
        error: Error.

    Returns:
        Message, or None for any other error.
    """
    text = str(error).lower()
    if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
        return (
            "There is not enough memory: reduce train.batch_size, runtime.eval_batch_size or the size of the network."
        )
    if "expected more than 1 value per channel" in text:
        return (
            "Batch norm needs more than one value per channel, but a batch has a single image and its last map has "
            "one pixel: change train.batch_size (or finetune.batch_size), or use larger images."
        )
    return None
