"""Addressed randomness: every draw comes from a generator keyed by its place of use.

An address is (seed, purpose, numbers), such as (42, "step", 117). Nothing depends on how many draws came
before, so evaluation, monitoring, worker counts and interruptions cannot change a draw, and resuming
needs no saved generator state: the position is the state.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from mltrainer.reproducibility import tensorflow

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's step: 2**64 over the golden ratio
SHUFFLED_WHOLE = 2**20  # most samples whose order is computed at once: 8 MB


def key(seed: int, purpose: str, *numbers: int) -> int:
    """Return the 63-bit key of an address.

    Args:
        seed: Seed of the run.
        purpose: Purpose of the draw: "order", "step", "sample", "model", "evaluate", "split".
        numbers: Place of the draw: epoch, step or sample index.
    """
    address = f"{seed}/{purpose}/{'/'.join(map(str, numbers))}".encode()
    return int.from_bytes(hashlib.blake2b(address, digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return NumPy's counter-based Philox generator at an address (Salmon et al., 2011, SC'11)."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, *numbers)))


def uniforms(address: int, ids: np.ndarray, count: int) -> np.ndarray:
    """Return float64 draws from [0, 1) for many samples at once, [ids, count]: each a function of (address, id, place) alone.

    The counter (id, place) goes through SplitMix64's finalizer (Steele, Lea and Flood, 2014, OOPSLA), once for each of its parts.

    Args:
        address: Key of the address, from `key`.
        ids: Ids of the samples.
        count: Number of draws for each sample.
    """
    places = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    streams = _finalized(ids.astype(np.uint64) * GOLDEN + np.full(1, address, dtype=np.uint64))
    return np.asarray((_finalized(streams[:, None] + places) >> np.uint64(11)) * 2.0**-53)


def _finalized(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def seed_torch(value: int) -> None:
    """Seed torch's own generators; 2 us on a CPU, where `torch.manual_seed` costs 180 us."""
    for each in _torch_generators():
        each.manual_seed(value)


def seed_everything(value: int) -> None:
    """Seed the generators of Python, NumPy, torch and an imported TensorFlow, so that a user's own draws are addressed too."""
    # First: an imported Keras seeds the others too, with 32 bits of the key.
    tensorflow.seed(value)
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    seed_torch(value)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the generators of Python, NumPy and torch back after a block, however it ends."""
    states = generator_states()
    try:
        yield
    finally:
        set_generator_states(states)


def generator_states() -> tuple[Any, ...]:
    """Return the states of the generators of Python, NumPy and torch."""
    return random.getstate(), np.random.get_state(), [each.get_state() for each in _torch_generators()]


def set_generator_states(states: tuple[Any, ...]) -> None:
    """Set the generators of Python, NumPy and torch to states from `generator_states`, of this process or another."""
    python, numpy, torchs = states
    random.setstate(python)
    np.random.set_state(numpy)
    for each, state in zip(_torch_generators(), torchs, strict=True):
        each.set_state(state)


def _torch_generators() -> list[torch.Generator]:
    """Return the generator of the CPU, and that of the GPU in use."""
    is_on_gpu = torch.cuda.is_initialized()
    return [torch.default_generator, *([torch.cuda.default_generators[torch.cuda.current_device()]] if is_on_gpu else [])]


def epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    """Return the positions of an epoch's samples in training order, a pure function of (seed, epoch).

    An order of more than 2^20 samples is one whose every place can be computed alone.
    """
    if count <= SHUFFLED_WHOLE:
        return generator(seed, "order", epoch).permutation(np.arange(count))
    return positions_at(seed, epoch, count, np.arange(count))


def addressed_order(seed: int, epoch: int, count: int) -> Order:
    """Return the order of `epoch_order`, computed place by place on request if each place can be computed alone."""
    if count <= SHUFFLED_WHOLE:
        return epoch_order(seed, epoch, count)
    return _ComputedOrder(seed, epoch, count)


class Order(Protocol):
    """The positions of an epoch's samples, in training order."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, part: slice, /) -> np.ndarray:
        """Return the positions at some places, int64."""


@dataclass(frozen=True)
class _ComputedOrder:
    seed: int
    epoch: int
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice, /) -> np.ndarray:
        return positions_at(self.seed, self.epoch, self.count, np.arange(*part.indices(self.count)))


def positions_at(seed: int, epoch: int, count: int, places: np.ndarray) -> np.ndarray:
    """Return the positions at some places of an epoch's order, without making the rest of it.

    Args:
        seed: Seed of the run.
        epoch: Epoch, from 0.
        count: Number of samples of an epoch.
        places: Places in the order, from 0.
    """
    return permuted(count, places, seed, "order", epoch)


def permuted(count: int, places: np.ndarray, seed: int, purpose: str, *numbers: int) -> np.ndarray:
    """Return the numbers at some places of a permutation of 0 to count - 1 that an address decides, int64.

    A Feistel network of four rounds permutes the smallest power of four that is not below the count (Luby and Rackoff, 1988,
    SIAM J. Comput. 17); what falls outside goes through it again until it falls inside (Black and Rogaway, 2002, CT-RSA).

    Args:
        count: Number of permuted numbers.
        places: Places from 0, below the count.
        seed: Seed of the address; see `key`, also for `purpose` and `numbers`.
        purpose: Purpose of the permutation.
        numbers: Numbers of the address.
    """
    half = np.uint64(((count - 1).bit_length() + 1) // 2)
    keys = [np.uint64(key(seed, purpose, *numbers, turn)) for turn in range(4)]
    numbers_at = _exchanged(places.astype(np.uint64), half, keys)
    while (outside := np.flatnonzero(numbers_at >= count)).size:
        numbers_at[outside] = _exchanged(numbers_at[outside], half, keys)
    return numbers_at.astype(np.int64)


def _exchanged(numbers: np.ndarray, half: np.uint64, keys: list[np.uint64]) -> np.ndarray:
    """Return numbers of twice `half` bits, permuted."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = numbers >> half, numbers & mask
    for round_key in keys:
        left, right = right, left ^ (_finalized(right * GOLDEN + np.full(1, round_key)) & mask)
    return (left << half) | right


def first_draws(seed: int) -> dict[str, str]:
    """Return the first draw of each generator under one address, to compare between processes."""
    seed_everything(key(seed, "probe"))
    return next_draws()


def next_draws() -> dict[str, str]:
    """Return the next draw of each generator, which changes if something has drawn meanwhile."""
    draws = {
        "python": random.random().hex(),
        "numpy": float(np.random.random()).hex(),
        "torch": float(torch.rand((), dtype=torch.float64)).hex(),
    }
    if torch.cuda.is_available():
        draws["cuda"] = float(torch.rand((), dtype=torch.float64, device="cuda")).hex()
    return {**draws, **tensorflow.first_draw()}
