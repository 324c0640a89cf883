"""Choice of the precision of a run (`numerics.precision: auto`): measured once per machine and network."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from .. import __version__
from ..config import PrecisionName, Settings, without_scaled_losses
from ..data import Dataset
from ..data.registry import user_cache_dir
from ..storage import json_sha256, make_folder, write_text
from ..threads import default_threads
from .build import network_for
from .device import precision_context
from .protocol import input_side

FULL: PrecisionName = "32-true"
MIN_SPEEDUP = 1.15  # a smaller one may be noise
STEPS = 3  # measured steps of each precision, after one that is not counted
Measure = Callable[[Settings, PrecisionName, int, int, torch.device], float]


def choose_precision(settings: Settings, dataset: Dataset, measure: Measure | None = None) -> PrecisionName:
    """Return the precision of a run whose settings leave it open.

    Networks are computed in 16 bits if this is faster by at least 15 %. The speed is measured in a few training steps,
    once for each machine, version of torch and network, and the decision is stored in the user's cache folder. See
    `cscct.learn.protocol.complete` for runs that are not measured.

    Args:
        settings: Settings of the run, with a device.
        dataset: Dataset of the run.
        measure: Returns the speed of 16 bits divided by that of 32 bits; by default `measure_speedup`.
    """
    device, side = torch.device(settings.runtime.device), input_side(settings, dataset)
    mixed = _candidate(settings, device)
    if mixed is None:
        return FULL
    key = {
        "cscct": __version__,
        "torch": torch.__version__,
        "processor": _processor(device),
        "threads": settings.runtime.threads or default_threads(),
        "network": [settings.network.backbone, settings.network.depth],
        "images": [min(settings.train.batch_size, 128), dataset.channels, side],
    }
    file = user_cache_dir() / "precision" / f"{json_sha256(key)[:24]}.json"
    stored = _stored(file, key, mixed)
    if stored is None:
        speedup = (measure or measure_speedup)(settings, mixed, dataset.channels, side, device)
        stored = _stored(file, key, mixed)  # of a run that measured at the same time: both must decide alike
        if stored is None:
            stored = mixed if speedup >= MIN_SPEEDUP else FULL
            with suppress(OSError):  # without a cache folder, the next run measures again
                make_folder(file.parent)
                write_text(file, json.dumps({"key": key, "precision": stored, "speedup": round(speedup, 3)}, indent=1))
    return stored


def measure_speedup(settings: Settings, mixed: PrecisionName, channels: int, side: int, device: torch.device) -> float:
    """Return the speed of training steps in 16 bits divided by that in 32 bits; 0 if 16 bits are not possible.

    Args:
        settings: Settings of the run: network, batch size and threads.
        mixed: The precision with 16 bits.
        channels: Channels of the images.
        side: Height and width of the images.
        device: Device of the run.
    """
    torch.set_num_threads(settings.runtime.threads or default_threads())
    seconds: dict[PrecisionName, list[float]] = {FULL: [], mixed: []}
    try:
        with torch.random.fork_rng(devices=[]):
            network = network_for(settings.network, channels, settings.seed, pretrained=False)
            generator = torch.Generator().manual_seed(0)
            network.head.grow(network.head.init_weights(10, generator))
            network = network.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
            size = min(settings.train.batch_size, 128)
            images = torch.randn(size, channels, side, side, generator=generator)
            images = images.to(device).contiguous(memory_format=torch.channels_last)
            labels = torch.randint(0, 10, (size,), generator=generator).to(device)
            for step in range(1 + STEPS):
                for name, durations in seconds.items():
                    started = time.perf_counter()
                    with precision_context(name, device)():
                        logits = network(images).logits
                    loss = F.cross_entropy(logits.float(), labels)
                    loss.backward()
                    loss.item()  # waits for the device
                    if step:
                        durations.append(time.perf_counter() - started)
    except Exception:  # torch and backbones of the user raise any; the run reports the problem in 32 bits, if it has it
        return 0.0
    return median(seconds[FULL]) / median(seconds[mixed])


def _candidate(settings: Settings, device: torch.device) -> PrecisionName | None:
    """Return the precision with 16 bits that a device may have fast instructions for, if the run supports it.

    GPUs have them for bfloat16 since compute capability 8.0. Older ones compute in float16, with scaled losses.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "fp16-mixed" if without_scaled_losses(settings) is None else None
    return "bf16-mixed" if device.type in ("cpu", "cuda") else None


def _processor(device: torch.device) -> str:
    """Return the model of the processor or GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = ("model name", "flags", "Features")  # virtual machines give the same name to different processors
        if values := {line.partition(":")[2].strip() for line in lines if line.startswith(names)}:
            return json_sha256(sorted(values))[:16]
    return f"{platform.machine()} {platform.processor()}"


def _stored(file: Path, key: dict[str, Any], mixed: PrecisionName) -> PrecisionName | None:
    """Return the stored decision, or None if there is none or the file is damaged."""
    with suppress(OSError, ValueError):
        content = json.loads(file.read_text())
        if isinstance(content, dict) and content.get("key") == key and content.get("precision") in (FULL, mixed):
            return content["precision"]
    return None
