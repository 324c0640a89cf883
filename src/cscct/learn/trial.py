"""A trial of the parts of a run on copies and a few images, before anything is written."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import torch

from ..errors import RunFailed, UserError
from ..methods import Extension, TaskContext
from ..nets import GrowingBackbone, Network
from ..plugins import plugin_errors_explained
from ..seeding import generator
from ..structs import Batch
from .learner import Learner


def try_parts(learner: Learner) -> None:
    """Find errors of backbones, heads and extensions that settings alone do not show.

    The network must compute scores of the classes of the first task, also after it has grown. The extension must keep
    nothing but tensors when the task begins and ends. It gets one image of each class; other errors of `end_task` are
    ignored, because so few images can cause them.

    Args:
        learner: Learner that has not learned a task. It is not changed.

    Raises:
        UserError: If the network cannot be evaluated, or the extension fails or keeps state that cannot be saved.
    """
    if not learner.config.network.train_backbone:
        return
    task = learner.stream.tasks[0]
    network = copy.deepcopy(learner.network)
    network.head.grow(network.head.init_weights(task.n_new, generator(0)))

    def batches(pool: str, size: int, count: int | None = None) -> Iterator[Batch]:
        number = min(count or task.n_new, task.n_new)
        return learner.pools.batches(learner.device, task, "new", size, number)

    images = next(batches("new", 2)).images
    _try_network(network, images)
    if type(learner.extension) is not Extension:
        no_images = torch.zeros(task.n_new, task.n_new), torch.arange(task.n_new)
        context = replace(learner.context(task), network=network, batches=batches, held_back=lambda: no_images)
        with plugin_errors_explained():
            _try_extension(replace(learner.extension), context)
    if isinstance(network.backbone, GrowingBackbone):
        _try_network(network, images, grow=True)


def _try_network(network: Network, images: torch.Tensor, *, grow: bool = False) -> None:
    """Evaluate the network, after it has grown if requested."""
    try:
        if grow:
            network.grow(generator(0))
        with torch.no_grad():
            network.eval()(images).logits.reshape(len(images), network.head.classes)
    except Exception as error:
        head, backbone = type(network.head).__name__, type(network.backbone).__name__
        when, repair = (" after it has grown", " (`Head.widen`)") if grow else ("", "")
        raise UserError(
            f"The head {head} does not compute scores for the backbone {backbone}{when} ({type(error).__name__}: "
            f"{error}): correct them{repair}, or set network.head to linear."
        ) from error


def _try_extension(extension: Extension, context: TaskContext) -> None:
    extension.begin_task(context)
    try:
        extension.state_dict()
        with suppress(Exception):
            extension.end_task(context)
        extension.state_dict()
    except RunFailed as error:
        raise UserError(str(error)) from error
