"""What a strategy is: a term of the loss with a name and a share, made from files and from the training that it takes part in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from mltrainer.configs.models import ModelConfig
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.common import FileRow
from mltrainer.tasks.task import Task


@dataclass(frozen=True)
class Training:
    """The training that a strategy takes part in.

    Attributes:
        task: Its task.
        model: The trained model, on its device.
        config: Its config.
        root: The project's folder.
        teacher: Makes a new model beside the trained one: a built-in one of this config, or None for the trained one's own.
    """

    task: Task
    model: nn.Module
    config: TrainingConfig
    root: Path
    teacher: Callable[[ModelConfig | None], nn.Module]


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch between the model's forward pass and the loss.

    Attributes:
        batch: As it was before that pass, which may change it in place.
        outputs: The trained model's, in fp32.
        targets: As the task's `forward` gave them.
    """

    batch: Any
    outputs: Any
    targets: Any


class Strategy(Protocol):
    """A term of the loss.

    Attributes:
        name: Of the term, in history and figures.
        share: Of the loss: the rest is left to the strategies after it, and to the task's own loss.
        files: What it is read from, of which each has its digest in the data's.
    """

    name: str
    share: float
    files: list[FileRow]

    def begin(self, training: Training) -> str:
        """Make ready, and return a line on what was made; called once the trained model is on its device."""

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the mean of the term over a micro-batch, a scalar to differentiate; nothing may wait for the device."""
