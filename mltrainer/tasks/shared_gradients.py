"""Comparison of the gradients of several losses on their shared parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.errors import InputError
from mltrainer.tasks.task import Task


def losses_of(task: Task, outputs: Any, targets: Any) -> list[Tensor]:
    """Return the losses of a task's `terms`, in their order, as scalars of fp32.

    Raises:
        InputError: They are not those of `terms`, or no scalars; or the task has no method `losses`.
    """
    hint = "return one mean loss for each name in terms"
    if getattr(task.losses, "__func__", None) is Task.losses:
        what = f"the task names {', '.join(task.terms)} in terms, and has no losses(self, outputs, targets)"
        raise InputError(what, where="task.use", hint=f"write it: {hint}")
    given: Any = task.losses(outputs, targets)
    if not isinstance(given, Mapping) or {*given} != {*task.terms}:
        found = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise InputError("losses", expected=", ".join(task.terms), found=found, where="task.use", hint=hint)
    for name, loss in given.items():
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            found = f"a tensor {[*loss.shape]}" if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(f"losses for {name}", expected="a scalar tensor", found=found, where="task.use", hint=hint)
    return [given[name].reshape(()).float() for name in task.terms]


def gramian(losses: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the inner products of the losses' gradients, float64 [losses, losses]; the graph is kept.

    Only numbers of the parameters that at least two losses reach count: in a separate head no target meets another.

    Args:
        losses: Scalars, each of which depends on one parameter at least.
        parameters: The parameters that are trained.
    """
    device = losses[0].device
    # Gradients have the types of the forward pass, which autocast would change again.
    with torch.autocast(device.type, enabled=False):
        rows = [torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True) for loss in losses]
        total = torch.zeros(len(losses), len(losses), dtype=torch.float64, device=device)
        for parameter, gradients in zip(parameters, zip(*rows, strict=True), strict=True):
            matrix = torch.stack([_dense(parameter, gradient) for gradient in gradients])
            shared = matrix * ((matrix != 0).sum(0) > 1)
            total = total + (shared @ shared.T).double()
    return total


def _dense(parameter: nn.Parameter, gradient: Tensor | None) -> Tensor:
    """Return a gradient as one row of fp32; zeros where the loss does not reach the parameter."""
    if gradient is None:
        return torch.zeros(parameter.numel(), device=parameter.device)
    return (gradient.to_dense() if gradient.is_sparse else gradient).flatten().float()


def cosines(inner: Tensor) -> Tensor:
    """Return the cosines of gradients by their inner products [losses, losses]; NaN beside one of length zero."""
    lengths = inner.diagonal().sqrt()
    return inner / (lengths[:, None] * lengths)
