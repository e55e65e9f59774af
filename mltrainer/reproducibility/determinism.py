"""Deterministic operations: switched on before training, read back after the user's code ran."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch

from mltrainer.reproducibility import tensorflow


def switch_on(threads: int, *, fill_memory: bool = False) -> None:
    """Make every operation deterministic, or raise where none is (PyTorch's notes on randomness).

    Args:
        threads: CPU threads of one operation; the order of summation depends on it.
        fill_memory: Fill new memory with NaN, so that code that reads what it never wrote gives NaN; costs time.
    """
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` would import the compiler, for a second
    torch.utils.deterministic.fill_uninitialized_memory = fill_memory  # type: ignore[attr-defined]  # torch declares no attributes of its own module
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the switches back after a block, however it ends: for a process that goes on with other work, such as a notebook's."""
    cudnn, fill = torch.backends.cudnn, torch.utils.deterministic
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    fills, tuned, fixed = fill.fill_uninitialized_memory, cudnn.benchmark, cudnn.deterministic  # type: ignore[attr-defined]
    rounding = [(place, place.fp32_precision) for place in _rounding()]
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        fill.fill_uninitialized_memory = fills  # type: ignore[attr-defined]
        cudnn.benchmark, cudnn.deterministic = tuned, fixed
        for place, precision in rounding:
            place.fp32_precision = precision


def _rounding() -> list[Any]:
    """Return where torch holds how 32-bit numbers may be rounded, as far as `switch_on` changes it."""
    backends: Any = torch.backends  # which torch declares in part
    return [backends.cuda.matmul, backends.cudnn, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul]


def read_back(device: str) -> dict[str, Any]:
    """Return the switches as they really stand in this process."""
    return {
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "not set"),
        "hash_randomization": bool(sys.flags.hash_randomization),
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "not set"),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "tf32": torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        **tensorflow.read_back(),
    }
