"""Alterations of a batch of images. The draws are an input: a number from [0, 1) for each image and purpose.

Images are tensors [samples, channels, height, width] of any number type, black at one level and white at another. Nothing here
has a gradient, so that operations whose gradient a GPU sums in no fixed order do no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mltrainer.configs.augmenting import Affine, Augment, Colour, RandAugment

Draw = Callable[[str, int], np.ndarray]  # purpose and count to float64 [samples, count] in [0, 1)
STRONGEST = 30.0  # the largest of RandAugment's magnitudes
ERASED = (0.02, 1 / 3)  # share of an image, as in the paper
ASPECT = 0.3  # the flattest rectangle that is erased; the steepest is its inverse
LUMA = (0.299, 0.587, 0.114)  # of red, green, blue (ITU-R BT.601)


@dataclass(frozen=True)
class Levels:
    """The levels of black and white."""

    low: float
    high: float


def augment(x: Tensor, config: Augment, levels: Levels, draw: Draw) -> Tensor:
    """Return images altered one by one; float32 where levels between the given ones come about, else the images' type."""
    if config.crop or config.flip:
        x = crop_and_flip(x, config, levels, draw)
    if config.affine:
        x = affine_transform(x.float(), config.affine, levels, draw)
    if config.colour:
        x = jitter_colour(x.float(), config.colour, levels, draw)
    if config.randaugment:
        x = rand_augment(x.float(), config.randaugment, levels, draw)
    return random_erase(x, config.erase, draw) if config.erase else x


def _numbers(x: Tensor, values: np.ndarray) -> Tensor:
    """Return a number for each image, shaped to broadcast with them."""
    return torch.from_numpy(values.astype(np.float32)).to(x.device).reshape(-1, 1, 1, 1)


def _either_way(draws: np.ndarray) -> np.ndarray:
    return 2 * draws - 1


# --- places -------------------------------------------------------------------------------------


def crop_and_flip(x: Tensor, config: Augment, levels: Levels, draw: Draw) -> Tensor:
    """Return images cut at a drawn place and mirrored; pixels move whole."""
    reach = config.crop or 0
    shifts = np.floor(draw("crop", 2) * (2 * reach + 1)).astype(np.int64) - reach
    mirrored = draw("flip", 2) < 0.5
    mirrored &= [config.flip in ("vertical", "both"), config.flip in ("horizontal", "both")]
    for axis in (2, 3):
        places, inside = _places(x.shape[axis], shifts[:, axis - 2], mirrored[:, axis - 2])
        shape = [len(x), 1, 1, 1]
        shape[axis] = x.shape[axis]
        index, kept = (torch.from_numpy(each).to(x.device).reshape(shape) for each in (places, inside))
        x = x.gather(axis, index.expand(x.shape))
        x = x.masked_fill(~kept, levels.low)
    return x


def _places(side: int, shifts: np.ndarray, mirrored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the source place of each place of a side [samples, side], and whether there is one."""
    along = np.arange(side)
    places = np.where(mirrored[:, None], along[::-1], along) + shifts[:, None]
    return places.clip(0, side - 1), (places >= 0) & (places < side)


def affine_transform(x: Tensor, config: Affine, levels: Levels, draw: Draw) -> Tensor:
    """Return images turned, moved, scaled and sheared, read between pixels bilinearly; pixels from outside are black."""
    drawn = _either_way(draw("affine", 6))
    angle, shear = np.radians(drawn[:, 0] * config.rotate), np.radians(drawn[:, 1:3] * config.shear)
    return warp(x, levels, angle, np.tan(shear), drawn[:, 3:5] * config.translate, 1 + drawn[:, 5] * config.scale)


def warp(
    x: Tensor, levels: Levels, angle: np.ndarray, shear: np.ndarray, move: np.ndarray, scale: np.ndarray | float = 1.0
) -> Tensor:
    """Return images read at other places.

    Args:
        x: The images, float32.
        levels: The levels of black and white; outside the image is black.
        angle: The angle of each image, in radians.
        shear: The shear of each image, along rows and along columns.
        move: The shift along rows and columns, as shares of the sides.
        scale: The factor by which each image is enlarged.
    """
    height, width = x.shape[2:]
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    down = torch.arange(height, device=x.device).reshape(1, -1, 1) - (height - 1) / 2
    across = torch.arange(width, device=x.device).reshape(1, 1, -1) - (width - 1) / 2
    factors = (cos - sin * shear[:, 1], cos * shear[:, 0] - sin, sin + cos * shear[:, 1], sin * shear[:, 0] + cos, *move.T)
    xx, xy, yx, yy, right, low = (_numbers(x, each)[..., 0] for each in factors)
    grid_x = (xx * across + xy * down) * (2 / width) + 2 * right
    grid_y = (yx * across + yy * down) * (2 / height) + 2 * low
    grid = torch.stack((grid_x, grid_y), dim=-1)
    # Moved by the level of black, as pixels from outside are 0.
    return functional.grid_sample(x - levels.low, grid, padding_mode="zeros", align_corners=False) + levels.low


# --- levels -------------------------------------------------------------------------------------


def jitter_colour(x: Tensor, config: Colour, levels: Levels, draw: Draw) -> Tensor:
    """Return images with other brightness, contrast and saturation."""
    drawn = _either_way(draw("colour", 3))
    strengths = (config.brightness, config.contrast, config.saturation)
    for change, strength, amount in zip((adjust_brightness, adjust_contrast, adjust_saturation), strengths, drawn.T, strict=True):
        x = change(x, amount * strength, levels) if strength else x
    return x


def adjust_brightness(x: Tensor, amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images with all levels (1 + amount) times as far from black."""
    return _within((x - levels.low) * _numbers(x, 1 + amount) + levels.low, levels)


def adjust_contrast(x: Tensor, amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images with all levels (1 + amount) times as far from their mean."""
    mean = grey_levels(x).mean((2, 3), keepdim=True)
    return _within(mean + (x - mean) * _numbers(x, 1 + amount), levels)


def adjust_saturation(x: Tensor, amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images with all colours (1 + amount) times as far from grey."""
    level = grey_levels(x)
    return _within(level + (x - level) * _numbers(x, 1 + amount), levels)


def adjust_sharpness(x: Tensor, amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images with all levels (1 + amount) times as far from those around them."""
    around = functional.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return _within(around + (x - around) * _numbers(x, 1 + amount), levels)


def posterize(x: Tensor, amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images with fewer levels: 8 bits less 4 times the amount."""
    step = _numbers(x, 2 ** np.round(4 * np.abs(amount)) / 256)
    share = (x - levels.low) / (levels.high - levels.low)
    return torch.floor(share / step) * step * (levels.high - levels.low) + levels.low


def solarize(x: Tensor, amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images with the levels inverted that are near white: the amount is the share of the range."""
    threshold = _numbers(x, levels.high - np.abs(amount) * (levels.high - levels.low))
    return torch.where(x >= threshold, levels.high + levels.low - x, x)


def autocontrast(x: Tensor, _amount: np.ndarray, levels: Levels) -> Tensor:
    """Return images whose channels reach from black to white."""
    least, most = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    spread = (x - least) * ((levels.high - levels.low) / (most - least).clamp_min(1e-12)) + levels.low
    return torch.where(most > least, spread, x)


def grey_levels(x: Tensor) -> Tensor:
    """Return the grey level of each pixel [samples, 1, height, width]."""
    if x.shape[1] != len(LUMA):
        return x.mean(1, keepdim=True)
    return LUMA[0] * x[:, :1] + LUMA[1] * x[:, 1:2] + LUMA[2] * x[:, 2:]


def _within(x: Tensor, levels: Levels) -> Tensor:
    return x.clamp(levels.low, levels.high)


# --- drawn operations ---------------------------------------------------------------------------


def _warp_by(x: Tensor, levels: Levels, **parts: np.ndarray) -> Tensor:
    """Return images warped by one part, the others at rest."""
    angle, shear_x, shear_y, move_x, move_y = (parts.get(name, np.zeros(len(x))) for name in WARPS)
    return warp(x, levels, angle, np.stack([shear_x, shear_y], axis=1), np.stack([move_x, move_y], axis=1))


WARPS = ("angle", "shear_x", "shear_y", "move_x", "move_y")
# The paper's operations without equalizing, whose histogram a GPU counts in no fixed order; each takes an amount from -1 to 1.
OPERATIONS: list[Callable[[Tensor, np.ndarray, Levels], Tensor]] = [
    lambda x, _amount, _levels: x,
    autocontrast,
    lambda x, amount, levels: _warp_by(x, levels, angle=math.radians(30) * amount),
    lambda x, amount, levels: _warp_by(x, levels, shear_x=0.3 * amount),
    lambda x, amount, levels: _warp_by(x, levels, shear_y=0.3 * amount),
    lambda x, amount, levels: _warp_by(x, levels, move_x=0.45 * amount),
    lambda x, amount, levels: _warp_by(x, levels, move_y=0.45 * amount),
    posterize,
    solarize,
    lambda x, amount, levels: adjust_brightness(x, 0.9 * amount, levels),
    lambda x, amount, levels: adjust_contrast(x, 0.9 * amount, levels),
    lambda x, amount, levels: adjust_saturation(x, 0.9 * amount, levels),
    lambda x, amount, levels: adjust_sharpness(x, 0.9 * amount, levels),
]


def rand_augment(x: Tensor, config: RandAugment, levels: Levels, draw: Draw) -> Tensor:
    """Return images after some operations that were drawn for each."""
    for number in range(config.operations):
        drawn = draw(f"randaugment {number}", 2)
        chosen = np.floor(drawn[:, 0] * len(OPERATIONS)).astype(np.int64)
        amount = np.where(drawn[:, 1] < 0.5, -1.0, 1.0) * (config.magnitude / STRONGEST)
        # The operations write into it, and it may be the batch that was handed in.
        x = x.clone()
        for operation in np.unique(chosen):
            places = np.flatnonzero(chosen == operation)
            index = torch.from_numpy(places).to(x.device)
            x[index] = OPERATIONS[operation](x[index], amount[places], levels)
    return x


# --- rectangles ---------------------------------------------------------------------------------


def random_erase(x: Tensor, share: float, draw: Draw) -> Tensor:
    """Return images of which some have a rectangle of their mean colour."""
    drawn = draw("erase", 5)
    area = ERASED[0] + drawn[:, 1] * (ERASED[1] - ERASED[0])
    aspect = np.exp(_either_way(drawn[:, 2]) * -math.log(ASPECT))
    sides = np.stack([np.sqrt(area * aspect), np.sqrt(area / aspect)], axis=1)
    inside = _rectangles(x, sides.clip(0, 1), drawn[:, 3:]) & (_numbers(x, drawn[:, 0]) < share)
    return torch.where(inside, x.float().mean((2, 3), keepdim=True).to(x.dtype), x)


def _rectangles(x: Tensor, sides: np.ndarray, places: np.ndarray) -> Tensor:
    """Return the mask of a rectangle per sample, [samples, 1, height, width]; sides and places as shares, [samples, 2]."""
    inside = []
    for axis in (2, 3):
        extent = x.shape[axis]
        length = np.round(sides[:, axis - 2] * extent)
        first = np.floor(places[:, axis - 2] * (extent - length + 1))
        along = np.arange(extent)[None]
        inside.append((along >= first[:, None]) & (along < (first + length)[:, None]))
    return torch.from_numpy(inside[0][:, None, :, None] & inside[1][:, None, None, :]).to(x.device)


def mix_samples(x: Tensor, targets: Tensor, config: Augment, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch's images and targets [samples, classes], each mixed with the next sample's in one drawn share.

    Where mixup and cutmix are both given, a draw chooses.
    """
    ways = [(way, alpha) for way, alpha in ((_mixup, config.mixup), (_cutmix, config.cutmix)) if alpha is not None]
    way, alpha = ways[int(generator.integers(len(ways)))]
    x, share = way(x, float(generator.beta(alpha, alpha)), generator)
    return x, targets * share + targets.roll(1, 0) * (1 - share)


def _mixup(x: Tensor, share: float, _generator: np.random.Generator) -> tuple[Tensor, float]:
    x = x.float()
    return x * share + x.roll(1, 0) * (1 - share), share


def _cutmix(x: Tensor, share: float, generator: np.random.Generator) -> tuple[Tensor, float]:
    """Return images with a rectangle of the next image, and the exact share of its pixels that each keeps."""
    inside = _rectangles(x, np.full((1, 2), math.sqrt(1 - share)), generator.random((1, 2)))
    # The share as it came out: sides are rounded to whole pixels, so it is not the drawn one.
    return torch.where(inside, x.roll(1, 0), x), 1 - float(inside.float().mean())
