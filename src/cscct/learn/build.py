"""Construction of the stream, network and learner of a run from its settings.

No settings object is passed beyond this module.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ..config import Settings
from ..data import Dataset, Stream, make_stream
from ..data.augmentations import Draws, augment_pixels
from ..errors import UserError, Warn
from ..memory import Memory
from ..nets import GrowingBackbone, Network, build_network, split
from ..optim import build_optimizer, option_names, pack_state
from ..seeding import generator
from ..specs import NetworkSpec, Stage
from ..storage import json_sha256, tensors_sha256
from ..text import suggest
from ..threads import default_threads
from .device import choose_device, keep_freed_memory, require_compiler, require_scaling, select_fast_convolutions
from .distributed import SINGLE_PROCESS, ProcessGroup
from .frozen import run_frozen, through_frozen
from .learner import Learner
from .plan import LearnerConfig
from .protocol import class_sequence, task_sequence


def build_stream(settings: Settings, dataset: Dataset, warn: Warn) -> Stream:
    """Build the tasks of a run.

    Args:
        settings: Complete settings, see `complete`.
        dataset: Dataset of the run.
        warn: Called with each warning.

    Raises:
        UserError: If settings do not fit the images of the dataset.
        ValueError: If the settings are not complete.
    """
    data = settings.data
    order = class_sequence(settings, dataset.class_names)
    tasks = task_sequence(settings, len(order), warn)
    if len(data.transform.mean) not in (1, dataset.channels):
        raise UserError(
            f"data.transform.mean and std have {len(data.transform.mean)} values; {dataset.name} has "
            f"{dataset.channels} channel{'s' if dataset.channels > 1 else ''}."
        )
    if settings.predict.nme_aug == "bgr" and dataset.channels != 3:
        raise UserError(
            f"predict.nme_aug is bgr, which reverses colour channels, but {dataset.name} has grey images: use none or "
            "hflip."
        )
    if data.transform.augment:  # a registered augmentation that fails is reported before training
        side = data.transform.size or 32
        trial = torch.zeros(2, dataset.channels, side, side, dtype=torch.uint8)
        augment_pixels(trial, data.transform.augment, Draws(generator(settings.seed), len(trial)))
    stream = make_stream(
        dataset,
        order,
        tasks,
        data.transform,
        train_per_class=data.train_per_class,
        test_per_class=data.test_per_class,
        validation=data.validation,
        workers=settings.runtime.workers,
        device_mb=settings.runtime.device_images_mb,
    )
    quota, smallest = settings.memory.quota(len(order)), min(len(members) for members in stream.train)
    if quota > smallest and settings.memory.policy != "all":
        warn(
            f"The memory holds {quota} exemplars per class, but a class has only {smallest} images: all of them are "
            "kept."
        )
    return stream


def network_for(spec: NetworkSpec, channels: int, seed: int, *, pretrained: bool = True) -> Network:
    """Build a network without classes.

    Args:
        spec: Network settings.
        channels: Channels of the images.
        seed: Seed of the initial weights.
        pretrained: Whether pretrained weights are loaded. False for a network whose weights are replaced afterwards.
    """
    network = build_network(
        spec.backbone,
        spec.depth,
        channels,
        spec.head,
        spec.proxies_per_class,
        generator(seed, "network"),
        relu_head=spec.relu_head,
        frozen_norms=spec.batch_norm == "frozen",
        pretrained=pretrained and spec.pretrained,
        expand=spec.expand,
        train_from=spec.train_from,
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
    """Build the learner of a run on its device.

    Args:
        settings: Complete settings, see `complete`.
        dataset: Dataset of the run.
        stream: Tasks of the run. With `network.train_from`, its images are replaced by outputs of the frozen stages.
        group: Processes that share the work.
        warn: Called with each warning.
    """
    torch.set_num_threads(settings.runtime.threads or default_threads())
    network = network_for(settings.network, dataset.channels, settings.seed)
    cached = settings.network.train_from and settings.runtime.frozen_cache_dir is not None
    return learner_with(network, settings, stream, group, warn, dataset.fingerprint() if cached else None)


def learner_with(
    network: Network,
    settings: Settings,
    stream: Stream,
    group: ProcessGroup = SINGLE_PROCESS,
    warn: Warn = lambda _: None,
    data: str | None = None,
) -> Learner:
    """Build the learner of a run with an existing network.

    Args:
        network: Network to train. Its backbone is split if stages are frozen.
        settings: Complete settings, see `complete`.
        stream: Tasks of the run.
        group: Processes that share the work.
        warn: Called with each warning.
        data: Hash of the dataset if outputs of frozen stages are shared with other runs.
    """
    device = torch.device(choose_device(settings.runtime.device))
    require_scaling(settings.numerics.precision, device)
    require_compiler(settings.numerics.compile, device)
    if device.type == "cpu":
        keep_freed_memory()
    elif device.type == "cuda":
        select_fast_convolutions()
    for section, stage in settings.active_stages.items() if settings.terms else ():  # else nothing is trained
        check_optimizer(section, stage, device)
    if isinstance(network.backbone, GrowingBackbone) and not network.head.can_widen:
        raise UserError(
            f"The backbone grows, but the head {settings.network.head} has a fixed number of features: use another "
            "network.head, or set network.expand to none."
        )
    config = LearnerConfig(
        terms=settings.terms,
        network=settings.network,
        train=settings.train,
        finetune=settings.finetune,
        predict=settings.predict,
        predictors=settings.predictors,
        seed=settings.seed,
        eval_batch_size=settings.runtime.eval_batch_size,
        precision=settings.numerics.precision,
        fold=settings.numerics.fold,
        compile=settings.numerics.compile,
        stages={name: stage for name, stage in settings.stages.items() if stage is not None},
        extension=settings.active_extension,
    )
    if device.type == "cuda" and group.size > 1:
        device = torch.device("cuda", group.rank % settings.runtime.devices)
    frozen_stages = None
    if settings.network.train_from:
        frozen_stages, network.backbone = split(network.backbone, settings.network.train_from)
        run = run_frozen(frozen_stages, device, fold=settings.numerics.fold)
        stream = through_frozen(
            stream,
            run,
            settings.network.cached_views,
            on_cpu=device.type == "cpu",
            processes=settings.runtime.devices,
            shared=_shared_outputs(settings, frozen_stages, device, data),
            warn=warn,
        )
    learner = Learner(network, Memory(settings.memory), config, stream, device, group, frozen_stages)
    for task in stream.tasks:  # an unusable sampler is reported before training
        learner.planned_images(task)
    return learner


def check_optimizer(section: str, stage: Stage, device: torch.device) -> None:
    """Check the optimiser of a stage with a trial step, so that invalid options are reported before training.

    Args:
        section: The settings section of the stage, for messages.
        stage: The stage.
        device: The device of the run: some options are for GPUs only.

    Raises:
        UserError: If an option is unknown, or if the optimiser cannot take a step or be stored in a checkpoint.
    """
    known = option_names(stage.optimizer)
    for option in stage.optimizer_options:
        if option not in known:
            raise UserError(
                f"{section}.optimizer_options.{option} is not an option of {stage.optimizer}{suggest(option, known)}; "
                f"the options are {', '.join(known)}."
            )
    parameter = nn.Parameter(torch.zeros(1, device=device))
    parameter.grad = torch.ones_like(parameter)
    try:
        optimizer = build_optimizer([parameter], stage)
        optimizer.step()
        pack_state(optimizer.state_dict(), {})
    except Exception as error:  # torch raises errors of many types; a plugin may raise any
        raise UserError(
            f"{section}.optimizer {stage.optimizer} cannot be used with optimizer_options "
            f"{stage.optimizer_options}: {str(error).rstrip('.')}."
        ) from error


def _shared_outputs(settings: Settings, frozen: nn.Module, device: torch.device, data: str | None) -> Path | None:
    """Prefix of the files with outputs of the frozen stages that runs share: a hash of everything they depend on."""
    if data is None or settings.runtime.frozen_cache_dir is None:
        return None
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    transform = repr(settings.data.transform).replace(", augment=()", "")  # keeps the names of older files
    parts = [data, transform, settings.numerics.fold, device.type, threads]
    digest = json_sha256([*parts, tensors_sha256(frozen.state_dict())])
    return Path(settings.runtime.frozen_cache_dir).expanduser() / digest[:24]
