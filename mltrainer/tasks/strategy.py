"""What a strategy is: settings of what a training does beside its task, with a method for each place where it may take part."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from mltrainer.configs.models import ModelConfig
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.tasks.ids import Ids
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.task import Task

Settings = TypeVar("Settings")
State = dict[str, Tensor]
EpochOrder = Callable[[Ids, int, int], np.ndarray]  # from samples, seed, and epoch from 0 to their positions
Alter = Callable[[Any, np.ndarray, int], Any]  # from a training batch, its samples' ids and the epoch, from 0, to another batch
Features = Callable[[Any], Tensor]  # from a batch to [samples, features]
Forward = Callable[[Any], tuple[Any, Any]]  # from a batch to outputs and targets


@dataclass(frozen=True)
class Training:
    """The training that a strategy takes part in.

    Attributes:
        task: Its task.
        model: The trained model; on its device, once strategies begin.
        config: Its config.
        root: The project's folder.
        teacher: Makes a new model beside the trained one: a built-in one of this config, or None for the trained one's own.
        batch: Returns the first training samples, so many of them, as one batch on the CPU.
    """

    task: Task
    model: nn.Module
    config: TrainingConfig
    root: Path
    teacher: Callable[[ModelConfig | None], nn.Module]
    batch: Callable[[int], Any]


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch between the model's forward pass and the loss.

    Attributes:
        batch: As it was before that pass, which may change it in place.
        outputs: The trained model's, in fp32.
        targets: As the task's `forward` gave them.
        ids: Of its samples, int64.
    """

    batch: Any
    outputs: Any
    targets: Any
    ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Reading:
    """The training samples, as they are read once before the first step.

    Attributes:
        samples: With their ids.
        data_sha256: Digest of the data, with the files that strategies are read from.
        progress: Takes how many batches are done, and of how many.
    """

    samples: Samples
    data_sha256: str
    progress: Callable[[int, int], None]


@dataclass(frozen=True)
class Ranked:
    """The training samples, as a strategy asks how difficult they are.

    Attributes:
        ids: Of the training samples.
        place: Returns where a sample lies in its source, by its id.
        difficulty: Returns a number for each sample by its id, NaN where there is none, of what a key of the config names:
            a column, or another of the task's features; None: what the task itself says. float64.
    """

    ids: Ids
    place: Callable[[int], str]
    difficulty: Callable[[str | None, str], np.ndarray]


class Strategy(ABC, Generic[Settings]):
    """What a training does beside its task; a strategy writes the methods of the places where it takes part.

    Args:
        settings: The config's.
        key: Their key in the config.
        root: The project's folder.

    Attributes:
        name: Of the strategy and its term of the loss, in history and figures.
        share: The factor of its term in the loss. 0: it has no term.
        files: What it is read from, of which each has its digest in the data's.
        adapts: Whether it changes the model.
        alters: Whether it changes the training batches.
        holds: Whether it holds parameters.
        losses: The names of the losses that it tells apart in the task's own, once it has begun; empty where it tells none.
        watch: The context in which the trained model's forward pass on a micro-batch is made; None: any.
    """

    name: str
    share: float = 0.0
    files: Sequence[FileRow] = ()
    adapts = False
    alters = False
    holds = False
    losses: Sequence[str] = ()
    watch: AbstractContextManager[None] | None = None

    def __init__(self, settings: Settings, key: str, root: Path) -> None:
        self.settings, self.key, self.root = settings, key, root

    @property
    def left(self) -> float:
        """The factor of the task's own loss beside its term: what its share leaves."""
        return 1 - self.share

    def library(self, module: str, role: str, extra: str) -> Any:
        """Return a module of a package that belongs to an extra.

        Args:
            module: Its name; the first part is the package's.
            role: What it does here, as it stands behind "which".
            extra: The extra that installs it.

        Raises:
            InputError: It is not installed.
        """
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            package = module.partition(".")[0].replace("_", "-")
            what = f"{package} is not installed, which {role}"
            raise InputError(what, where=self.key, hint=f'pip install "mltrainer[{extra}]"') from error

    def rank(self, samples: Ranked) -> EpochOrder | None:
        """Return the order in which the training samples of an epoch are read; None: the one without it."""
        return None

    def adapt(self, training: Training, new: Sequence[str]) -> None:
        """Change a new model in place, before it is on its device.

        Args:
            training: With the model, and the weights that it begins with.
            new: Names of its tensors that begin as drawn ones, where others come from a file.
        """

    @abstractmethod
    def begin(self, training: Training) -> str:
        """Make ready, and return a line on what was made; called once the trained model is on its device."""

    def read(self, training: Training, reading: Reading) -> str | None:
        """Read the training samples once, after all have begun, and return a line on what is kept of them; None: nothing is."""
        return None

    def require_teacher(self, training: Training, teacher: nn.Module) -> None:
        """Refuse a model that another strategy follows and that this one does not go with; all have begun.

        Raises:
            InputError: With the reason.
        """

    def alter(self, batch: Any, ids: np.ndarray, epoch: int) -> Any:
        """Return a training batch as it is learned from in an epoch, from 0; no batch that is measured comes here."""
        return batch

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the mean of the term over a micro-batch, a scalar to differentiate; nothing may wait for the device."""
        raise NotImplementedError(f"{self.name} has a share of the loss and no term")

    def weighed(self, micro: MicroBatch) -> tuple[Tensor, list[Tensor]]:
        """Return a scalar to differentiate in place of the task's own loss, and its losses in the order of `losses`."""
        raise NotImplementedError(f"{self.name} tells losses apart and does not weigh them")

    def stepped(self) -> None:
        """Follow a step of the optimizer, also one that fp16 left out; nothing may wait for the device."""

    def state(self) -> dict[str, Any] | None:
        """Return the state beside the trained model's that a resume needs, tensors among it; None: there is none."""
        return None

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Go on with a state, after the model has taken its own; None: as at the beginning, with the model as it stands."""

    def views(self, training: Training) -> dict[str, Forward]:
        """Return other ways to the outputs of a batch, by the word before the metrics' names that are measured by them."""
        return {}

    def features(self, training: Training) -> Features | None:
        """Return a function from a batch to features by which neighbours are told; None: none are measured."""
        return None

    def teacher(self) -> tuple[str, nn.Module] | None:
        """Return the model that is followed, beside which the trained one is measured, after a few words on it; None: none."""
        return None

    def plain(self, model: nn.Module) -> State | None:
        """Return the state of a model that was adapted as the task's own model has it, to be delivered; None: it is the same."""
        return None

    def quantized(self, model: nn.Module) -> int:
        """Return the count of a model's numbers that lie in few bits, which are no parameters."""
        return 0

    def release(self, model: nn.Module) -> None:
        """Make a trained model that was adapted the task's own again, in place."""

    def delivered(self, model: nn.Module) -> dict[str, bytes]:
        """Return files that are delivered beside the task's own model, by name; of the model as it was trained."""
        return {}
