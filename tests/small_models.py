"""Small classifiers: random features, and images of plain colours."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from cscct import IncrementalClassifier


class Colours(nn.Module):
    """A backbone without weights: means of a grid of cells."""

    features = 48

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 4).flatten(1)


def blobs(classes: int, each: int, seed: int = 0, width: int = 12) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Features of overlapping classes."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, width))
    y = np.repeat(np.arange(classes), each)
    return (centres[y] + 0.7 * rng.normal(size=(len(y), width))).astype(np.float32), y


def pictures(colour: tuple[int, int, int], count: int, seed: int = 0) -> NDArray[np.uint8]:
    noise = np.random.default_rng(seed).integers(-40, 40, (count, 20, 24, 3))
    return (np.array(colour) + noise).clip(0, 255).astype(np.uint8)


def colours_model(**settings: object) -> IncrementalClassifier:
    model = IncrementalClassifier(Colours(), image_size=16, **settings)
    return model.learn(pictures((200, 60, 60), 8), "red").learn(pictures((60, 60, 200), 8, 1), "blue")
