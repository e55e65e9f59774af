"""An optimizer whose state is in the memory of the CPU while the model is on another device.

Source: Ren et al., 2021, ZeRO-Offload, arXiv 2101.06840: gradients come to the CPU, the update is computed there, and the
updated weights go back. The device then holds weights and gradients, but no moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.trainers.native.optimization.optimizers import build_optimizer

NOTHING_TO_DO = "launch.offload: optimizer changes nothing: the model is on the CPU, and so is its optimizer's state"


def is_offloaded(config: TrainingConfig) -> bool:
    """Return True if the optimizer's state must be on another device than the model."""
    return config.launch.offload is not None and config.device != "cpu"


def optimizer_for(config: TrainingConfig, model: nn.Module, own: Mapping[str, Tensor]) -> Any:
    """Return the config's optimizer, offloaded if the config asks for it and the model is not on the CPU.

    Args:
        config: The training's config.
        model: The model, on its device.
        own: The tensors that the optimizer updates, by the parameter's name.
    """
    return Offloaded(config, model, own) if is_offloaded(config) else build_optimizer(config.optimizer, model, own)


class Offloaded:
    """An optimizer of copies of the parameters on the CPU; the trainer uses it like an optimizer of the parameters.

    Args:
        config: The training's config.
        model: The model, on its device.
        own: The tensors that the optimizer updates, by the parameter's name.
    """

    def __init__(self, config: TrainingConfig, model: nn.Module, own: Mapping[str, Tensor]) -> None:
        self._own = dict(own)
        self._copies = {name: nn.Parameter(p.detach().to("cpu", copy=True)) for name, p in own.items()}
        self._base = build_optimizer(config.optimizer, model, self._copies)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups, with the copies."""
        groups: list[dict[str, Any]] = self._base.param_groups
        return groups

    @property
    def state(self) -> Any:
        """The optimizer's state, by copy."""
        return self._base.state

    @torch.no_grad()
    def step(self) -> None:
        """Copy weights and gradients to the CPU, update them there, and copy the weights back.

        The weights are copied too, although the copies had them after the last step: a callback, a rewind or a checkpoint may
        have changed them since.
        """
        for name, p in self._own.items():
            copy = self._copies[name]
            copy.copy_(p)
            copy.grad = None if p.grad is None else p.grad.to(copy.device, copy=True)
        self._base.step()
        for name, p in self._own.items():
            p.copy_(self._copies[name])
            self._copies[name].grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state in the form of an optimizer that is not offloaded."""
        found: dict[str, Any] = self._base.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state, on the CPU."""
        self._base.load_state_dict(state)
