"""Image operations of AutoAugment and RandAugment on batches, with a strength for each image.

Operations take uint8 images (k, c, h, w) and strengths (k,) from -1 to 1, where 0 leaves an image unchanged, and return
uint8 images. The results are those of Pillow.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

MAX_SHEAR = 0.3
MAX_SHIFT = 150 / 331  # of the side of the image
MAX_DEGREES = 30.0
MAX_ENHANCEMENT = 0.9
MAX_BITS = 4  # removed by posterize

Operation = Callable[[Tensor, Tensor, int], Tensor]  # images, strengths, fill value


def affine(images: Tensor, matrix: Tensor, fill: int) -> Tensor:
    """Transform images with nearest-neighbour interpolation.

    Args:
        images: Shape (k, c, h, w).
        matrix: Shape (k, 2, 3): from coordinates (x, y, 1) of the result to coordinates (x, y) of the image. The centre
            of the first pixel is (0.5, 0.5).
        fill: Value of pixels outside of the image.

    Returns:
        Images, shape (k, c, h, w).
    """
    k, channels, height, width = images.shape
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    places = torch.stack([x, y, torch.ones_like(x)]).flatten(1).double()  # (3, h * w)
    column, row = (matrix.double() @ places).floor().long().unbind(1)  # (k, h * w) each
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1))[:, None].expand(k, channels, -1)
    moved = images.flatten(2).gather(2, source).masked_fill(~inside[:, None], fill)
    return moved.view(images.shape)


def _matrix(k: int, **entries: Tensor) -> Tensor:
    """Identity matrices (k, 2, 3) in which some entries, named by row and column, are replaced."""
    matrix = torch.eye(2, 3, dtype=torch.float64).repeat(k, 1, 1)
    for place, values in entries.items():
        matrix[:, int(place[1]), int(place[2])] = values.double()
    return matrix


def shear_x(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Shift each row in proportion to its height in the image."""
    return affine(images, _matrix(len(images), m01=strength * MAX_SHEAR), fill)


def shear_y(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Shift each column in proportion to its position in the image."""
    return affine(images, _matrix(len(images), m10=strength * MAX_SHEAR), fill)


def translate_x(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Shift images horizontally by whole pixels."""
    return affine(images, _matrix(len(images), m02=(strength * MAX_SHIFT * images.shape[3]).trunc()), fill)


def translate_y(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Shift images vertically by whole pixels."""
    return affine(images, _matrix(len(images), m12=(strength * MAX_SHIFT * images.shape[2]).trunc()), fill)


def rotate(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Rotate images counter-clockwise around their centre."""
    angle = (strength.double() * MAX_DEGREES).deg2rad()
    cos, sin = angle.cos(), angle.sin()
    y, x = images.shape[2] / 2, images.shape[3] / 2
    shift_x, shift_y = x - cos * x + sin * y, y - sin * x - cos * y
    return affine(images, _matrix(len(images), m00=cos, m01=-sin, m02=shift_x, m10=sin, m11=cos, m12=shift_y), fill)


def _blend(degenerate: Tensor, images: Tensor, strength: Tensor) -> Tensor:
    """Interpolate between a degenerate image (factor 0) and the image (factor 1), and extrapolate beyond."""
    factor = (1 + MAX_ENHANCEMENT * strength).float().view(-1, 1, 1, 1)
    start = degenerate.float()
    return (start + factor * (images.float() - start)).clamp(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Return the luminance (k, 1, h, w), uint8."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor([19595, 38470, 7471]).view(1, 3, 1, 1)  # ITU-R 601-2, in units of 2 ** -16
    return ((images.long() * weights).sum(1, keepdim=True) + 0x8000 >> 16).to(torch.uint8)


def brightness(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Change the brightness: the degenerate image is black."""
    return _blend(torch.zeros_like(images), images, strength)


def color(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Change the saturation: the degenerate image is grey."""
    return _blend(_grey(images).expand_as(images), images, strength)


def contrast(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Change the contrast: the degenerate image has the mean luminance everywhere."""
    mean = (_grey(images).double().mean((1, 2, 3), keepdim=True) + 0.5).floor()
    return _blend(mean.expand_as(images), images, strength)


def sharpness(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Change the sharpness: the degenerate image is smoothed, except for its border."""
    if min(images.shape[2:]) < 3:
        return images
    kernel = torch.ones(1, 1, 3, 3)
    kernel[..., 1, 1] = 5
    smooth = images.clone()
    inner = F.conv2d(images.float().flatten(0, 1)[:, None], kernel / kernel.sum())
    smooth[:, :, 1:-1, 1:-1] = (inner + 0.5).clamp(0, 255).to(torch.uint8).view(*images.shape[:2], *inner.shape[2:])
    return _blend(smooth, images, strength)


def posterize(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Set the lowest bits to zero."""
    removed = (strength.abs() * MAX_BITS).round().long().view(-1, 1, 1, 1)
    return (images.long() >> removed << removed).to(torch.uint8)


def solarize(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Invert the bright pixels."""
    threshold = (256 * (1 - strength.abs())).view(-1, 1, 1, 1)
    return torch.where(images >= threshold, 255 - images, images)


def invert(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Invert all pixels; the strength has no effect."""
    return 255 - images


def autocontrast(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Stretch the values of each channel to 0 to 255; the strength has no effect."""
    rows = images.flatten(2).double()
    low, high = rows.amin(2, keepdim=True), rows.amax(2, keepdim=True)
    scale = torch.tensor(255.0, dtype=torch.float64) / (high - low)  # infinite for a channel of one value
    stretched = (rows * scale - low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, rows).to(torch.uint8).view(images.shape)


def equalize(images: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Give each channel an approximately uniform histogram; the strength has no effect."""
    rows = images.flatten(0, 1).flatten(1).long()  # (k * c, h * w)
    counts = torch.zeros(len(rows), 256, dtype=torch.int64).scatter_add_(1, rows, torch.ones_like(rows))
    last = counts.gather(1, rows.amax(1, keepdim=True))
    step = (rows.shape[1] - last) // 255
    below = counts.cumsum(1) - counts
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(1, rows), rows).to(torch.uint8).view(images.shape)


OPERATIONS: dict[str, Operation] = {
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "rotate": rotate,
    "brightness": brightness,
    "color": color,
    "contrast": contrast,
    "sharpness": sharpness,
    "posterize": posterize,
    "solarize": solarize,
    "autocontrast": autocontrast,
    "equalize": equalize,
    "invert": invert,
}
CODES = {name: code for code, name in enumerate(OPERATIONS)}
NONE = -1  # code of no operation


def apply(images: Tensor, codes: Tensor, strength: Tensor, fill: int) -> Tensor:
    """Apply an operation to each image.

    Args:
        images: Shape (k, c, h, w), uint8.
        codes: Shape (k,), int64: values of `CODES`, or `NONE`.
        strength: Shape (k,): from -1 to 1.
        fill: Value of pixels outside of the image.

    Returns:
        Images, shape (k, c, h, w), uint8.
    """
    result = images.clone()
    for name, code in CODES.items():
        chosen = codes == code
        if chosen.any():
            result[chosen] = OPERATIONS[name](images[chosen], strength[chosen], fill)
    return result
