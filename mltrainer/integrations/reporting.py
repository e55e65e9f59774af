"""Reports of a training script: losses, metrics, samples; a line each, beside the observations of hooks.

For scripts that mltrainer starts: it sets `MLTRAINER_WRAP`. Without that variable nothing is done, and nothing beside the
standard library is ever imported. Steps are those of the optimizer, from 1; a resumed training goes on counting.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import time
from typing import Any, SupportsFloat

VARIABLE = "MLTRAINER_WRAP"
HELD = 32  # lines with values on a GPU that are fetched together
_buffer: list[list[Any]] = []


def is_heard() -> bool:
    """Return True if the reports are read, because mltrainer has started the script."""
    return VARIABLE in os.environ


def tell_loss(step: int, loss: SupportsFloat) -> None:
    """Report the loss of a step.

    Args:
        step: The optimizer's step, from 1.
        loss: A number, or a tensor of one number; on a GPU it is fetched later, with others, so it must not be changed in place.
    """
    _tell("loss", step, loss)


def tell_metrics(step: int, epoch: float | None, metrics: dict[str, float]) -> None:
    """Report the metrics of an evaluation.

    Args:
        step: The optimizer's steps so far.
        epoch: Number of passes through the training samples so far; None if unknown.
        metrics: Metrics by name.
    """
    _tell("metrics", step, epoch, dict(metrics))


def tell_samples(step: int, digest: object) -> None:
    """Report the samples of a step, by digest.

    Args:
        step: The optimizer's step, from 1.
        digest: Digest of their content, in their order, as hex digits or an object with these as its text, such as
            `mltrainer.integrations.batches.digest_of(batch)`, which is fetched later where the batch is on a GPU; None where
            nothing is known of them, which reports nothing.
    """
    if digest is not None:
        _tell("samples", step, digest)


def flush() -> None:
    """Write the held lines."""
    lines, _buffer[:] = "".join(json.dumps(row, default=_plain) + "\n" for row in _buffer), []
    if lines:
        # Without Python's buffer, which a fork would copy and both processes would write.
        os.write(_file(_path()), lines.encode())


def _tell(kind: str, step: int, *values: Any) -> None:
    if not is_heard():
        return
    _buffer.append([time.monotonic_ns(), kind, step, *values])
    if len(_buffer) >= HELD or not _waits(values[0]):
        flush()


def _waits(value: Any) -> bool:
    """Return True if reading a value would wait for a device."""
    # Checked by its attribute, as this module does not import torch.
    return str(getattr(value, "device", "cpu")) != "cpu"


def _plain(value: Any) -> float | str:
    """Return a tensor's number, or a digest's text."""
    return float(value) if hasattr(value, "__float__") else str(value)


def _path() -> str:
    folder = json.loads(os.environ[VARIABLE])["folder"]
    return os.path.join(folder, f"reported-{os.environ.get('RANK') or 0}-{os.getpid()}.jsonl")


@functools.cache
def _file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)


atexit.register(flush)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_buffer.clear)  # the parent writes its held lines
