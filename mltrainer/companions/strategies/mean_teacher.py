"""A teacher that is the moving average of the model that learns from it (Tarvainen and Valpola, 2017, arXiv 1703.01780)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs.averaging import Ema
from mltrainer.tasks.strategy import State


class MeanTeacher:
    """The exponential moving average of a model's floating-point state, batch-norm statistics included.

    Args:
        model: The trained model.
        average: A new model of its form, which becomes the average.
        decay: Decay as in `averaging`; the first steps keep less.

    Attributes:
        average: The average as a model.
    """

    def __init__(self, model: nn.Module, average: nn.Module, decay: float) -> None:
        self._model, self._ema, self.average = model, Ema(decay=decay), average
        self.load_state(None)

    @torch.no_grad()
    def step(self) -> None:
        """Take the model's present state into the average."""
        own, average = _state(self._model), _state(self.average)
        floats = [name for name in own if own[name].is_floating_point()]
        torch._foreach_lerp_([average[n] for n in floats], [own[n] for n in floats], self._ema.share(self._count))
        for name in own.keys() - floats:  # such as counts of batches, of which there is no mean
            average[name].copy_(own[name])
        self._count += 1

    def state(self) -> dict[str, Any]:
        """Return the average and its number of steps."""
        return {"tensors": self.average.state_dict(), "count": self._count}

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Continue with an average; None: start from the present model."""
        self.average.load_state_dict(self._model.state_dict() if state is None else state["tensors"], strict=True)
        self._count: int = 0 if state is None else state["count"]


def _state(model: nn.Module) -> State:
    """Return the tensors of a model's state by name, one of two names once: a step must not average it twice."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        tensors.setdefault(id(tensor), (name, tensor))
    return dict(tensors.values())
