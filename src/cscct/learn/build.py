"""From settings to working parts. Settings stop here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import nn

from ..config import Settings
from ..data import Dataset, Stream, make_stream, split_tasks
from ..errors import UserError, Warn
from ..memory import Memory
from ..nets import Network, build_network, split
from ..seeding import generator
from ..specs import NetworkSpec
from .device import choose_device, choose_threads, keep_freed_memory, require_compiler
from .distributed import SINGLE_PROCESS, ProcessGroup
from .learner import Learner, LearnerConfig
from .protocol import class_sequence
from .trunk import run_trunk, through_trunk


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


def network_for(spec: NetworkSpec, channels: int, seed: int, *, pretrained: bool = True) -> Network:
    """A network as training finds it, its head still without classes. pretrained: false for a network whose weights are
    going to be replaced."""
    network = build_network(
        spec.backbone,
        spec.depth,
        channels,
        spec.head,
        spec.rows_per_class,
        generator(seed, "network"),
        relu_head=spec.relu_head,
        frozen_norms=spec.batch_norm == "frozen",
        pretrained=pretrained and spec.pretrained,
    )
    if network.head.has_scale:
        nn.init.constant_(network.head.scale, spec.scale)
    return network


def build_learner(
    settings: Settings,
    dataset: Dataset,
    stream: Stream,
    group: ProcessGroup = SINGLE_PROCESS,
    warn: Warn = lambda _: None,
) -> Learner:
    """The learner of a run, on its device; with `network.train_from`, the stream's images go through the frozen stages
    first."""
    torch.set_num_threads(choose_threads(settings.runtime.threads))
    network = network_for(settings.network, dataset.channels, settings.seed)
    cached = settings.network.train_from and settings.runtime.trunk_cache is not None
    return learner_with(network, settings, stream, group, warn, dataset.fingerprint() if cached else None)


def learner_with(
    network: Network,
    settings: Settings,
    stream: Stream,
    group: ProcessGroup = SINGLE_PROCESS,
    warn: Warn = lambda _: None,
    data: str | None = None,
) -> Learner:
    """As `build_learner`, for a network that is there already; its backbone is divided if stages are frozen.

    data: a hash of the dataset, if outputs of frozen stages are kept for other runs.
    """
    device = torch.device(choose_device(settings.runtime.device))
    if device.type == "cpu":
        keep_freed_memory()
        require_compiler(settings.numerics.compile)
    config = LearnerConfig(
        terms=settings.terms,
        network=settings.network,
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
    trunk = None
    if settings.network.train_from:
        trunk, network.backbone = split(network.backbone, settings.network.train_from)
        run = run_trunk(trunk, device, fold=settings.numerics.fold)
        stream = through_trunk(
            stream,
            run,
            settings.network.views,
            on_cpu=device.type == "cpu",
            processes=settings.runtime.devices,
            shared=_shared_outputs(settings, trunk, device, data),
            warn=warn,
        )
    return Learner(network, Memory(settings.memory), config, stream, device, group, trunk)


def _shared_outputs(settings: Settings, trunk: nn.Module, device: torch.device, data: str | None) -> Path | None:
    """How the files begin that hold the trunk's outputs for other runs: a hash of all that they depend on."""
    if data is None or settings.runtime.trunk_cache is None:
        return None
    digest = hashlib.sha256(repr((data, settings.data.transform, settings.numerics.fold)).encode())
    digest.update(repr((device.type, torch.get_num_threads() if device.type == "cpu" else 0)).encode())
    for name, tensor in trunk.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return Path(settings.runtime.trunk_cache).expanduser() / digest.hexdigest()[:24]
