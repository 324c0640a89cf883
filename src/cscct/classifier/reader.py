"""One pass of a network over images: features and scores, with unreadable images reported."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Barrier

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
from ..nets.custom import CustomBackbone

STREAM_BATCH = 16  # images of a forward pass of a stream: large enough to be fast, small enough to divide few images
MAX_STREAMS = 8  # each holds the activations of a batch


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


@dataclass(frozen=True)
class _Pass:
    """One pass over some images: hash of the pixels or error of each, and outputs for those without an error.

    Outputs of known images are zero.
    """

    digests: list[bytes | UserError]
    features: Tensor
    logits: Tensor


class NetworkReader:
    """A network prepared for inference, and the image format it reads.

    Args:
        network: The network; it is copied for inference and must not change.
        format: How it reads images.
        device: Where inference runs.
        batch_size: Images per forward pass; at most 16 where several passes run at the same time.
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
        self._precision = precision_context(precision, device)

    @cached_property
    def inference(self) -> Network:
        """Copy of the network for inference; made when first needed."""
        return for_inference(self.network, fold=self.fold).to(self.device)

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
        features, logits = [torch.empty(0, self.features)], [torch.empty(0, self.network.head.classes)]
        outputs = ImageOutputs(features[0], logits[0])
        for chunk, passed in self._passes(items, known):
            for index, digest in zip(chunk, passed.digests, strict=True):
                if isinstance(digest, UserError):
                    outputs.errors[index] = digest
                else:
                    outputs.readable.append(index)
                    outputs.digests.append(digest)
            features.append(passed.features)
            logits.append(passed.logits)
            progress("reading images", chunk[-1] + 1, len(items))
        return replace(
            outputs,
            features=torch.cat(features),
            logits=torch.cat(logits),
            groups=[group_of(items[index]) for index in outputs.readable],
        )

    def _passes(self, items: Sequence[Item], known: Container[bytes]) -> Iterator[tuple[range, _Pass]]:
        """Yield consecutive indices of images and the pass over them.

        On a CPU with several threads, images are divided among streams, which decode them and run the network, each in
        its share of the threads. No stream waits for another, unlike the threads of an operation. Elsewhere, images are
        decoded while the network runs.
        """
        threads = torch.get_num_threads() if self.device.type == "cpu" else 1
        size = self.batch_size if threads == 1 else min(self.batch_size, STREAM_BATCH)
        chunks = [range(start, min(start + size, len(items))) for start in range(0, len(items), size)]
        streams = min(threads, len(chunks), MAX_STREAMS)
        if isinstance(self.network.backbone, CustomBackbone):  # may not support several threads
            streams = 1
        if streams > 1:
            reader, network = ItemReader(items, self.format, workers=1), self.inference

            def pass_over(number: int) -> _Pass:
                return self._pass(reader, network, reader.pixels(chunks[number]), known)

            with (
                _torch_threads(streams, threads) as pool,
                closing(prefetch(pass_over, len(chunks), 2 * streams, pool)) as passes,
            ):
                yield from zip(chunks, passes, strict=True)
            return
        reader = ItemReader(items, self.format)
        depth = 0 if len(chunks) < 2 else reader.prefetch
        for chunk, pixels in zip(chunks, prefetch(lambda i: reader.pixels(chunks[i]), len(chunks), depth), strict=True):
            yield chunk, self._pass(reader, self.inference, pixels, known)

    def _pass(
        self,
        reader: ItemReader,
        network: Network,
        pixels: Sequence[np.ndarray | UserError],
        known: Container[bytes],
    ) -> _Pass:
        readable = [image for image in pixels if not isinstance(image, UserError)]
        digests = list(map(_digest, readable))
        hashes = iter(digests)
        results = [image if isinstance(image, UserError) else next(hashes) for image in pixels]
        new = [position for position, digest in enumerate(digests) if digest not in known]
        features = torch.zeros(len(readable), self.features)
        logits = torch.zeros(len(readable), self.network.head.classes)
        if new:
            images = reader.normalized([readable[position] for position in new])
            output = infer(network, images.to(self.device), self._precision)
            features[new], logits[new] = output.features, output.logits
        return _Pass(results, features, logits)

    def digest(self, item: Item) -> bytes | None:
        """Return the hash of the pixels of an image as the network reads them; None if it cannot be read."""
        (pixels,) = ItemReader([item], self.format).pixels(range(1))
        return None if isinstance(pixels, UserError) else _digest(pixels)


def _digest(pixels: np.ndarray) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()[:16]


@contextmanager
def _torch_threads(count: int, threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads that share the threads of torch: each runs its operations in `threads // count`."""
    started = Barrier(count + 1)

    def prepare() -> None:
        torch.get_num_threads()  # the first call in a thread replaces its number by that of the process
        torch.set_num_threads(threads // count)

    with ThreadPoolExecutor(count, initializer=prepare) as pool:
        for _ in range(count):
            pool.submit(started.wait)
        started.wait()
        torch.set_num_threads(threads)  # of this thread again, and of threads that start later
        yield pool
