"""Augmentations by name: cutout, AutoAugment, RandAugment and mixup.

They follow the crop, flip and change of brightness, and precede the normalisation. The ranges of the operations of
AutoAugment and RandAugment are those of torchvision, the interpolation is nearest-neighbour.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat
from torch import Generator, Tensor

from ..errors import UserError
from ..specs import Count
from .augmentation_registry import AUGMENTATIONS, MIXUP
from .image_ops import CODES, NONE, apply

Byte = Annotated[int, Field(ge=0, le=255)]
Probability = Annotated[float, Field(ge=0, le=1)]
Magnitude = Annotated[int, Field(ge=0, le=30)]
Entries = Sequence[Mapping[str, Mapping[str, Any]]]  # names with their options

# Sub-policies of Cubuk et al. (CVPR 2019): for each of two operations its name, probability and magnitude from 0 to 9
CIFAR10 = """
invert .1 0 contrast .2 6|rotate .7 2 translate_x .3 9|sharpness .8 1 sharpness .9 3|shear_y .5 8 translate_y .7 9
autocontrast .5 0 equalize .9 0|shear_y .2 7 posterize .3 7|color .4 3 brightness .6 7|sharpness .3 9 brightness .7 9
equalize .6 0 equalize .5 0|contrast .6 7 sharpness .6 5|color .7 7 translate_x .5 8|equalize .3 0 autocontrast .4 0
translate_y .4 3 sharpness .2 6|brightness .9 6 color .2 8|solarize .5 2 invert .0 0|equalize .2 0 autocontrast .6 0
equalize .2 0 equalize .6 0|color .9 9 equalize .6 0|autocontrast .8 0 solarize .2 8|brightness .1 3 color .7 0
solarize .4 5 autocontrast .9 0|translate_y .9 9 translate_y .7 9|autocontrast .9 0 solarize .8 3
equalize .8 0 invert .1 0|translate_y .7 9 autocontrast .9 0
"""
IMAGENET = """
posterize .4 8 rotate .6 9|solarize .6 5 autocontrast .6 0|equalize .8 0 equalize .6 0|posterize .6 7 posterize .6 6
equalize .4 0 solarize .2 4|equalize .4 0 rotate .8 8|solarize .6 3 equalize .6 0|posterize .8 5 equalize 1 0
rotate .2 3 solarize .6 8|equalize .6 0 posterize .4 6|rotate .8 8 color .4 0|rotate .4 9 equalize .6 0
equalize .0 0 equalize .8 0|invert .6 0 equalize 1 0|color .6 4 contrast 1 8|rotate .8 8 color 1 2
color .8 8 solarize .8 7|sharpness .4 7 invert .6 0|shear_x .6 5 equalize 1 0|color .4 0 equalize .6 0
equalize .4 0 solarize .2 4|solarize .6 5 autocontrast .6 0|invert .6 0 equalize 1 0|color .6 4 contrast 1 8
equalize .8 0 equalize .6 0
"""


class Draws:
    """Random numbers for the images of a batch.

    They are drawn for the whole batch, so the result for an image does not depend on the process that computes it.

    Args:
        generator: Source of the random numbers.
        count: Number of images of the whole batch.
        part: Images for which numbers are returned.
    """

    def __init__(self, generator: Generator, count: int, part: slice | Tensor = slice(None)):
        self.generator, self.count, self.part = generator, count, part

    def uniform(self, *shape: int) -> Tensor:
        """Return numbers from 0 to 1, shape (images, *shape)."""
        return torch.rand(self.count, *shape, generator=self.generator)[self.part]

    def integers(self, high: int, *shape: int) -> Tensor:
        """Return integers from 0 to `high` - 1, shape (images, *shape)."""
        return torch.randint(high, (self.count, *shape), generator=self.generator)[self.part]


def augment_pixels(pixels: Tensor, entries: Entries, draws: Draws) -> Tensor:
    """Apply augmentations in order, except for mixup.

    Args:
        pixels: Shape (k, c, h, w), uint8.
        entries: Names of augmentations with their options.
        draws: Random numbers.

    Raises:
        UserError: If a registered augmentation fails or returns something else than uint8 pixels of the same shape.
    """
    for name, options in ((name, options) for entry in entries for name, options in entry.items() if name != MIXUP):
        try:
            result = AUGMENTATIONS[name](pixels, draws, **options)
        except Exception as error:  # a plugin may raise any
            raise UserError(f"The augmentation {name} failed: {type(error).__name__}: {error}.") from error
        if not isinstance(result, Tensor) or result.shape != pixels.shape or result.dtype != torch.uint8:
            got = f"{result.dtype} of shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result)
            raise UserError(f"The augmentation {name} must return uint8 pixels of the same shape, not {got}.")
        pixels = result
    return pixels


def cutout(pixels: Tensor, draws: Draws, size: Count = 8, fill: Byte = 128, probability: Probability = 1.0) -> Tensor:
    """Fill a square of each image (DeVries and Taylor, 2017). It may extend beyond the border.

    Args:
        pixels: Shape (k, c, h, w), uint8.
        draws: Random numbers.
        size: Side of the square in pixels.
        fill: Value of its pixels.
        probability: Share of the images that are changed.

    Returns:
        Pixels, shape (k, c, h, w), uint8.
    """
    centre, chosen = draws.uniform(2), draws.uniform() < probability
    inside = []
    for axis, side in enumerate(pixels.shape[2:]):
        start = (centre[:, axis] * side).long() - size // 2
        offset = torch.arange(side) - start[:, None]  # (k, side)
        inside.append((offset >= 0) & (offset < size) & chosen[:, None])
    square = inside[0][:, :, None] & inside[1][:, None, :]
    return pixels.masked_fill(square[:, None], fill)


def autoaugment(
    pixels: Tensor,
    draws: Draws,
    policy: Literal["cifar10", "imagenet"] = "cifar10",
    fill: Byte = 128,
    probability: Probability = 1.0,
) -> Tensor:
    """Apply one of 25 learned pairs of operations to each image (Cubuk et al., CVPR 2019).

    Args:
        pixels: Shape (k, c, h, w), uint8.
        draws: Random numbers.
        policy: Dataset that the pairs were learned on.
        fill: Value of pixels outside of the image.
        probability: Share of the images that are changed.

    Returns:
        Pixels, shape (k, c, h, w), uint8.
    """
    codes, chances, strengths = _policy(CIFAR10 if policy == "cifar10" else IMAGENET)
    chosen, pair = draws.uniform() < probability, draws.integers(len(codes))
    for number in range(2):
        applied = chosen & (draws.uniform() < chances[pair, number])
        sign = 2 * draws.integers(2) - 1
        pixels = apply(pixels, codes[pair, number].where(applied, NONE), sign * strengths[pair, number], fill)
    return pixels


def randaugment(
    pixels: Tensor,
    draws: Draws,
    operations: Count = 2,
    magnitude: Magnitude = 9,
    fill: Byte = 128,
    probability: Probability = 1.0,
) -> Tensor:
    """Apply random operations of equal magnitude to each image (Cubuk et al., NeurIPS 2020).

    Args:
        pixels: Shape (k, c, h, w), uint8.
        draws: Random numbers.
        operations: Number of operations, each drawn from 14, the identity among them.
        magnitude: Strength of the operations, from 0 to 30.
        fill: Value of pixels outside of the image.
        probability: Share of the images that are changed.

    Returns:
        Pixels, shape (k, c, h, w), uint8.
    """
    chosen = draws.uniform() < probability
    for _ in range(operations):
        code = draws.integers(len(CODES)) - 1  # from the identity to the last but one, which is `invert`
        sign = 2 * draws.integers(2) - 1
        pixels = apply(pixels, code.where(chosen, NONE), sign * magnitude / 30, fill)
    return pixels


def mixup(count: int, generator: Generator, alpha: NonNegativeFloat = 0.2) -> tuple[Tensor, float]:
    """Draw which images of a batch are mixed (Zhang et al., ICLR 2018).

    Args:
        count: Images of the batch.
        generator: Source of the random numbers.
        alpha: Parameter of the beta distribution of the weight. With 0, images are not mixed.

    Returns:
        The partner of each image, shape (count,), and the weight of the image itself; the partner has the rest.
    """
    partners = torch.randperm(count, generator=generator)
    seed = int(torch.randint(2**62, (), generator=generator))
    return partners, float(np.random.default_rng(seed).beta(alpha, alpha)) if alpha else 1.0


@functools.cache
def _policy(text: str) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, probabilities and strengths of the sub-policies, (25, 2) each."""
    words = [pair.split() for line in text.strip().splitlines() for pair in line.split("|")]
    codes = torch.tensor([[CODES[pair[0]], CODES[pair[3]]] for pair in words])
    chances = torch.tensor([[float(pair[1]), float(pair[4])] for pair in words])
    strengths = torch.tensor([[int(pair[2]) / 9, int(pair[5]) / 9] for pair in words])
    return codes, chances, strengths
