"""The arithmetic of forward and backward pass: the choice of `auto`, and its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.structures import mapped

BF16_CAPABILITY = (8, 0)  # NVIDIA Ampere: the first whose tensor cores compute bfloat16
FP16_CAPABILITY = (7, 0)  # NVIDIA Volta: the first with tensor cores, for float16
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """The requested precision, the one in use, and the reason.

    Attributes:
        asked: The requested precision: `fp32`, `bf16`, `fp16` or `auto`.
        chosen: The precision in use: `fp32`, `bf16` or `fp16`.
        reason: The reason, in one sentence.
    """

    asked: str
    chosen: str
    reason: str


def choose(asked: str, device: str) -> Precision:
    """Return the precision of a run on this machine."""
    return decide(asked, torch.cuda.get_device_capability() if device == "cuda" else None)


def autocast(config: TrainingConfig) -> torch.autocast:
    """Return the context in which a run's forward pass and loss are computed; losses and norms stay fp32."""
    chosen = choose(config.precision, config.device).chosen
    return torch.autocast(config.device, DTYPES.get(chosen), enabled=chosen in DTYPES)


def full(outputs: Any) -> Any:
    """Return a model's outputs in fp32, the precision of the loss whatever the model's own."""
    if not isinstance(outputs, Tensor):
        return mapped(full, outputs)
    return outputs.float() if outputs.dtype in DTYPES.values() else outputs


def decide(asked: str, capability: tuple[int, int] | None) -> Precision:
    """Return the precision for a GPU's compute capability, or for the CPU (None)."""
    if asked != "auto":
        return Precision(asked, asked, "the config says so")
    if capability is None:
        return Precision(asked, "fp32", "on a CPU the lower precisions save little or are emulated")
    name = f"compute capability {capability[0]}.{capability[1]}"
    if capability >= BF16_CAPABILITY:
        return Precision(asked, "bf16", f"the GPU ({name}) computes it, and its range is fp32's: no loss scaling is needed")
    if capability >= FP16_CAPABILITY:
        return Precision(asked, "fp16", f"the GPU ({name}) computes it, but not bf16; the loss is scaled")
    return Precision(asked, "fp32", f"the GPU ({name}) has no units for lower precisions")
