"""From settings to working parts. Settings stop here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from ..config import Settings
from ..data import Dataset, Stream, make_stream, split_tasks
from ..data.registry import LoadRequest, Progress, load, no_progress
from ..errors import UserError
from ..memory import Memory
from ..nets import build_network
from ..seeding import generator
from .device import choose_device, choose_threads, keep_freed_memory, require_compiler
from .distributed import SINGLE_PROCESS, ProcessGroup
from .learner import Learner, LearnerConfig
from .protocol import class_sequence, with_protocol

Warn = Callable[[str], None]


def load_dataset(settings: Settings, data_dir: Path | None, warn: Warn, progress: Progress = no_progress) -> Dataset:
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
                device=choose_device(settings.runtime.device),
                threads=choose_threads(settings.runtime.threads),
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


def build_learner(
    settings: Settings, dataset: Dataset, stream: Stream, group: ProcessGroup = SINGLE_PROCESS
) -> Learner:
    device = torch.device(choose_device(settings.runtime.device))
    torch.set_num_threads(choose_threads(settings.runtime.threads))
    if device.type == "cpu":
        keep_freed_memory()
        require_compiler(settings.numerics.compile)
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
    recipe = LearnerConfig(
        terms=settings.terms,
        network=spec,
        train=settings.train,
        finetune=settings.finetune,
        predict=settings.predict,
        seed=settings.seed,
        eval_batch_size=settings.runtime.eval_batch_size,
        precision=settings.numerics.precision,
        fold=settings.numerics.fold,
        compile=settings.numerics.compile,
    )
    if device.type == "cuda" and group.size > 1:
        device = torch.device("cuda", group.rank % settings.runtime.devices)
    return Learner(network, Memory(settings.memory), recipe, stream, device, group)
