"""The input of a batch, its first tensor that is no target, and cells of it from other rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mltrainer.tasks.task import Task


def input_of(task: Task, batch: Any) -> tuple[Any, Any]:
    """Return the place of a batch's input, and the input; None if the batch has none."""
    if isinstance(batch, dict):
        named = [(name, part) for name, part in batch.items() if name != task.target_key and isinstance(part, Tensor)]
        return named[0] if named else (None, None)
    return 0, batch[0] if isinstance(batch, (tuple, list)) and batch else None


def with_input(batch: Any, place: Any, x: Tensor) -> Any:
    """Return a batch with another input at its place."""
    return {**batch, place: x} if isinstance(batch, dict) else type(batch)([x, *batch[1:]])


def swapped(x: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Return rows with some of their cells from other rows of the batch, and which; by draws of torch's generator.

    Args:
        x: [rows, ...].
        share: Share of replaced cells.
    """
    others = torch.argsort(torch.rand(x.shape, device="cpu"), dim=0).to(x.device)
    is_replaced = (torch.rand(x.shape, device="cpu") < share).to(x.device)
    return torch.where(is_replaced, x.gather(0, others), x), is_replaced
