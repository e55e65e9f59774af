"""Weights that a run is measured by and delivers in place of those it trains: EMA, SWA, or the optimizer's own average."""

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
        model: On its device.
        config: `averaging`; with none there is no average.
        plan: Which steps enter it.
        partition: What this process updates of each parameter, and averages of it.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, plan: Plan, partition: Partition) -> None:
        self.config, self.plan, self._partition = config.averaging, plan, partition
        self._places, self._cut = _places(model), _cut(model, partition)
        self.tensors: State = {}
        self.count = 0

    def update(self, step: int) -> None:
        """Take the weights after a step into the average, where the step is one of those that enter it."""
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
        """Return the average, how many steps it is over, and of which kind it is."""
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
        """Go on with an average; where none is configured or one of another kind, another run's is left behind."""
        if self.config is not None and state["name"] == self._name:
            self.count = state["count"]
            devices = {name: tensors[key].device for name, (tensors, key) in self._places.items()}
            given = {name: tensor.to(devices[name]) for name, tensor in state["tensors"].items()}
            self.tensors = {name: self._own_rows(name, tensor) for name, tensor in given.items()}

    def _own_rows(self, name: str, whole: Tensor) -> Tensor:
        own = self._cut.get(name)
        # A copy, which lets go of the rows that others average.
        return whole if own is None else self._partition.rows_of({own: whole})[own].clone()


def _places(model: nn.Module) -> dict[str, tuple[dict[str, Any], str]]:
    """Return each floating-point state tensor's dict and key in it; a module may put another tensor there in any step."""
    # Only what is part of a state: `load_state_dict` would refuse the name of a buffer that is not persistent.
    state = model.state_dict()
    return {
        name: (tensors, key)
        for path, module in model.named_modules(remove_duplicate=False)
        for tensors in (module._parameters, module._buffers)
        for key, tensor in tensors.items()
        if (name := f"{path}.{key}".removeprefix(".")) in state and tensor is not None and tensor.is_floating_point()
    }


def _cut(model: nn.Module, partition: Partition) -> dict[str, str]:
    """Return the parameters of which this process averages some rows: the partition's name by each name in the state."""
    cut = {model.get_parameter(name): name for name in partition.cut}
    return {name: cut[p] for name, p in model.named_parameters(remove_duplicate=False) if p in cut}


def delivered_state(
    task: OpenTask, model: nn.Module, config: TrainingConfig, average: Average, own: Mapping[Tensor, Tensor] | None
) -> State | None:
    """Return the whole state of the model that is measured and delivered; None where it is the trained one.

    Args:
        task: With the samples that batch-norm statistics are measured on.
        model: The trained one.
        config: Of the run.
        average: Of the weights so far.
        own: The optimizer's own average, by parameter; None where it makes none.
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
    """Put a state into a model for the time of a block; afterwards it has its own again, bit for bit."""
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
    """Return True if batch-norm statistics must be measured for averaged weights: those of an EMA are averaged with them."""
    averages_weights_alone = config.optimizer.name == "schedule_free" or (config.averaging and config.averaging.name == "swa")
    return bool(averages_weights_alone) and any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())


def _measure_statistics(task: OpenTask, model: nn.Module, config: TrainingConfig) -> None:
    """Measure the batch-norm statistics of the weights that a model holds, over the training samples."""
    samples = task.split("train")
    measure_statistics(task.task, model, config, evaluation_batches(samples, np.arange(len(samples)), config, "train"))


def measure_statistics(task: Task, model: nn.Module, config: TrainingConfig, batches: Iterable[Batch]) -> None:
    """Measure a model's batch-norm statistics over some batches; nothing happens where it has none."""
    with autocast(config):
        update_bn(_alone(batches, config.seed), _Forward(task, model))


def _alone(batches: Iterable[Batch], seed: int) -> Iterator[list[Batch]]:
    """Yield each batch as the first of a list, which is what `update_bn` hands to a model, whose draws are addressed by it."""
    for number, batch in enumerate(batches):
        seeds.seed_everything(seeds.key(seed, "statistics", number))  # reading samples in this process has seeded too
        yield [batch]


class _Forward(nn.Module):
    """A task's forward pass as a module."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Batch) -> Any:
        outputs, _ = self.task.forward(self.model, batch)
        return outputs
