"""What goes wrong while a case trains, as callbacks that take part."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer


class _Stateless:
    """What follows from the step alone needs no state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class RateJump(_Stateless):
    """Multiplies the learning rate from a step on."""

    def __init__(self, step: int, factor: float) -> None:
        self.first, self.factor = step, factor

    def on_before_step(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= self.factor if step >= self.first else 1.0


class Forgetting(_Stateless):
    """Leaves the optimizer only the parameters whose names begin with a prefix, as one that was made of too few."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def on_before_step(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        known = {id(parameter) for name, parameter in model.named_parameters() if name.startswith(self.prefix)}
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) in known]
