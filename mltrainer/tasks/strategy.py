"""The interface of a strategy: settings of an addition to a training, with a method for each place where it takes part."""

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
        task: The training's task.
        model: The trained model; on its device, once strategies begin.
        config: The training's config.
        root: The project's folder.
        teacher: Makes a new model beside the trained one: a built-in one of the given config; None: one like the trained one.
        batch: Returns a number of the first training samples as one batch on the CPU.
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
        batch: The batch as it was before that pass, which may change it in place.
        outputs: The trained model's outputs, in fp32.
        targets: The targets that the task's `forward` returned.
        ids: The ids of its samples, int64.
    """

    batch: Any
    outputs: Any
    targets: Any
    ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Reading:
    """The training samples, for one reading before the first step.

    Attributes:
        samples: The training samples, with their ids.
        data_sha256: Digest of the data, with the files that strategies are read from.
        progress: Takes the number of batches that are done, and of all batches.
    """

    samples: Samples
    data_sha256: str
    progress: Callable[[int, int], None]


@dataclass(frozen=True)
class Ranked:
    """The training samples with their difficulty, for a strategy that orders them.

    Attributes:
        ids: The training samples' ids.
        place: Returns a sample's place in its source, by its id.
        difficulty: Returns a number for each sample by its id, NaN where there is none, from the source that a config key names:
            a column, or another of the task's features; None: the task's `difficulty`. float64.
    """

    ids: Ids
    place: Callable[[int], str]
    difficulty: Callable[[str | None, str], np.ndarray]


class Strategy(ABC, Generic[Settings]):
    """An addition to a training beside its task; a strategy overrides the methods of the places where it takes part.

    Args:
        settings: The settings from the config.
        key: The key of the settings in the config.
        root: The project's folder.

    Attributes:
        name: The name of the strategy and its term of the loss, in history and figures.
        share: The factor of its term in the loss. 0: it has no term.
        files: The files that it is read from, whose digests are part of the data's.
        adapts: Whether it changes the model.
        alters: Whether it changes the training batches.
        holds: Whether it holds parameters.
        losses: The names of the task's losses that it weighs, once it has begun; empty where it weighs none.
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
        """The factor of the task's loss beside its term: 1 less its share."""
        return 1 - self.share

    def library(self, module: str, role: str, extra: str) -> Any:
        """Return a module of a package that belongs to an extra.

        Args:
            module: The module's name; the first part is the package's.
            role: The package's role, as a clause after "which".
            extra: The extra that installs it.

        Raises:
            InputError: The package is not installed.
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
            training: The training, with the model and its first weights.
            new: Names of its tensors with random weights, where others come from a file.
        """

    @abstractmethod
    def begin(self, training: Training) -> str:
        """Prepare the strategy, and return a line on it; called once the trained model is on its device."""

    def read(self, training: Training, reading: Reading) -> str | None:
        """Read the training samples once, after all have begun, and return a line on the data kept; None: nothing is."""
        return None

    def require_teacher(self, training: Training, teacher: nn.Module) -> None:
        """Refuse another strategy's teacher that this one does not work with; all have begun.

        Raises:
            InputError: They do not work together; the message has the reason.
        """

    def alter(self, batch: Any, ids: np.ndarray, epoch: int) -> Any:
        """Return a training batch altered for its step in an epoch, from 0; batches of evaluations are not altered."""
        return batch

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the mean of the term over a micro-batch, a scalar to differentiate; nothing may wait for the device."""
        raise NotImplementedError(f"{self.name} has a share of the loss and no term")

    def weighed(self, micro: MicroBatch) -> tuple[Tensor, list[Tensor]]:
        """Return a scalar to differentiate in place of the task's loss, and the task's losses in the order of `losses`."""
        raise NotImplementedError(f"{self.name} names losses and does not weigh them")

    def stepped(self) -> None:
        """Follow a step of the optimizer, also one that fp16 left out; nothing may wait for the device."""

    def state(self) -> dict[str, Any] | None:
        """Return the state, beside the trained model's, that a resume needs, tensors included; None: there is none."""
        return None

    def load_state(self, state: Mapping[str, Any] | None) -> None:
        """Resume from a state, after the model has; None: begin from the start, with the model as it is."""

    def views(self, training: Training) -> dict[str, Forward]:
        """Return alternative forward passes, by the prefix of the names of the metrics measured with them."""
        return {}

    def features(self, training: Training) -> Features | None:
        """Return a function from a batch to features for a nearest-neighbour metric; None: none is measured."""
        return None

    def teacher(self) -> tuple[str, nn.Module] | None:
        """Return a description of the teacher model, which is measured beside the trained one, and the model; None: none."""
        return None

    def plain(self, model: nn.Module) -> State | None:
        """Return an adapted model's state in the form of the task's model, for delivery; None: it is the same."""
        return None

    def quantized(self, model: nn.Module) -> int:
        """Return the number of a model's weights that are quantized, which are no parameters."""
        return 0

    def release(self, model: nn.Module) -> None:
        """Turn an adapted trained model back into the task's model, in place."""

    def delivered(self, model: nn.Module) -> dict[str, bytes]:
        """Return files that are delivered beside the task's model, by name; `model` is as it was trained."""
        return {}
