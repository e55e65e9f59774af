"""The update itself."""

from typing import Any

import torch


class SignumOptimizer(torch.optim.Optimizer):
    """Steps of one size along the sign of a momentum."""

    def __init__(self, groups: Any, lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Take a step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    mean.lerp_(p.grad, 1 - group["momentum"])
                    p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(mean.sign(), alpha=group["lr"])
