"""What is hidden of a sample, and how far what a model tells of it is off: patches of images, cells of rows, tokens of texts."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.companions.strategies.inputs import swapped

ROUNDING = 1e-6  # of a mean in float32: numbers that lie closer together are the same


class Hiding(ABC):
    """A way to hide a part of a sample.

    Attributes:
        share: Of the parts, that are hidden.
        needs: The states by which they are told.
        has_places: Whether each state must lie at a place of the sample.
    """

    share: float
    needs: str
    has_places = False

    @property
    @abstractmethod
    def told(self) -> str:
        """The parts' name."""

    @abstractmethod
    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if states of a shape lie at places of the sample."""

    @abstractmethod
    def numbers(self, shape: Sequence[int]) -> int:
        """Return the count of numbers that each state of a shape is to tell."""

    @abstractmethod
    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs with a drawn part hidden, and which: flags of the inputs' shape, or of one that broadcasts to it."""

    @abstractmethod
    def loss(self, told: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean distance from what is hidden of inputs to what is told of it; of nothing it is 0."""

    def vector(self, model: nn.Module) -> Tensor | None:
        """Return a new vector that is to stand for what is hidden; None where `hide` puts something there."""
        return None

    def within(self, model: nn.Module, is_hidden: Tensor, vector: Tensor | None) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model reads the vector in place of what is hidden; by default it changes nothing."""
        return contextlib.nullcontext()


def _mean(each: Tensor, counts: Tensor) -> Tensor:
    """Return the mean over those that count; of none it is 0."""
    return torch.where(counts, each, 0.0).sum() / counts.sum().clamp(min=1)


def _uniform(*shape: int, device: torch.device) -> Tensor:
    """Return draws that are the same on each device."""
    return torch.rand(shape, device="cpu").to(device)


def standardized(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return numbers in deviations from their mean over some axes, and which have some; NaN, and what is constant, has none."""
    is_known = x.isfinite()
    count = is_known.sum(axes, keepdim=True).clamp(min=1)
    mean = torch.where(is_known, x, 0.0).sum(axes, keepdim=True) / count
    off = torch.where(is_known, x - mean, 0.0)
    deviation = (off.square().sum(axes, keepdim=True) / count).sqrt()
    differs = deviation > ROUNDING * mean.abs()
    return torch.where(differs, off / deviation, 0.0), is_known & differs


# --- images -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patches(Hiding):
    """Square patches of images, in whose place the image's mean stands.

    Attributes:
        share: Of the patches.
        side: Of a patch, in pixels.
        shape: Of an image, [channels, height, width].
    """

    share: float
    side: int
    shape: tuple[int, ...]
    needs = "a map of the image, or a state for each part of it"

    @property
    def told(self) -> str:
        """The parts' name."""
        return f"patches of {self.side}x{self.side} pixels"

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if states of a shape lie at places of the image."""
        return self._grid(shape) is not None

    def _grid(self, shape: Sequence[int]) -> tuple[int, int] | None:
        """Return the rows and columns of the map that states [samples, width, rows, columns] or [samples, places, width] make."""
        _, height, width = self.shape
        if len(shape) == 4:
            rows, columns = shape[2], shape[3]
        elif len(shape) == 3:
            rows = max(1, math.isqrt(shape[1] * height // width))
            columns = shape[1] // rows
        else:
            return None
        is_whole = not (height % rows or width % columns) and (len(shape) == 4 or rows * columns == shape[1])
        return (rows, columns) if is_whole and rows > 1 and height // rows == width // columns else None

    def numbers(self, shape: Sequence[int]) -> int:
        """Return the pixels of a state's part of the image, times the channels."""
        rows, columns = self._grid(shape) or (1, 1)
        return math.prod(self.shape) // (rows * columns)

    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return images with patches hidden, and which pixels [samples, 1, height, width]."""
        rows, columns = (math.ceil(side / self.side) for side in x.shape[2:])
        is_hidden = _uniform(len(x), 1, rows, columns, device=x.device) < self.share
        is_hidden = is_hidden.repeat_interleave(self.side, 2).repeat_interleave(self.side, 3)[..., : x.shape[2], : x.shape[3]]
        wide = x if x.is_floating_point() else x.float()
        return torch.where(is_hidden, wide.mean((2, 3), keepdim=True), wide), is_hidden

    def loss(self, told: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean absolute difference of the hidden pixels, in deviations of their channel over the micro-batch."""
        target, is_known = standardized(x.float(), (0, 2, 3))
        return _mean((told - self._parts(target, told)).abs(), self._parts(is_hidden & is_known, told))

    def _parts(self, x: Tensor, told: Tensor) -> Tensor:
        """Return images in the order in which states tell of their parts."""
        # The told numbers have their state's place in front of them, whatever the states had.
        rows, columns = told.shape[1:3] if told.dim() == 4 else self._grid(told.shape) or (1, 1)
        high, wide = x.shape[2] // rows, x.shape[3] // columns
        parts = x.reshape(len(x), -1, rows, high, columns, wide).permute(0, 2, 4, 1, 3, 5)
        return parts.reshape(told.shape)


# --- rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells(Hiding):
    """Cells of rows, in whose place those of other rows stand.

    Attributes:
        share: Of a row's cells.
        columns: The number of categories of each; None of numbers.
    """

    share: float
    columns: Sequence[int | None]
    told, needs = "cells", "a row of features for each sample"

    def fits(self, shape: Sequence[int]) -> bool:
        """Return False: what a model's last layer reads tells of all cells."""
        return False

    def numbers(self, shape: Sequence[int]) -> int:
        """Return the count of numbers that tell a row: one for a number, and for categories as many as there are."""
        return sum(count or 1 for count in self.columns)

    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows with cells of other ones, and which."""
        return swapped(x, self.share)

    def loss(self, told: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean over hidden cells: of numbers the square in deviations of the micro-batch, else the cross-entropy."""
        x, is_hidden = x.flatten(1), is_hidden.flatten(1)
        numbers = [place for place, count in enumerate(self.columns) if count is None]
        sizes = [count for count in self.columns if count is not None]
        target, is_known = standardized(x[:, numbers].float(), (0,))
        each, counts = [(told[:, : len(numbers)] - target).square()], [is_hidden[:, numbers] & is_known]
        places = [place for place, count in enumerate(self.columns) if count is not None]
        for place, scores in zip(places, told[:, len(numbers) :].split(sizes, dim=1), strict=True):
            # A category that is missing, or that training has not seen, has the code -1.
            codes = x[:, place].long()
            each.append(functional.cross_entropy(scores, codes.clamp(min=0), reduction="none")[:, None])
            counts.append((is_hidden[:, place] & (codes >= 0))[:, None])
        return _mean(torch.cat(each, dim=1), torch.cat(counts, dim=1))


# --- texts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokens(Hiding):
    """Tokens of texts, in place of whose embeddings a learned vector stands.

    Attributes:
        share: Of the tokens that are no padding.
        length: Of a text.
        embedding: The name of the module that reads the tokens.
        vocabulary: How many there are.
        padding: The one that fills up short texts, if there is one.
    """

    share: float
    length: int
    embedding: str
    vocabulary: int
    padding: int | None
    told, needs, has_places = "tokens", "a state for each token", True

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if there is a state for each token."""
        return len(shape) == 3 and shape[1] == self.length

    def numbers(self, shape: Sequence[int]) -> int:
        """Return the number of tokens of which a state tells one."""
        return self.vocabulary

    def vector(self, model: nn.Module) -> Tensor:
        """Return a drawn vector, as an embedding of the model is."""
        weight = model.get_submodule(self.embedding).weight
        assert isinstance(weight, Tensor)
        return torch.randn(weight.shape[1]) * weight.detach().std()

    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens as they are, and which are hidden [samples, length]."""
        is_hidden = _uniform(*x.shape, device=x.device) < self.share
        return x, is_hidden if self.padding is None else is_hidden & (x != self.padding)

    @contextlib.contextmanager
    def within(self, model: nn.Module, is_hidden: Tensor, vector: Tensor | None) -> Iterator[None]:
        """Let the embedding give the vector in place of the hidden tokens' own."""
        assert vector is not None

        def hook(_module: nn.Module, _inputs: object, given: Tensor) -> Tensor:
            return torch.where(is_hidden[..., None], vector.to(given.dtype), given)

        handle = model.get_submodule(self.embedding).register_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()

    def loss(self, told: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean cross-entropy of the hidden tokens."""
        # In a row: of scores with an axis of places, a GPU sums in no fixed order.
        each = functional.cross_entropy(told.flatten(0, 1), x.flatten().long(), reduction="none")
        return _mean(each, is_hidden.flatten())
