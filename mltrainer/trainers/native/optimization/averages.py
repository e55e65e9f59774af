"""Averaged weights, which a run evaluates and delivers instead of the trained ones: EMA, SWA, or the optimizer's own average."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from mltrainer.checkpointing.format import Tree
from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import Batch, Plan, evaluation_batches
from mltrainer.trainers.native.optimization.precision import autocast
from mltrainer.trainers.native.parallel.partition import Partition

State = dict[str, Tensor]


class Average:
    """A running average of a model's floating-point state, batch-norm statistics included.

    Args:
        model: The model, on its device.
        config: The config; without `averaging` there is no average.
        plan: The run's plan, which decides the steps that enter the average.
        partition: This process's part of each parameter, which it updates and averages.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, plan: Plan, partition: Partition) -> None:
        self.config, self.plan, self._partition = config.averaging, plan, partition
        self._places, self._cut = _places(model), _cut(model, partition)
        self.tensors: State = {}
        self.count = 0

    def update(self, step: int) -> None:
        """Add the weights after a step to the average, if the step is one of those that enter it."""
        if self.config is not None and self.config.is_due(step, self.plan.steps, self.plan.steps_per_epoch):
            self._take_in(self.config.share(self.count))

    @torch.no_grad()
    def _take_in(self, share: float) -> None:
        whole = {name: places for name, places in self._places.items() if name not in self._cut}
        current = {name: tensors[key] for name, (tensors, key) in whole.items()}
        current |= {name: self._partition.own[own] for name, own in self._cut.items()}
        if not self.count:
            self.tensors = {name: tensor.detach().clone() for name, tensor in current.items()}
        else:
            torch._foreach_lerp_([self.tensors[name] for name in current], [*current.values()], share)
        self.count += 1

    def state_dict(self) -> Tree:
        """Return the average, its number of steps, and the name of its kind."""
        cut, marked = self._cut, self._partition.marked
        tensors = {name: marked(cut[name], t) if name in cut else t for name, t in self.tensors.items()}
        return {"tensors": tensors, "count": self.count, "name": self._name}

    def whole(self) -> State:
        """Return the average, with all processes' rows."""
        cut = self._cut
        return {name: self._partition.whole(cut[name], t) if name in cut else t for name, t in self.tensors.items()}

    @property
    def _name(self) -> str | None:
        return self.config.name if self.config is not None else None

    def load_state_dict(self, state: Tree) -> None:
        """Continue an average; it is ignored if the config has no averaging or one of another kind."""
        if self.config is not None and state["name"] == self._name:
            self.count = state["count"]
            devices = {name: tensors[key].device for name, (tensors, key) in self._places.items()}
            given = {name: tensor.to(devices[name]) for name, tensor in state["tensors"].items()}
            self.tensors = {name: self._own_rows(name, tensor) for name, tensor in given.items()}

    def _own_rows(self, name: str, whole: Tensor) -> Tensor:
        own = self._cut.get(name)
        # A copy, which releases the rows that other processes average.
        return whole if own is None else self._partition.rows_of({own: whole})[own].clone()


def _places(model: nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the dict and key of each floating-point state tensor; a module may put another tensor there in any step."""
    # Only members of the state: `load_state_dict` would refuse the name of a buffer that is not persistent.
    state = model.state_dict()
    return {
        name: (tensors, key)
        for path, module in model.named_modules(remove_duplicate=False)
        for tensors in (module._parameters, module._buffers)
        for key, tensor in tensors.items()
        if (name := f"{path}.{key}".removeprefix(".")) in state and tensor is not None and tensor.is_floating_point()
    }


def _cut(model: nn.Module, partition: Partition) -> dict[str, str]:
    """Return the parameters of which this process averages only some rows: the partition's name by each name in the state."""
    cut = {model.get_parameter(name): name for name in partition.cut}
    return {name: cut[p] for name, p in model.named_parameters(remove_duplicate=False) if p in cut}


def delivered_state(
    task: OpenTask, model: nn.Module, config: TrainingConfig, average: Average, own: Mapping[Tensor, Tensor] | None
) -> State | None:
    """Return the whole state of the model for evaluation and delivery; None if it is the trained one.

    Args:
        task: The task, with the samples that batch-norm statistics are measured on.
        model: The trained model.
        config: The run's config.
        average: The average of the weights so far.
        own: The optimizer's own average, by parameter; None if it has none.
    """
    state = _averaged_state(model, average, own)
    if state is None:
        return task.strategies.plain(model)
    if not _needs_statistics(model, config):
        return state
    with holding(model, state):
        _measure_statistics(task, model, config)
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _averaged_state(model: nn.Module, average: Average, own: Mapping[Tensor, Tensor] | None) -> State | None:
    if average.count:
        return {**model.state_dict(), **average.whole()}
    if own is None:
        return None
    by_name = {name: own[p] for name, p in model.named_parameters(remove_duplicate=False) if p in own}  # tied ones alike
    return {**model.state_dict(), **by_name}


@contextlib.contextmanager
def holding(model: nn.Module, state: State | None) -> Iterator[None]:
    """Load a state into a model for a block; afterwards the model's own state is restored, bit for bit."""
    if state is None:
        yield
        return
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    try:
        yield
    finally:
        model.load_state_dict(own)


def _needs_statistics(model: nn.Module, config: TrainingConfig) -> bool:
    """Return True if batch-norm statistics must be measured for averaged weights; an EMA averages them with the weights."""
    averages_weights_alone = config.optimizer.name == "schedule_free" or (config.averaging and config.averaging.name == "swa")
    return bool(averages_weights_alone) and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


def _measure_statistics(task: OpenTask, model: nn.Module, config: TrainingConfig) -> None:
    """Measure the batch-norm statistics of a model's present weights, over the training samples."""
    samples = task.split("train")
    measure_statistics(task.task, model, config, evaluation_batches(samples, np.arange(len(samples)), config, "train"))


def measure_statistics(task: Task, model: nn.Module, config: TrainingConfig, batches: Iterable[Batch]) -> None:
    """Measure a model's batch-norm statistics over some batches; does nothing for a model without any."""
    with autocast(config):
        update_bn(_alone(batches, config.seed), _Forward(task, model))


def _alone(batches: Iterable[Batch], seed: int) -> Iterator[list[Batch]]:
    """Yield each batch as the only item of a list, whose first item `update_bn` passes on; each has its own random draws."""
    for number, batch in enumerate(batches):
        seeds.seed_everything(seeds.key(seed, "statistics", number))  # reading samples in this process has changed the seeds too
        yield [batch]


class _Forward(nn.Module):
    """A task's forward pass as a module."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Batch) -> Any:
        outputs, _ = self.task.forward(self.model, batch)
        return outputs
