"""The strategies of a training, joined: one model, one loss."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer import plugins
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, first_repeated
from mltrainer.records.common import FileRow
from mltrainer.reproducibility import seeds
from mltrainer.tasks.strategy import (
    Alter,
    EpochOrder,
    Features,
    Forward,
    MicroBatch,
    Ranked,
    Reading,
    State,
    Strategy,
    Training,
)
from mltrainer.tasks.structures import mapped

TASK = "task"  # the name of the task's loss among the terms


class Strategies:
    """The strategies of a training; without any, the training is unchanged.

    Args:
        each: The strategies, in the config's order.
    """

    def __init__(self, each: Sequence[Strategy[Any]] = ()) -> None:
        self._each = each
        self._with_term = [strategy for strategy in each if strategy.share]
        self._left = math.prod(strategy.left for strategy in each)
        self._copies = False
        self.address = 0  # the address of the draws of the terms in a micro-batch
        self._weighs: Strategy[Any] | None = None

    @property
    def terms(self) -> list[str]:
        """The names of the loss's terms, followed by those of the task's separate losses; none where the task's loss is all."""
        found = [*(strategy.name for strategy in self._with_term), *(name for strategy in self._each for name in strategy.losses)]
        return [TASK, *found] if found else []

    @property
    def files(self) -> list[FileRow]:
        """The rows of the files that the strategies are read from."""
        return [row for strategy in self._each for row in strategy.files]

    def rank(self, samples: Ranked) -> EpochOrder | None:
        """Return the order in which the training samples of an epoch are read; None: the one without strategies."""
        return next((order for strategy in self._each if (order := strategy.rank(samples)) is not None), None)

    # --- the model ---

    @property
    def adapts(self) -> bool:
        """Whether one of them changes the model."""
        return any(strategy.adapts for strategy in self._each)

    @property
    def holds(self) -> bool:
        """Whether one of them holds parameters."""
        return any(strategy.holds for strategy in self._each)

    def adapt(self, training: Training, new: Sequence[str] = ()) -> None:
        """Change a new model in place; `new` names tensors that begin as drawn ones, where others come from a file."""
        for strategy in self._each:
            strategy.adapt(training, new)

    def plain(self, model: nn.Module) -> State | None:
        """Return a trained model's state in the form of the task's model; None where the model is unchanged."""
        return next((state for strategy in self._each if (state := strategy.plain(model)) is not None), None)

    def size(self, model: nn.Module) -> int:
        """Return the number of a model's parameters, with those that are quantized."""
        return sum(p.numel() for p in model.parameters()) + sum(strategy.quantized(model) for strategy in self._each)

    def release(self, model: nn.Module) -> None:
        """Turn an adapted trained model back into the task's model, in place."""
        for strategy in self._each:
            strategy.release(model)

    def delivered(self, model: nn.Module) -> dict[str, bytes]:
        """Return files that are delivered beside the task's model, by name; `model` is as it was trained."""
        return {name: content for strategy in self._each for name, content in strategy.delivered(model).items()}

    def views(self, training: Training) -> dict[str, Forward]:
        """Return alternative forward passes, by the prefix of the names of the metrics measured with them."""
        return {word: forward for strategy in self._each for word, forward in strategy.views(training).items()}

    def features(self, training: Training) -> Features | None:
        """Return a function from a batch to features for a nearest-neighbour metric; None: none is measured."""
        return next((found for strategy in self._each if (found := strategy.features(training)) is not None), None)

    def teacher(self) -> tuple[str, nn.Module] | None:
        """Return a description of the teacher model, and the model; None where there is none."""
        return next((found for strategy in self._each if (found := strategy.teacher()) is not None), None)

    # --- the loss ---

    @property
    def alterations(self) -> list[Alter]:
        """The alterations of a training batch before its step, in order."""
        return [strategy.alter for strategy in self._each if strategy.alters]

    def begin(self, training: Training) -> list[str]:
        """Prepare all strategies, and return a line on each; the training's draws stay the same.

        Raises:
            InputError: One does not fit the task, or two terms of the loss would have one name.
        """
        with seeds.kept():
            lines = [strategy.begin(training) for strategy in self._each]
            if (followed := self.teacher()) is not None:
                for strategy in self._each:
                    strategy.require_teacher(training, followed[1])
        if repeated := first_repeated(self.terms):
            what = f"two terms of the loss would be named {repeated}"
            raise InputError(what, where="strategies", hint="give the loss another name in your task's terms")
        self._weighs = next((strategy for strategy in self._each if strategy.losses), None)
        # Only where a custom task's code, or its model, may change its arguments.
        self._copies = bool(self.terms) and training.config.task.use is not None
        return lines

    def read(self, training: Training, reading: Reading) -> list[str]:
        """Let each read the training samples once, and return lines on the data kept; the training's draws stay the same.

        Raises:
            InputError: A strategy cannot read the samples.
        """
        with seeds.kept():
            return [line for strategy in self._each if (line := strategy.read(training, reading)) is not None]

    @property
    def watching(self) -> AbstractContextManager[None]:
        """The context in which the trained model's forward pass on a micro-batch is made."""
        return next((strategy.watch for strategy in self._each if strategy.watch is not None), nullcontext())

    def stepped(self) -> None:
        """Follow a step of the optimizer."""
        for strategy in self._each:
            strategy.stepped()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each strategy beside that of the trained model, by name; empty where none has any."""
        return {strategy.name: state for strategy in self._each if (state := strategy.state()) is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, after the model has; a strategy without a state begins from the start."""
        for strategy in self._each:
            strategy.load_state(state.get(strategy.name))

    def untouched(self, batch: Any) -> Any:
        """Return a copy of a batch where a forward pass may change it in place, else the batch."""
        if not self._copies:
            return batch
        if type(batch) in (tuple, list) and all(type(part) is Tensor for part in batch):  # ten times as fast as the other way
            return type(batch)(part.clone() for part in batch)
        return copy.deepcopy(batch)

    def kept(self, outputs: Any) -> Any:
        """Return a copy of outputs where the task's loss may change them in place, else the outputs."""
        return mapped(Tensor.clone, outputs) if self._copies else outputs

    def join(self, loss: Tensor, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """Return a micro-batch's mean loss.

        Returns:
            The loss to differentiate; and detached, for `reported`, the reported loss with its terms where it has some.
        """
        if not self.terms:
            return loss, loss.detach()
        # At a separate address: draws of the task's loss, or of a monitor within it, do not affect them.
        seeds.seed_everything(self.address)
        terms = [loss.reshape(()), *(strategy.term(micro) for strategy in self._with_term)]
        joined = objective = self._joined(terms)
        if self._weighs is not None:
            weighed, losses = self._weighs.weighed(micro)
            # The reported loss stays the task's: with other weights in each step, no two steps could be compared.
            objective, terms = self._joined([weighed, *terms[1:]]), [*terms, *losses]
        return objective, torch.stack([joined.detach(), *(term.detach().to(joined.dtype) for term in terms)])

    def _joined(self, terms: list[Tensor]) -> Tensor:
        shared = [strategy.share * term for strategy, term in zip(self._with_term, terms[1:], strict=True)]
        # Left out and not times 0, which a loss that is not finite would survive.
        parts = [self._left * terms[0], *shared] if self._left > 0 else shared
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor that `join` returns detached."""
        return (1 + len(self.terms),) if self.terms else ()

    def reported(self, joined: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss, and its terms in the order of `terms`, from the detached tensor of `join` or a mean of several."""
        return (joined[0], joined[1:]) if self.terms else (joined, None)


def strategies_of(config: TrainingConfig, root: Path) -> Strategies:
    """Return the strategies of a config, whose files are read once for their digests.

    Raises:
        InputError: There is no such file.
    """
    return Strategies(
        [plugins.part("strategies", one.name)(one, f"strategies.{nr}", root) for nr, one in enumerate(config.strategies)]
    )
