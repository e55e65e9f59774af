"""Several trained models as one: the mean of their weights, or a module that returns the mean of their predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.structures import main_output

State = Mapping[str, Tensor]
Mean = Literal["logits", "value"]
Parts = Sequence[tuple[int, Mean]]  # of several targets side by side: each target's number of outputs, and their kind


class Ensemble(nn.Module):
    """Models that receive the same inputs and return one answer.

    Of classes, the mean is of their probabilities: the outputs are its logarithms, which a softmax turns into it, so that the
    task's loss and metrics and whoever reads logits read them as they are. Of one output for two classes, it is the logit.

    Args:
        models: The members.
        mean: The kind of the members' outputs: `logits`, with the classes last, a `value`, or the parts of several targets.
    """

    def __init__(self, models: Sequence[nn.Module], mean: Mean | Parts) -> None:
        super().__init__()
        self.members = nn.ModuleList(models)  # of which `combinations.MEMBERS` is the name
        self._mean = mean

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the mean of the members' main outputs."""
        outputs = torch.stack([main_output(member(*inputs, **named)) for member in self.members])
        if isinstance(self._mean, str):
            return _together(outputs, self._mean)
        parts = outputs.split([units for units, _ in self._mean], -1)
        return torch.cat([_together(part, mean) for part, (_, mean) in zip(parts, self._mean, strict=True)], -1)


def _together(outputs: Tensor, mean: Mean) -> Tensor:
    return outputs.mean(0) if mean == "value" else mean_logits(outputs)


def ensemble(task: OpenTask, configs: Sequence[TrainingConfig], root: Path) -> Ensemble:
    """Return an ensemble of untrained models, one for each config.

    Args:
        task: The final run's, which says what outputs are.
        configs: The members' configs.
        root: The project's folder.

    Raises:
        InputError: Its outputs are neither logits nor values.
    """
    mean = mean_of(task.task.inference(), task.config.task.use)
    return Ensemble([model_of(config, task, root) for config in configs], mean)


def model_of(config: TrainingConfig, task: OpenTask, root: Path) -> nn.Module:
    """Return an untrained model of a config, from an open task if that config would open the same one."""
    with seeds.kept():
        if all(getattr(config, key) == getattr(task.config, key) for key in ("task", "data", "model")):
            return task.task.model()
        seeds.seed_everything(seeds.key(config.data_seed, "task"))
        return open_task(config, root).task.model()


def mean_logits(outputs: Tensor) -> Tensor:
    """Return logits whose probabilities are the mean of those of some models' logits.

    Args:
        outputs: Logits [models, ..., classes], or [models, ..., 1] where one number separates two classes.
    """
    less = math.log(len(outputs))
    if outputs.shape[-1] > 1:
        return functional.log_softmax(outputs, -1).logsumexp(0) - less
    return functional.logsigmoid(outputs).logsumexp(0) - functional.logsigmoid(-outputs).logsumexp(0)


def mean_of(inference: Mapping[str, Any], where: str | None) -> Mean | Parts:
    """Return the kind of outputs that a task declares for its model; the average depends on it.

    Args:
        inference: The return value of the task's `inference()`.
        where: The task, for the message.

    Raises:
        InputError: It says neither.
    """
    output = inference.get("output")
    if output == "logits":
        return "logits"
    if output == "value":
        return "value"
    if output == "targets" and (targets := inference.get("targets")):
        return [(len(one["classes"]), "logits") if one.get("classes") else (1, "value") for one in targets]
    message = f"an ensemble averages probabilities or values, and inference() of your task names the output {output!r}"
    hint = 'let inference() of your task return {"output": "logits"} (the classes last) or {"output": "value"}'
    raise InputError(message, where=where, hint=hint)


def average(states: Sequence[State]) -> dict[str, Tensor]:
    """Return the mean of some models' tensors, computed in double precision; other numbers are the first's."""
    return {name: _mean([state[name] for state in states]) for name in states[0]}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    first = tensors[0]
    if not first.is_floating_point():
        return first.clone()
    total = first.double()
    for tensor in tensors[1:]:
        total = total + tensor.double()
    return (total / len(tensors)).to(first.dtype)


def unlike(one: State, other: State) -> str | None:
    """Return the first difference of two models' tensors in name, shape or type, or None; different ones cannot be averaged."""
    for name in sorted({*one, *other}):
        left, right = (state.get(name) for state in (one, other))
        if left is None or right is None:
            return f"only one of the models has {name}"
        if (left.shape, left.dtype) != (right.shape, right.dtype):
            return f"{name} is {_shape_text(left)} in one, {_shape_text(right)} in the other"
    return None


def _shape_text(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
