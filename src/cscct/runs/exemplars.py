"""Exemplars of a finished run, stored with its model so that the model can keep learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from torch import Tensor, frombuffer, uint8

from ..data import ArrayImages, Dataset
from ..data.encoding import encode, within_budget
from ..data.inputs import ImageFormat, Item
from ..errors import UserError
from ..features import ClassStatistics
from ..learn.learner import Learner
from ..storage import read_tensors, save_tensors
from .folder import EXEMPLARS


@dataclass(frozen=True)
class RunExemplars:
    """What a run stores for further learning, by position of the class in the class order.

    Attributes:
        images: Encoded exemplars in rank order; images that `memory.held_back` reserves follow.
        statistics: Of the features that the predictors of the run were fitted to.
        stored: Stored targets of the exemplars; see `memory.store`.
        extension: State of the method's extension, by name.
    """

    images: dict[int, list[bytes]] = field(default_factory=dict)
    statistics: dict[int, ClassStatistics] = field(default_factory=dict)
    stored: dict[int, Tensor] = field(default_factory=dict)
    extension: dict[str, Tensor] = field(default_factory=dict)


def collect_exemplars(learner: Learner, dataset: Dataset, format: ImageFormat, megabytes: float) -> RunExemplars:
    """Collect the exemplars of a learner after its last task.

    Args:
        learner: The learner.
        dataset: The dataset of the run.
        format: How the network reads images.
        megabytes: Limit of the images, and of the statistics; what exceeds it is left out.
    """
    classes = learner.stream.tasks[-1].n_seen
    reserved = learner.memory.spec.held_back_of(classes)
    images: dict[int, list[bytes]] = {}
    for label, ranked in learner.memory.exemplars.items():
        last = learner.stream.train[label][1:][-reserved:] if reserved else ()
        if megabytes:
            images[label] = [encode(_item(dataset, index), format) for index in (*ranked, *last)]
    statistics = dict(enumerate(learner.class_statistics))
    size = sum(t.numel() * t.element_size() for stats in statistics.values() for t in stats.tensors().values())
    stored = {label: rows.cpu() for label, rows in learner.memory.stored.items()}
    return RunExemplars(
        images=within_budget(images, megabytes),
        statistics=statistics if size <= megabytes * 1e6 else {},
        stored=stored if megabytes else {},
        extension={name: tensor.cpu() for name, tensor in learner.extension.state_dict().items()} if megabytes else {},
    )


def _item(dataset: Dataset, index: int) -> Item:
    images = dataset.train.images
    if isinstance(images, ArrayImages):
        pixels: np.ndarray = images.pixels[index].numpy()
        return pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    return images.paths[index]


def save_exemplars(folder: Path, exemplars: RunExemplars) -> None:
    """Write exemplars to a run folder."""
    tensors: dict[str, Tensor] = {f"stored.{label}": rows for label, rows in exemplars.stored.items()}
    tensors |= {f"extension.{name}": tensor for name, tensor in exemplars.extension.items()}
    for label, images in exemplars.images.items():
        for rank, image in enumerate(images):
            tensors[f"images.{label}.{rank}"] = frombuffer(bytearray(image), dtype=uint8)
    for label, stats in exemplars.statistics.items():
        tensors |= {f"statistics.{label}.{name}": tensor for name, tensor in stats.tensors().items()}
    save_tensors(folder / EXEMPLARS, tensors)


def load_exemplars(folder: Path) -> RunExemplars:
    """Read the exemplars of a run folder; empty if there are none, as in runs before version 0.4.

    Raises:
        UserError: The file is damaged.
    """
    path = folder / EXEMPLARS
    if not path.exists():
        return RunExemplars()
    try:
        tensors, _ = read_tensors(path)
        return _unpack(tensors)
    except (ValueError, LookupError) as error:
        raise UserError(
            f"{path} is damaged ({error}): delete it. The model then keeps predicting, and its method cannot continue."
        ) from error


def _unpack(tensors: Mapping[str, Tensor]) -> RunExemplars:
    images: dict[int, dict[int, bytes]] = {}
    parts: dict[int, dict[str, Tensor]] = {}
    stored: dict[int, Tensor] = {}
    extension: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("extension."):
            extension[name.removeprefix("extension.")] = tensor
            continue
        kind, label, *rest = name.split(".")
        if kind == "images":
            images.setdefault(int(label), {})[int(rest[0])] = tensor.numpy().tobytes()
        elif kind == "statistics":
            parts.setdefault(int(label), {})[rest[0]] = tensor
        elif kind == "stored":
            stored[int(label)] = tensor
    return RunExemplars(
        {label: [ranked[rank] for rank in sorted(ranked)] for label, ranked in sorted(images.items())},
        {label: ClassStatistics.from_tensors(fields) for label, fields in sorted(parts.items())},
        stored,
        extension,
    )
