"""Deterministic operations: switched on before training, read back after the user's code ran."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch

from mltrainer.reproducibility import tensorflow

BACKENDS: Any = torch.backends  # torch declares the attributes of its own modules in part
OPERATIONS = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
DEFAULTS = ("cudnn", "mkldnn")  # defaults for their operations without a precision of their own; and "all" beside them
FULL = "ieee"  # fp32 arithmetic, and not tf32 or bf16


def switch_on(threads: int, *, fill_memory: bool = False) -> None:
    """Make every operation deterministic, or have it raise without a deterministic version (PyTorch's notes on randomness).

    Args:
        threads: CPU threads of one operation; the order of summation depends on it.
        fill_memory: Whether new memory is filled with NaN, so that reads of unwritten memory give NaN; costs time.
    """
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` would import the compiler, for a second
    torch.utils.deterministic.fill_uninitialized_memory = fill_memory  # type: ignore[attr-defined]  # torch declares no attributes of its own module
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    _set_older_switches("highest", matmul=False, cudnn=False)
    for operation in OPERATIONS:
        attrgetter(operation)(BACKENDS).fp32_precision = FULL


def fp32_precisions() -> dict[str, str]:
    """Return the precision of fp32 operations, by their names in `torch.backends`; "none" if not set."""
    of_each = {name: str(attrgetter(name)(BACKENDS).fp32_precision) for name in (*DEFAULTS, *OPERATIONS)}
    return {"all": str(BACKENDS.fp32_precision), **of_each}


def _setting(switch: Callable[[], Any]) -> Any:
    """Return an older switch; None if torch refuses to return it, because user code also set a newer one."""
    try:
        return switch()
    except RuntimeError:
        return None


def _older_switches() -> tuple[str | None, bool | None, bool | None]:
    """Return the precision of matrix products, and whether matrix products and cuDNN may use tf32."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    tf32 = (_setting(lambda: cuda.matmul.allow_tf32), _setting(lambda: cudnn.allow_tf32))
    return _setting(torch.get_float32_matmul_precision), *tf32


def _set_older_switches(precision: str | None, matmul: bool | None, cudnn: bool | None) -> None:
    """Set the older switches that are not None; the newer ones are set after them, or reading these would raise."""
    if precision is not None:
        torch.set_float32_matmul_precision(precision)
    if matmul is not None:
        torch.backends.cuda.matmul.allow_tf32 = matmul
    if cudnn is not None:
        torch.backends.cudnn.allow_tf32 = cudnn


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the switches back after a block, however it ends: for a process with further work, such as a notebook's."""
    cudnn = torch.backends.cudnn
    fill: Any = torch.utils.deterministic  # torch declares no attributes of its own module
    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    fills, tuned, fixed = fill.fill_uninitialized_memory, cudnn.benchmark, cudnn.deterministic
    older, precisions = _older_switches(), fp32_precisions()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
        fill.fill_uninitialized_memory = fills
        cudnn.benchmark, cudnn.deterministic = tuned, fixed
        _set_older_switches(*older)
        for name in ("cudnn", *OPERATIONS):
            attrgetter(name)(BACKENDS).fp32_precision = precisions[name]


def read_back(device: str) -> dict[str, Any]:
    """Return the present switches of this process.

    `tf32` is whether any fp32 operation is computed in less, in tf32 or in bf16; `fp32_precision` names the precision.
    """
    precisions = fp32_precisions()
    return {
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "not set"),
        "hash_randomization": bool(sys.flags.hash_randomization),
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "not set"),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "tf32": not set(precisions.values()) <= {FULL, "none"},
        "fp32_precision": precisions,
        "matmul_precision": _older_switches()[0] or "mixed",
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        **tensorflow.read_back(),
    }
