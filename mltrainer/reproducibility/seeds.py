"""Addressed randomness: every draw comes from a generator keyed by where it is used.

An address is (seed, purpose, numbers), such as (42, "step", 117). Nothing depends on how many draws came
before, so evaluation, monitoring, worker counts and interruptions cannot change a draw, and resuming
needs no saved generator state: the position is the state.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from mltrainer.reproducibility import tensorflow

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's step: 2**64 over the golden ratio


def key(seed: int, purpose: str, *numbers: int) -> int:
    """Return the 63-bit key of an address.

    Args:
        seed: The run's one seed.
        purpose: What is drawn: "order", "step", "sample", "model", "evaluate", "split".
        numbers: Where: epoch, step or sample index.
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
        address: As `key` gives it.
        ids: Sample ids.
        count: Draws for each.
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
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(value)


def seed_everything(value: int) -> None:
    """Seed the generators of Python, NumPy, torch and an imported TensorFlow, so that a user's own draws are addressed too."""
    tensorflow.seed(value)
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    seed_torch(value)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the generators of Python, NumPy and torch back after a block, however it ends."""
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    python, numpy, states = random.getstate(), np.random.get_state(), [each.get_state() for each in generators]
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        for each, state in zip(generators, states, strict=True):
            each.set_state(state)


def epoch_order(seed: int, epoch: int, ids: np.ndarray) -> np.ndarray:
    """Return the sample ids of one epoch in training order, a pure function of (seed, epoch)."""
    return generator(seed, "order", epoch).permutation(ids)


def first_draws(seed: int) -> dict[str, str]:
    """Return the first draw of each generator under one address, to compare between processes."""
    seed_everything(key(seed, "probe"))
    draws = {
        "python": random.random().hex(),
        "numpy": float(np.random.random()).hex(),
        "torch": float(torch.rand((), dtype=torch.float64)).hex(),
    }
    if torch.cuda.is_available():
        draws["cuda"] = float(torch.rand((), dtype=torch.float64, device="cuda")).hex()
    return {**draws, **tensorflow.first_draw()}
