"""LAMB: Adam's update and the weight decay, scaled for each parameter to the norm of its weights (You et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al., 2020, arXiv 1904.00962.

    With r = m / (sqrt(v) + eps) of the corrected moments, and |.| the Euclidean norm over a parameter:

        x <- x - lr * |x| / |r + weight_decay * x| * (r + weight_decay * x)

    A norm of zero gives a trust ratio of 1, as in the authors' code.

    Args:
        params: The parameters, or their groups.
        lr: The learning rate.
        betas: The decay rates of the two moments.
        eps: The number added to the denominator.
        weight_decay: The factor of the weights in an update.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update each parameter that has a gradient, and return the closure's loss."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            if parameters := [p for p in group["params"] if p.grad is not None]:
                self._update(group, parameters)
        return loss

    def _update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        updates = self._adam(group, parameters)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _adam(self, group: dict[str, Any], parameters: list[Tensor]) -> list[Tensor]:
        """Update the moments with the gradients, and return Adam's update of each parameter."""
        beta1, beta2 = group["betas"]
        entries = [self._entry(p) for p in parameters]
        gradients: Any = [p.grad for p in parameters]
        first, second = ([entry[name] for entry in entries] for name in ("exp_avg", "exp_avg_sq"))
        torch._foreach_add_([entry["step"] for entry in entries], 1)
        steps = [entry["step"].item() for entry in entries]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        scales = torch._foreach_div(second, [1 - beta2**step for step in steps])
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(first, [1 - beta1**step for step in steps])
        torch._foreach_div_(updates, scales)
        return list(updates)

    def _entry(self, p: Tensor) -> dict[str, Tensor]:
        """Return a parameter's state, which begins at zero; its step count is on the CPU, where reading it does not wait."""
        entry: dict[str, Tensor] = self.state[p]
        if not entry:
            entry.update(step=torch.zeros(()), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        return entry


def _trust_ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return the norm of each parameter's weights divided by the norm of its update; 1 if one of them is 0."""
    norms = zip(torch._foreach_norm(parameters), torch._foreach_norm(updates), strict=True)
    return [torch.where((weights > 0) & (update > 0), weights / update, 1.0) for weights, update in norms]
