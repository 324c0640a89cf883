"""One pass of a network over images: features and scores, with unreadable images reported."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ..data.batches import prefetch
from ..data.inputs import ImageFormat, Item, ItemReader, group_of
from ..data.registry import Progress, no_progress
from ..errors import UserError
from ..learn.device import precision_context
from ..learn.evaluation import infer
from ..nets import Network, for_inference


@dataclass(frozen=True)
class ImageOutputs:
    """Outputs of a network for the readable images of a list.

    Attributes:
        features: (readable, d) float32.
        logits: (readable, classes of the head) float32.
        readable: Indices of the readable images.
        errors: Error of each other image, by index.
        digests: Hash of the pixels of each readable image: equal for equal pixels.
        groups: Source of each readable image that has several similar ones, such as a video; else None. See `group_of`.
    """

    features: Tensor
    logits: Tensor
    readable: list[int] = field(default_factory=list)
    errors: dict[int, UserError] = field(default_factory=dict)
    digests: list[bytes] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)

    def raise_first_error(self) -> None:
        """Raise the error of the first unreadable image, if there is one."""
        if self.errors:
            raise next(iter(self.errors.values()))


class NetworkReader:
    """A network prepared for inference, and the image format it reads.

    Args:
        network: The network; it is copied for inference.
        format: How it reads images.
        device: Where inference runs.
        batch_size: Images per forward pass.
        precision: Name of the numerical precision; see `numerics.precision`.
        fold: Whether batch norms are folded into convolutions.
    """

    def __init__(
        self,
        network: Network,
        format: ImageFormat,
        device: torch.device,
        batch_size: int,
        precision: str = "32-true",
        fold: bool = True,
    ):
        self.network, self.format, self.device, self.batch_size = network, format, device, batch_size
        self.precision, self.fold = precision, fold
        self.inference = for_inference(network, fold=fold).to(device)
        self._precision = precision_context(precision, device)

    @property
    def features(self) -> int:
        """Dimensions of the features."""
        return self.network.head.features

    def with_network(self, network: Network) -> NetworkReader:
        """Return a reader of the same images with another network."""
        return NetworkReader(network, self.format, self.device, self.batch_size, self.precision, self.fold)

    def read(
        self, items: Sequence[Item], progress: Progress = no_progress, known: Container[bytes] = ()
    ) -> ImageOutputs:
        """Run the network over images, in order.

        Args:
            items: The images.
            progress: Called with a description, the number of images done and the total.
            known: Hashes of images that are not run through the network; their outputs are zero.

        Returns:
            Outputs of the readable images, and the errors of the others.
        """
        reader = ItemReader(items, self.format)
        chunks = [range(start, min(start + self.batch_size, len(items))) for start in _starts(items, self.batch_size)]
        outputs = ImageOutputs(torch.empty(0, self.features), torch.empty(0, self.network.head.classes))
        features, logits = [outputs.features], [outputs.logits]
        depth = 0 if len(chunks) < 2 else reader.prefetch
        for chunk, pixels in zip(chunks, prefetch(lambda i: reader.pixels(chunks[i]), len(chunks), depth), strict=True):
            new, images = [], []
            first = len(outputs.readable)
            for index, image in zip(chunk, pixels, strict=True):
                if isinstance(image, UserError):
                    outputs.errors[index] = image
                    continue
                outputs.readable.append(index)
                outputs.digests.append(_digest(image))
                if outputs.digests[-1] not in known:
                    new.append(len(outputs.readable) - 1 - first)
                    images.append(image)
            batches = self._forward(reader.normalized(images)) if images else (outputs.features, outputs.logits)
            for rows, batch in zip((features, logits), batches, strict=True):
                rows.append(_placed(batch, new, len(outputs.readable) - first))
            progress("reading images", chunk[-1] + 1, len(items))
        return replace(
            outputs,
            features=torch.cat(features),
            logits=torch.cat(logits),
            groups=[group_of(items[index]) for index in outputs.readable],
        )

    def digest(self, item: Item) -> bytes | None:
        """Return the hash of the pixels of an image as the network reads them; None if it cannot be read."""
        (pixels,) = ItemReader([item], self.format).pixels(range(1))
        return None if isinstance(pixels, UserError) else _digest(pixels)

    def _forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        output = infer(self.inference, images.to(self.device), self._precision)
        return output.features, output.logits


def _placed(rows: Tensor, positions: Sequence[int], count: int) -> Tensor:
    """Return `count` rows, of which those at the positions are given and the others are zero."""
    if len(positions) == count:
        return rows
    return rows.new_zeros(count, rows.shape[1]).index_copy(0, torch.tensor(positions, dtype=torch.int64), rows)


def _digest(pixels: np.ndarray) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()[:16]


def _starts(items: Sequence[Item], batch_size: int) -> range:
    return range(0, len(items), batch_size)
