"""Hiding parts of samples, and the loss of their predictions: patches of images, cells of rows, tokens of texts."""

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

ROUNDING = 1e-6  # rounding of a mean in float32: closer numbers count as equal


class Hiding(ABC):
    """A way to hide a part of a sample.

    Attributes:
        share: Share of the parts that are hidden.
        needs: States that predict the hidden parts, in words.
        has_places: Whether each state must belong to a place of the sample.
    """

    share: float
    needs: str
    has_places = False

    @property
    @abstractmethod
    def parts_name(self) -> str:
        """The parts' name."""

    @abstractmethod
    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if states of a shape belong to places of the sample."""

    @abstractmethod
    def numbers(self, shape: Sequence[int]) -> int:
        """Return the count of numbers that each state of a shape predicts."""

    @abstractmethod
    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs with a drawn part hidden, and which: flags of the inputs' shape, or of one that broadcasts to it."""

    @abstractmethod
    def loss(self, predictions: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean distance of predictions from the hidden parts of inputs; 0 if nothing is hidden."""

    def vector(self, model: nn.Module) -> Tensor | None:
        """Return a new vector that represents hidden parts; None if `hide` replaces them itself."""
        return None

    def within(self, model: nn.Module, is_hidden: Tensor, vector: Tensor | None) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model reads the vector in place of hidden parts; by default it changes nothing."""
        return contextlib.nullcontext()


def _mean(each: Tensor, counts: Tensor) -> Tensor:
    """Return the mean over the counted values; 0 for none."""
    return torch.where(counts, each, 0.0).sum() / counts.sum().clamp(min=1)


def _uniform(*shape: int, device: torch.device) -> Tensor:
    """Return draws that are the same on each device."""
    return torch.rand(shape, device="cpu").to(device)


def standardized(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return numbers in deviations from their mean over some axes, and which have some; NaN and constants have none."""
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
    """Square patches of images, which the image's mean replaces.

    Attributes:
        share: Share of hidden patches.
        side: Side of a patch, in pixels.
        shape: Shape of an image, [channels, height, width].
    """

    share: float
    side: int
    shape: tuple[int, ...]
    needs = "a map of the image, or a state for each part of it"

    @property
    def parts_name(self) -> str:
        """The parts' name."""
        return f"patches of {self.side}x{self.side} pixels"

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if states of a shape belong to places of the image."""
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

    def loss(self, predictions: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean absolute difference of the hidden pixels, in deviations of their channel over the micro-batch."""
        target, is_known = standardized(x.float(), (0, 2, 3))
        return _mean((predictions - self._parts(target, predictions)).abs(), self._parts(is_hidden & is_known, predictions))

    def _parts(self, x: Tensor, predictions: Tensor) -> Tensor:
        """Return images in the order of the states' parts."""
        # Predictions have their state's place in the first axes, whatever the states had.
        rows, columns = predictions.shape[1:3] if predictions.dim() == 4 else self._grid(predictions.shape) or (1, 1)
        high, wide = x.shape[2] // rows, x.shape[3] // columns
        parts = x.reshape(len(x), -1, rows, high, columns, wide).permute(0, 2, 4, 1, 3, 5)
        return parts.reshape(predictions.shape)


# --- rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cells(Hiding):
    """Cells of rows, which cells of other rows replace.

    Attributes:
        share: Share of a row's hidden cells.
        columns: Number of categories of each column; None for numbers.
    """

    share: float
    columns: Sequence[int | None]
    parts_name, needs = "cells", "a row of features for each sample"

    def fits(self, shape: Sequence[int]) -> bool:
        """Return False: the input of a model's last layer predicts all cells."""
        return False

    def numbers(self, shape: Sequence[int]) -> int:
        """Return the count of numbers that predict a row: one for a number, and one for each category."""
        return sum(count or 1 for count in self.columns)

    def hide(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows with cells of other ones, and which."""
        return swapped(x, self.share)

    def loss(self, predictions: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean over hidden cells: of numbers the square in deviations of the micro-batch, else the cross-entropy."""
        x, is_hidden = x.flatten(1), is_hidden.flatten(1)
        numbers = [place for place, count in enumerate(self.columns) if count is None]
        sizes = [count for count in self.columns if count is not None]
        target, is_known = standardized(x[:, numbers].float(), (0,))
        each, counts = [(predictions[:, : len(numbers)] - target).square()], [is_hidden[:, numbers] & is_known]
        places = [place for place, count in enumerate(self.columns) if count is not None]
        for place, scores in zip(places, predictions[:, len(numbers) :].split(sizes, dim=1), strict=True):
            # A category that is missing, or that training has not seen, has the code -1.
            codes = x[:, place].long()
            each.append(functional.cross_entropy(scores, codes.clamp(min=0), reduction="none")[:, None])
            counts.append((is_hidden[:, place] & (codes >= 0))[:, None])
        return _mean(torch.cat(each, dim=1), torch.cat(counts, dim=1))


# --- texts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tokens(Hiding):
    """Tokens of texts, whose embeddings a learned vector replaces.

    Attributes:
        share: Share of hidden tokens, padding apart.
        length: Tokens of a text.
        embedding: Name of the module that reads the tokens.
        vocabulary: Size of the vocabulary.
        padding: Token that fills up short texts, if any.
    """

    share: float
    length: int
    embedding: str
    vocabulary: int
    padding: int | None
    parts_name, needs, has_places = "tokens", "a state for each token", True

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if there is a state for each token."""
        return len(shape) == 3 and shape[1] == self.length

    def numbers(self, shape: Sequence[int]) -> int:
        """Return the size of the vocabulary, from which a state predicts one token."""
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
        """Replace the embeddings of hidden tokens by the vector."""
        assert vector is not None

        def hook(_module: nn.Module, _inputs: object, given: Tensor) -> Tensor:
            return torch.where(is_hidden[..., None], vector.to(given.dtype), given)

        handle = model.get_submodule(self.embedding).register_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()

    def loss(self, predictions: Tensor, x: Tensor, is_hidden: Tensor) -> Tensor:
        """Return the mean cross-entropy of the hidden tokens."""
        # In a row: of scores with an axis of places, a GPU sums in no fixed order.
        each = functional.cross_entropy(predictions.flatten(0, 1), x.flatten().long(), reduction="none")
        return _mean(each, is_hidden.flatten())
