"""Models and tasks that tests make of what they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

import mltrainer


class Wired(nn.Module):
    """Named parts, and a function of the model and what it is given."""

    def __init__(self, call: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.call = call

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.call(self, *inputs, **named)


class Toy(mltrainer.Task):
    """A task with the methods that a test gives."""

    def __init__(self, **methods: Any) -> None:
        vars(self).update(methods)
