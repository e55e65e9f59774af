"""A model's last layer as a probe of the features that it reads, and beside it a module that learns from them without labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from mltrainer.companions.strategies.wrapping import plain_state, take_plain
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.tasks.strategy import Features, State, Strategy, Training
from mltrainer.tasks.task import Task

Settings = TypeVar("Settings", bound=configs.Probing)


class Probe(nn.Module):
    """A model's last layer, and a module that learns beside it.

    Args:
        base_layer: The last layer.
        beside: Module that learns from the model's features without labels.
        is_apart: Whether the last layer's loss leaves the rest of the model alone.
    """

    def __init__(self, base_layer: nn.Linear, beside: nn.Module, is_apart: bool) -> None:
        super().__init__()
        self.base_layer, self.beside = base_layer, beside
        self._is_apart = is_apart

    def forward(self, features: Tensor) -> Tensor:
        """Return the last layer's outputs."""
        outputs: Tensor = self.base_layer(features.detach() if self._is_apart and self.training else features)
        return outputs


class Probing(Strategy[Settings]):
    """Base of strategies that learn features without labels, beside a probe of them."""

    adapts = True

    def __init__(self, settings: Settings, key: str, root: Path) -> None:
        super().__init__(settings, key, root)
        self.share = settings.weight

    def head_of(self, model: nn.Module) -> str:
        """Return the name of a model's last layer: the linear one that the config names, else the last of all.

        Raises:
            InputError: There is no linear layer, or it is the whole model.
        """
        pattern = self.settings.head
        if (around := next(iter(probes(model)), None)) is not None:
            return around
        linear = [name for name, module in model.named_modules() if name and isinstance(module, nn.Linear)]
        named = [name for name in linear if re.search(pattern or "", name)]
        if not named:
            what = f"no linear layer's name matches {pattern!r}" if pattern else "the model has no linear layer within"
            raise InputError(what, where=f"{self.key}.head", hint="name the layer that reads the features, an nn.Linear")
        return str(named[-1])

    def put(self, model: nn.Module, name: str, beside: nn.Module) -> None:
        """Put a module beside a model's last layer.

        Raises:
            InputError: The model has nothing to learn before it.
        """
        head: Any = model.get_submodule(name)
        inside = {id(p) for p in head.parameters()}
        if not any(p.requires_grad and id(p) not in inside for p in model.parameters()):
            what = "the model has nothing to learn before its last layer, so that its features are the inputs"
            raise InputError(what, where=self.key, hint="take a model with layers before it")
        model.set_submodule(name, Probe(head, beside, self.settings.probe))
        take_plain(model, probes, lambda _layer, _is_plain: None)

    def plain(self, model: nn.Module) -> State:
        """Return the state of the task's own model, without the module beside its last layer."""
        return plain_state(model, probes(model))

    def release(self, model: nn.Module) -> None:
        """Put the last layer back in its place."""
        for name, probe in probes(model).items():
            model.set_submodule(name, probe.base_layer)

    def features(self, training: Training) -> Features:
        """Return a function from a batch to the input of the model's last layer."""
        name = self.head_of(training.model)
        return lambda batch: read_features(training.task, training.model, name, batch, self.key).float()


def probes(model: nn.Module) -> Mapping[str, Probe]:
    """Return the probe of a model, by the name of its last layer; empty without one."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Probe)}


def read_features(task: Task, model: nn.Module, name: str, batch: Any, key: str) -> Tensor:
    """Return the features that a model's last layer reads of a batch, [samples, features].

    Raises:
        InputError: The features have another shape.
    """
    seen: list[Any] = []
    handle = model.get_submodule(name).register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    try:
        task.forward(model, batch)
    finally:
        handle.remove()
    if len(seen) != 1 or not isinstance(seen[0], Tensor) or seen[0].dim() != 2:
        features_seen = f"{[*seen[0].shape]}" if seen and isinstance(seen[0], Tensor) else f"{len(seen)} calls"
        what = f"the last layer reads {features_seen}; a row of features for each sample was expected"
        raise InputError(what, where=key, hint="let the model end in a linear layer that reads its features")
    return seen[0]
