"""Frozen stages: what they give for an image is computed once and kept, so that an epoch costs only what trains."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..data import Stream
from ..data.augment import ALL, NMEAugmentation, View
from ..data.batches import prefetch
from ..errors import UserError, Warn
from ..nets import Trunk
from ..nets.inference import fold_norms
from ..seeding import generator
from .outputs import Outputs, SharedOutputs

Variant = NMEAugmentation | int  # a number: that augmented view
WORTH_TELLING = 1e9  # bytes from which on a warning says how much is kept


class TrunkView:
    """A view that gives the trunk's outputs instead of images.

    An image has a fixed number of augmented views, each drawn from a generator of its own, so it does not matter when
    and by which run they are computed. Training takes one of them at random.

    run: the trunk's output for images. members: the images that may be asked for. together: images in one pass of the
    trunk; 1 on a CPU, where the last bits depend on how many there are.
    """

    prefetch = 0  # most batches are only copied

    def __init__(
        self, view: View, run: Callable[[Tensor], Tensor], members: Iterable[int], views: int, together: int = 1
    ):
        self.view, self.run, self.views, self.together = view, run, views, together
        self.members = torch.tensor(sorted(members))
        self.kept: dict[Variant, Outputs] = {}
        self.in_file = False
        self.shared: Path | None = None  # how files begin in which outputs outlive the run
        self.shape = self._passed(self._inputs(self.members[:1], "none")).shape[1:]

    def bytes(self, augmented: int, others: int) -> int:
        """What the outputs for so many views take, once they are all there."""
        return len(self.members) * self.shape.numel() * (2 * augmented + 4 * others)

    def train(self, indices: Tensor, generator: torch.Generator, part: slice = ALL) -> Tensor:
        drawn = torch.randint(self.views, (len(indices),), generator=generator)[part]
        own = indices[part]
        outputs = torch.empty(len(own), *self.shape)
        for number in range(self.views):
            chosen = drawn == number
            outputs[chosen] = self._outputs(own[chosen], number)
        return outputs.permute(0, 3, 1, 2)

    def plain(self, indices: Tensor, variant: NMEAugmentation = "none") -> Tensor:
        return self._outputs(indices, variant).permute(0, 3, 1, 2)

    def _outputs(self, indices: Tensor, variant: Variant) -> Tensor:
        """(k, h, w, c); those that are missing are computed."""
        if variant not in self.kept:
            self.kept[variant] = self._place(variant)
        outputs = self.kept[variant]
        missing = outputs.missing(indices)
        chunks = missing.split(self.together) if len(missing) else ()
        inputs = prefetch(lambda n: self._inputs(chunks[n], variant), len(chunks), self.view.prefetch)
        for chunk, images in zip(chunks, inputs, strict=True):
            outputs.put(chunk, self._passed(images))
        return outputs.get(indices)

    def _place(self, variant: Variant) -> Outputs:
        """For the outputs of all images. Augmented views have 16 bits, which changes features by 2e-4 of their length
        (EfficientNet-Lite0, stage 5); what is measured with has 32."""
        dtype = np.float16 if isinstance(variant, int) else np.float32
        shape = (int(self.members[-1]) + 1, *self.shape)
        if self.shared is None:
            return Outputs(shape, dtype, in_file=self.in_file)
        return SharedOutputs(self.shared.with_name(f"{self.shared.name}-{variant}"), shape, dtype)

    def _inputs(self, indices: Tensor, variant: Variant) -> Tensor:
        if not isinstance(variant, int):
            return self.view.plain(indices, variant)
        drawn = [(one, generator(0, "view", int(one), variant)) for one in indices]
        return torch.cat([self.view.train(one[None], draws) for one, draws in drawn])

    def _passed(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self.run(images).float().cpu().permute(0, 2, 3, 1)


def run_trunk(trunk: Trunk, device: torch.device, *, fold: bool) -> Callable[[Tensor], Tensor]:
    """The trunk as a function of images, on a device."""
    own = copy.deepcopy(trunk).eval().requires_grad_(False)
    own = fold_norms(own) if fold else own
    own = own.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return lambda images: own(images.to(device))


def through_trunk(
    stream: Stream,
    run: Callable[[Tensor], Tensor],
    views: int,
    *,
    on_cpu: bool,
    processes: int,
    shared: Path | None,
    warn: Warn,
) -> Stream:
    """The stream with the trunk's outputs in place of images.

    processes: that each keep outputs on this machine. shared: how files begin in which other runs find them.
    """

    def wrapped(view: View, members: tuple[tuple[int, ...], ...], split: str) -> TrunkView:
        indices = (index for one in members for index in one)
        found = TrunkView(view, run, indices, views, 1 if on_cpu else 32)
        found.shared = shared and shared.with_name(f"{shared.name}-{split}")
        return found

    train, test = wrapped(stream.train_view, stream.train, "train"), wrapped(stream.test_view, stream.test, "test")
    needed = (1 if shared else processes) * (train.bytes(views, 2) + test.bytes(0, 1))
    train.in_file = test.in_file = needed > _memory() / 2
    if train.in_file and shared is None:
        _check_room(needed)
    if needed > WORTH_TELLING:
        where = f"in a temporary file in {tempfile.gettempdir()}" if train.in_file else "in memory"
        where = f"in {shared.parent}" if shared else where
        warn(
            f"The outputs of the frozen stages for {len(train.members):,} training images are kept {where}, up to "
            f"{needed / 1e9:.1f} GB: a smaller network.views needs less."
        )
    return replace(stream, train_view=train, test_view=test)


def _memory() -> float:
    """Of this machine, in bytes."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return 8e9


def _check_room(needed: float) -> None:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"The outputs of the frozen stages take up to {needed / 1e9:,.1f} GB, and {folder} has room for "
            f"{free / 1e9:,.1f}: make network.views smaller, or name another place in the variable TMPDIR."
        )
