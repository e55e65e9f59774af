"""A task's own optimizer and schedulers: at each step the schedulers' rates, replayed from the run's beginning.

A scheduler's state is never saved: it is a function of the step and of the history, and is replayed on a second optimizer, which
never takes a step. So a run that goes on, or repeats a step, has the rates of one that never stopped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.run import Group
from mltrainer.tasks.task import Task
from mltrainer.tasks.updating import Length, Scheduler, Updates
from mltrainer.tasks.user_code import user_code
from mltrainer.trainers.native.optimization.optimizers import SHARE

SCHEDULED = ("lr", "momentum", "betas")  # the entries of a group that PyTorch's schedulers change
USE = "optimizer.name"


class OwnUpdates:
    """A task's own optimizer, whose groups have at each step the rates of its schedulers.

    Args:
        make: The function that makes a new optimizer and schedulers.
        length: The length of the run; after its end the rates stay.
        root: The project's folder, for messages.
        follows: Whether the schedulers count; without them a group keeps its first learning rate.

    Attributes:
        optimizer: The optimizer that trains.
    """

    def __init__(self, make: Callable[[], Updates], length: Length, root: Path, *, follows: bool) -> None:
        self._make, self._length, self._root, self._follows = make, length, root, follows
        self.optimizer = make().optimizer
        self._begin()
        self._take_rates()

    def enter(self, step: int, history: Sequence[Mapping[str, Any]]) -> None:
        """Set the groups to the schedulers' rates for a step (from 1).

        Args:
            step: The step that is trained next.
            history: The evaluations before it.

        Raises:
            InputError: A scheduler monitors a metric that is not measured.
        """
        if not self._follows:
            return
        if step <= self._done:
            self._begin()
        rows = {row["step"]: row for row in history} if self._monitors else {}
        # Not past the end: schedulers such as OneCycleLR raise if they are stepped more often than planned.
        while self._done < min(step, self._length.steps) - 1:
            self._done += 1
            with user_code(self._root, "a scheduler of your task"):
                self._after(self._done, rows.get(self._done))
        self._take_rates()

    def _begin(self) -> None:
        self._shadow, self._done, self._evaluations = self._make(), 0, 0
        self._monitors = any(scheduler.monitor for scheduler in self._shadow.schedulers)

    def _after(self, step: int, row: Mapping[str, Any] | None) -> None:
        """Step the schedulers that are due after a step of the run."""
        epoch, rest = divmod(step, self._length.steps_per_epoch)
        self._evaluations += row is not None
        counts = {"step": step, "epoch": None if rest else epoch, "evaluation": self._evaluations if row is not None else None}
        for scheduler in self._shadow.schedulers:
            count = counts["evaluation" if scheduler.monitor else scheduler.every]
            if count is not None and count % scheduler.frequency == 0:
                _step(scheduler, row)

    def _take_rates(self) -> None:
        for group, made in zip(self.optimizer.param_groups, self._shadow.optimizer.param_groups, strict=True):
            group.update({key: made[key] for key in SCHEDULED if key in made})
            group[SHARE] = float(made["lr"])


def _step(scheduler: Scheduler, row: Mapping[str, Any] | None) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)  # that optimizer takes no steps
        if scheduler.monitor is None:
            scheduler.it.step()
            return
        assert row is not None
        scheduler.it.step(_metric(scheduler.monitor, row))


def _metric(name: str, row: Mapping[str, Any]) -> float:
    """Return the metric of a name from a row of the history.

    Raises:
        InputError: The row lacks the metric; with the names that exist.
    """
    measured = {**{f"train_{key}": value for key, value in row["train"].items()}, **row["validation"]}
    if name not in measured:
        what = f"a scheduler goes by {name!r}, which no evaluation measures; there are {', '.join(sorted(measured))}"
        raise InputError(what, where=USE, hint="name one of them as what the scheduler monitors")
    return float(measured[name])


def own_updates(task: Task, model: nn.Module, config: TrainingConfig, length: Length, root: Path) -> OwnUpdates | None:
    """Return the task's own updates if the config asks for them, else None.

    Raises:
        InputError: The task does not define `updates`.
    """
    if config.optimizer.name != "own":
        return None
    if type(task).updates is Task.updates:
        hint = "write updates(self, model, length) in your class, or: mltrainer phase run planning --set optimizer.name=adamw"
        raise InputError(
            f"{type(task).__name__} makes no optimizer of its own", where=USE, hint=f"{hint} --set schedule.name=cosine"
        )

    def make() -> Updates:
        with user_code(root, "updates of your task"):
            return _checked(task.updates(model, length))

    return OwnUpdates(make, length, root, follows=config.schedule.name == "own")


def _checked(given: Any) -> Updates:
    """Return the user's optimizer and schedulers, checked.

    Raises:
        InputError: The value is not an `Updates` with a torch optimizer.
    """
    if isinstance(given, Updates) and isinstance(given.optimizer, torch.optim.Optimizer):
        return given
    found = type(given.optimizer if isinstance(given, Updates) else given).__name__
    raise InputError("updates()", expected="mltrainer.tasks.updating.Updates with a torch optimizer", found=found, where=USE)


def groups_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> list[Group]:
    """Return an optimizer's groups in the form of `parameter_groups`."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return [
        Group(
            lr=float(group[SHARE]),
            weight_decay=float(group.get("weight_decay", 0.0)),
            parameters=[names[p] for p in group["params"] if p in names],
        )
        for group in optimizer.param_groups
    ]
