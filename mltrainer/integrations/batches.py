"""The reported batches of an optimizer step: a digest of their content, and the loss.

A digest is computed on the batch's device. On a GPU it stays there as a few numbers until it is read, so that no step waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.integrations import reporting

# The multipliers of splitmix64 (Steele, Lea and Flood, 2014, doi 10.1145/2660193.2660195), as signed integers
FIRST, SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Digest:
    """A digest, computed as hex digits when it is read as text.

    Args:
        parts: Names, types and shapes, and each tensor's content as a digest or a weighted sum.
    """

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        # Marks a report that is held back and fetched together with others.
        self.device = next((part.device for part in parts if isinstance(part, Tensor) and part.device.type != "cpu"), "cpu")

    def __str__(self) -> str:
        plain = [int(part) if isinstance(part, Tensor) else part for part in self.parts]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def digest_of(batch: Any) -> Digest | None:
    """Return the digest of a batch: tensors, arrays, numbers and texts, in dicts, lists and tuples.

    Args:
        batch: Batch from a loader.

    Returns:
        The digest, or None where the batch holds something else: of its content nothing is known.
    """
    try:
        return Digest(list(_parts(batch)))
    except TypeError:
        return None


class Step:
    """The batches and losses of an optimizer step so far: it may take several batches."""

    def __init__(self) -> None:
        self._digests: list[Digest | None] = []
        self._losses: list[Tensor] = []

    def see(self, batch: Any) -> None:
        """Record a batch."""
        if reporting.is_heard():
            self._digests.append(digest_of(batch))

    def add(self, loss: Tensor) -> None:
        """Record a batch's part of the loss."""
        self._losses.append(loss.detach())

    def tell(self, step: int, *, mean: bool = False) -> bool:
        """Report the step's samples and loss if known, and start the next step; return True if the loss is known.

        Args:
            step: Number of the step.
            mean: Whether its loss is the mean of its batches' losses, not their sum.
        """
        digests, losses = self._digests, self._losses
        self._digests, self._losses = [], []
        known = [digest for digest in digests if digest is not None]
        if known and len(known) == len(digests):
            reporting.tell_samples(step, Digest([part for digest in known for part in digest.parts]))
        if losses:
            together = torch.stack(losses)
            reporting.tell_loss(step, together.mean() if mean else together.sum())
        return bool(losses)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of a batch in order: names, lengths, types, shapes, plain values and tensors' contents.

    Raises:
        TypeError: A part has an unknown type.
    """
    if isinstance(value, Mapping):
        yield list(map(str, value))
        for part in value.values():
            yield from _parts(part)
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for part in value:
            yield from _parts(part)
    elif isinstance(value, Tensor):
        yield [str(value.dtype), list(value.shape)]
        yield _content(value)
    elif value is None or isinstance(value, (str, int, float)):
        yield value
    elif hasattr(value, "__array__"):
        # A copy, as torch warns of an array that is read-only.
        yield from _parts(torch.from_numpy(np.array(value)))
    else:
        raise TypeError(type(value))


@torch.no_grad()
def _content(tensor: Tensor) -> str | Tensor:
    """Return a fingerprint of a tensor's bits in their places: on the CPU their digest, on a device a number that stays there.

    Raises:
        TypeError: The tensor is sparse or quantized.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(tensor.layout)
    # A lazy conjugate or negative has the bits of the tensor that it is a view of.
    plain = tensor.resolve_conj().resolve_neg()
    row = (torch.view_as_real(plain) if plain.is_complex() else plain).contiguous().view(-1)
    if row.device.type == "cpu":
        return hashlib.sha256(row.view(torch.uint8).numpy().data).hexdigest()
    return _weighed(row.view(INTEGERS[row.element_size()]))


def _weighed(bits: Tensor) -> Tensor:
    """Return the sum of some integers, each weighted by a hash of its place, which wraps around."""
    # From 1: the place 0 would weigh nothing.
    place = torch.arange(1, len(bits) + 1, device=bits.device) * FIRST
    return (bits * ((place ^ (place >> 31)) * SECOND)).sum()
