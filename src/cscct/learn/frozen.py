"""Cached outputs of frozen stages: each is computed once, so an epoch costs only the trained stages."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..data import Stream
from ..data.augment import ALL, Mixing, NMEAugmentation, Part, View
from ..data.base import CPU, to_device
from ..data.batches import prefetch
from ..errors import Warn
from ..nets import FrozenStages
from ..nets.inference import fold_norms
from ..seeding import generator
from ..storage import check_free_space
from .outputs import Outputs, SharedOutputs

Variant = NMEAugmentation | int  # int: index of an augmented view
WORTH_TELLING = 1e9  # size of the cache from which a warning is given


class FrozenView:
    """View that returns the outputs of the frozen stages instead of images.

    Each image has a fixed number of augmented views with separate random generators, so the outputs do not depend on
    when and by which run they are computed. Training selects one of them at random.

    Args:
        view: Images as inputs of the frozen stages.
        run: Function from images to the outputs of the frozen stages.
        members: Indices of the images.
        views: Number of augmented views per image.
        together: Images per forward pass; 1 on a CPU, where the last bits depend on the batch size.

    Attributes:
        in_file: Whether outputs are stored in a temporary file instead of memory.
        shared: Path prefix of files that other runs use, too; None for outputs of this run only.
        shape: Shape (h, w, c) of an output.
    """

    prefetch = 0  # most batches are only copied
    mixing: Mixing | None = None  # images are mixed before the network

    def __init__(
        self, view: View, run: Callable[[Tensor], Tensor], members: Iterable[int], views: int, together: int = 1
    ):
        self.view, self.run, self.views, self.together = view, run, views, together
        self.members = torch.tensor(sorted(members))
        self.cached: dict[Variant, Outputs] = {}
        self.in_file = False
        self.shared: Path | None = None
        self.shape = self._forward(self._inputs(self.members[:1], "none")).shape[1:]

    def bytes(self, augmented: int, others: int) -> int:
        """Return the size of the complete cache in bytes.

        Args:
            augmented: Number of augmented views per image, stored as float16.
            others: Number of other views per image, stored as float32.
        """
        return len(self.members) * self.shape.numel() * (2 * augmented + 4 * others)

    def train(
        self, indices: Tensor, generator: torch.Generator, part: Part = ALL, device: torch.device = CPU
    ) -> Tensor:
        """Return outputs for randomly selected augmented views, see `View.train`."""
        drawn = torch.randint(self.views, (len(indices),), generator=generator)[part]
        members = indices[part]
        outputs = torch.empty(len(members), *self.shape)
        for number in range(self.views):
            selected = drawn == number
            outputs[selected] = self._outputs(members[selected], number)
        return to_device(outputs.permute(0, 3, 1, 2), device)

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none", device: torch.device = CPU) -> Tensor:
        """Return outputs for images with the test transform, see `View.plain`."""
        return to_device(self._outputs(indices, variant).permute(0, 3, 1, 2), device)

    def _outputs(self, indices: Tensor, variant: Variant) -> Tensor:
        """Return outputs, shape (k, h, w, c). Missing outputs are computed."""
        if variant not in self.cached:
            self.cached[variant] = self._allocate(variant)
        outputs = self.cached[variant]
        missing = outputs.missing(indices)
        chunks = missing.split(self.together) if len(missing) else ()
        inputs = prefetch(lambda n: self._inputs(chunks[n], variant), len(chunks), self.view.prefetch)
        for chunk, images in zip(chunks, inputs, strict=True):
            outputs.put(chunk, self._forward(images))
        return outputs.get(indices)

    def _allocate(self, variant: Variant) -> Outputs:
        """Return empty storage for the outputs of all images.

        Augmented views are stored as float16, which changes features by 2e-4 of their norm (EfficientNet-Lite0,
        stage 5). Views for evaluation are stored as float32.
        """
        dtype = np.float16 if isinstance(variant, int) else np.float32
        shape = (int(self.members[-1]) + 1, *self.shape)
        if self.shared is None:
            return Outputs(shape, dtype, in_file=self.in_file)
        return SharedOutputs(self.shared.with_name(f"{self.shared.name}-{variant}"), shape, dtype)

    def _inputs(self, indices: Tensor, variant: Variant) -> Tensor:
        if not isinstance(variant, int):
            return self.view.plain(indices, variant)
        generators = [generator(0, "view", int(index), variant) for index in indices]
        pairs = zip(indices, generators, strict=True)
        return torch.cat([self.view.train(index[None], random) for index, random in pairs])

    def _forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self.run(images).float().cpu().permute(0, 2, 3, 1)


def run_frozen(frozen_stages: FrozenStages, device: torch.device, *, fold: bool) -> Callable[[Tensor], Tensor]:
    """Return a function from images to the outputs of the frozen stages.

    Args:
        frozen_stages: Frozen stages. They are copied.
        device: Device of the computation.
        fold: Whether batch norms are folded into convolutions.
    """
    module = copy.deepcopy(frozen_stages).eval().requires_grad_(False)
    module = fold_norms(module) if fold else module
    module = module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return lambda images: module(images.to(device))


def through_frozen(
    stream: Stream,
    run: Callable[[Tensor], Tensor],
    views: int,
    *,
    on_cpu: bool,
    processes: int,
    shared: Path | None,
    warn: Warn,
) -> Stream:
    """Return a stream that contains the outputs of the frozen stages instead of images.

    Args:
        stream: Stream of images.
        run: Function from images to the outputs of the frozen stages.
        views: Number of augmented views per image.
        on_cpu: Whether `run` computes on a CPU.
        processes: Number of processes on this machine that store outputs.
        shared: Path prefix of files that other runs use, too; None for outputs of this run only.
        warn: Called with each warning.

    Raises:
        UserError: If the disk has not enough space for the outputs.
    """

    def wrapped(view: View, members: tuple[tuple[int, ...], ...], split: str) -> FrozenView:
        indices = (index for class_members in members for index in class_members)
        frozen_view = FrozenView(view, run, indices, views, 1 if on_cpu else 32)
        frozen_view.shared = shared and shared.with_name(f"{shared.name}-{split}")
        return frozen_view

    train, test = (
        wrapped(stream.train_view, stream.train + stream.validation, "train"),
        wrapped(stream.test_view, stream.test, "test"),
    )
    needed = (1 if shared else processes) * (train.bytes(views, 2) + test.bytes(0, 1))
    train.in_file = test.in_file = needed > _memory() / 2
    if train.in_file and shared is None:
        advice = "use a smaller network.cached_views, or set the variable TMPDIR to another folder"
        check_free_space(Path(tempfile.gettempdir()), needed, "The outputs of the frozen stages", advice)
    if needed > WORTH_TELLING:
        where = f"in a temporary file in {tempfile.gettempdir()}" if train.in_file else "in memory"
        where = f"in {shared.parent}" if shared else where
        warn(
            f"The outputs of the frozen stages for {len(train.members):,} training images are stored {where}, up to "
            f"{needed / 1e9:.1f} GB: a smaller network.cached_views needs less."
        )
    return replace(stream, train_view=train, test_view=test)


def _memory() -> float:
    """Return the memory of this machine in bytes."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not available on every system
        return 8e9
