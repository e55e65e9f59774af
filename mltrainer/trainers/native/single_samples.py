"""The error of a batch of one sample, which a batch norm cannot train on, with a batch size that leaves none over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mltrainer.errors import InputError
from mltrainer.tools.program import is_of_one_sample


@contextlib.contextmanager
def single_samples_named(samples: int, batch_size: int) -> Iterator[None]:
    """Turn PyTorch's error of a batch of one sample into one that names its cause.

    Args:
        samples: The number of training samples.
        batch_size: The number of samples of a micro-batch.

    Raises:
        InputError: A normalization got one sample in training.
    """
    try:
        yield
    except ValueError as error:
        if not is_of_one_sample(error):
            raise
        what = f"a batch of one sample, which your model's normalization cannot train on: {left_over(samples, batch_size)}"
        hint = f"take batch_size {fitting(samples, batch_size)}, which leaves no single sample over (no batch is dropped here)"
        raise InputError(what, where="batch_size", hint=hint) from error


def left_over(samples: int, batch_size: int) -> str:
    """Return the reason why a batch has one sample."""
    if batch_size > 1 and samples % batch_size == 1:
        return f"{samples} training samples in batches of {batch_size} leave one for the last of an epoch"
    return f"{samples} training samples in batches of {batch_size}"


def fitting(samples: int, batch_size: int) -> int:
    """Return the batch size nearest to a given one that leaves no single sample over; the smaller of two."""
    sizes = [size for size in range(2, max(samples, batch_size) + 2) if samples % size != 1]
    return min(sizes, key=lambda size: (abs(size - batch_size), size), default=batch_size)
