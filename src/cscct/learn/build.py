"""From settings to working parts. Settings stop here."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from ..config import Device, Settings
from ..data import Dataset, Stream, make_stream, split_tasks
from ..data.sources import LoadRequest, Progress, load, unseen
from ..errors import UserError
from ..memory import Memory
from ..nets import build_network
from ..seeding import generator
from .learner import Learner, Recipe
from .protocol import class_sequence, with_protocol
from .team import ALONE, Team

Warn = Callable[[str], None]


def load_dataset(settings: Settings, data_dir: Path | None, warn: Warn, progress: Progress = unseen) -> Dataset:
    request = LoadRequest(
        data_dir=data_dir,
        skip_bad_images=settings.data.skip_bad_images,
        test_fraction=settings.data.test_fraction,
        seed=settings.seed,
        warn=warn,
        progress=progress,
    )
    dataset = load(settings.dataset, request)
    if settings.data.cache is None:
        return dataset
    return _with_copies(dataset, settings.data.cache, settings.runtime.workers, progress)


def _with_copies(dataset: Dataset, side: int, workers: int, progress: Progress) -> Dataset:
    import pooch

    from ..data.cache import with_copies

    return with_copies(dataset, side, Path(pooch.os_cache("cscct")) / "copies", workers, progress)


def complete(settings: Settings, dataset: Dataset) -> Settings:
    """Fill in what depends on the data or the machine, so that the recorded config leaves nothing open."""
    return with_protocol(settings, len(dataset.class_names)).model_copy(
        update={
            "runtime": replace(
                settings.runtime,
                device=_device(settings.runtime.device),
                threads=_threads(settings.runtime.threads),
            ),
        }
    )


def build_stream(settings: Settings, dataset: Dataset, warn: Warn) -> Stream:
    """The tasks of a run. Needs complete settings."""
    protocol, data = settings.protocol, settings.data
    order = class_sequence(settings, len(dataset.class_names))
    if protocol.base is None or protocol.step is None:
        raise ValueError("the protocol is still open: complete the settings first.")
    tasks = split_tasks(len(order), protocol.base, protocol.step)
    if len(tasks) > 1 and tasks[-1].n_new < protocol.step:
        warn(
            f"The last task has {tasks[-1].n_new} classes instead of {protocol.step}: the classes do not divide evenly."
        )
    if len(data.transform.mean) not in (1, dataset.channels):
        raise UserError(
            f"data.transform.mean and std have {len(data.transform.mean)} values; {dataset.name} has "
            f"{dataset.channels} channel{'s' if dataset.channels > 1 else ''}."
        )
    if settings.predict.nme_aug == "bgr" and dataset.channels != 3:
        raise UserError(
            f"predict.nme_aug bgr reverses colour channels, and {dataset.name} has none: use none or hflip."
        )
    stream = make_stream(
        dataset,
        order,
        tasks,
        data.transform,
        train_per_class=data.train_per_class,
        test_per_class=data.test_per_class,
        workers=settings.runtime.workers,
    )
    quota, smallest = settings.memory.quota(len(order)), min(len(members) for members in stream.train)
    if quota > smallest:
        warn(
            f"The memory holds {quota} exemplars a class, but a class has only {smallest} images: all of them are kept."
        )
    return stream


def build_learner(settings: Settings, dataset: Dataset, stream: Stream, team: Team = ALONE) -> Learner:
    device = torch.device(_device(settings.runtime.device))
    torch.set_num_threads(_threads(settings.runtime.threads))
    if device.type == "cpu":
        _keep_freed_memory()
        _need_a_compiler(settings.runtime.compile)
    spec = settings.network
    network = build_network(
        spec.backbone,
        spec.depth,
        dataset.channels,
        spec.head,
        spec.rows_per_class,
        generator(settings.seed, "network"),
        relu_head=spec.relu_head,
    )
    recipe = Recipe(
        terms=settings.terms,
        network=spec,
        train=settings.train,
        finetune=settings.finetune,
        predict=settings.predict,
        seed=settings.seed,
        eval_batch_size=settings.runtime.eval_batch_size,
        precision=settings.runtime.precision,
        fold=settings.runtime.fold,
        compile=settings.runtime.compile,
    )
    if device.type == "cuda" and team.size > 1:
        device = torch.device("cuda", team.rank % settings.runtime.devices)
    return Learner(network, Memory(settings.memory), recipe, stream, device, team)


def _device(wanted: str) -> Device:
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        return "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there[wanted]:
        raise UserError(f"There is no {wanted} device on this machine; use --device auto or cpu.")
    return cast(Device, wanted)


def _keep_freed_memory() -> None:
    """Large tensors are freed and wanted again in every step. By default the C library gives those above 32 MB back
    to the system each time, which then has to clear every page anew: a third of the time at batch 1024."""
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # their numbers in malloc.h
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        if not mallopt(mmap_threshold, 1 << 30):  # older ones refuse so much
            mallopt(mmap_max, 0)
        mallopt(trim_threshold, (1 << 31) - 1)


def _need_a_compiler(compile_: str) -> None:
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if compile_ != "none" and shutil.which(name) is None:
        raise UserError(
            f"runtime.compile is {compile_}, which needs a C++ compiler, and {name} was not found: install one, "
            "name it in the variable CXX, or leave out --compile."
        )


def _threads(wanted: int) -> int:
    if wanted:
        return wanted
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
