"""A task's calls of its model on real samples: exports are made from them, compared on them and calibrated with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from mltrainer.checkpointing.calling import Call, call_of
from mltrainer.checkpointing.export import Inputs
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.user_code import user_code, user_frame
from mltrainer.trainers.native.data.addresses import Batch, evaluation_batches

SINGLES, FEW = 16, 7  # samples of a data set that are tried alone, and together, to see whether they differ in shape


@dataclass(frozen=True)
class Calls:
    """The task's calls of its model on real samples, on the CPU.

    Attributes:
        all: The call on all samples.
        others: Inputs of smaller batches that differ in shape, such as of shorter texts; none where all have one shape.
    """

    all: Call
    others: list[Inputs]


def real_calls(task: OpenTask, model: nn.Module, config: TrainingConfig, count: int) -> Calls:
    """Return the task's calls of its model for the first validation samples.

    Raises:
        InputError: It calls it with something else than tensors whose first dimension is the samples, or only parts of it.
    """
    samples = task.split("validation")
    positions = np.arange(min(count, len(samples)))
    whole = _call(task, model, config, positions)
    alone = [positions[nr : nr + 1] for nr in range(min(SINGLES, len(positions)))]
    smaller = [*alone, positions[:FEW]] if samples.tensors is None else []
    others = [_call(task, model, config, few) for few in smaller]
    _refuse_changing(task, whole, others)
    rows = [tuple(x.cpu() for x in call.tensors) for call in others]
    differ = any(x.shape[1:] != y.shape[1:] for row in rows for x, y in zip(row, whole.tensors, strict=True))
    return Calls(replace(whole, tensors=tuple(x.cpu() for x in whole.tensors)), rows if differ else [])


def _refuse_changing(task: OpenTask, whole: Call, others: list[Call]) -> None:
    """Refuse arguments that differ from batch to batch, as an exported model has them built in.

    Raises:
        InputError: The arguments differ; the message shows both calls.
    """
    for call in others:
        if (call.names, call.constants) != (whole.names, whole.constants):
            raise InputError(
                f"your task's forward() calls the model in two ways: {_signature(whole)}, and {_signature(call)}",
                where=task.config.task.use,
                hint="call the model with the same arguments for every batch",
            )


def _signature(call: Call) -> str:
    constants = [f"{name}={value!r}" for name, value in call.constants]
    return ", ".join([*call.inputs, *constants])


@torch.no_grad()
def _call(task: OpenTask, model: nn.Module, config: TrainingConfig, positions: np.ndarray) -> Call:
    """Return the model's first call for some validation samples, each batch's inputs together."""
    calls = list(calls_of(task, model, evaluation_batches(task.split("validation"), positions, config, "validation")))
    if not calls:
        message = "your task's forward() never calls the model itself, only parts of it, so there is no model to export"
        hint = (
            "give the model a forward(), and let your task's forward() call model(...); a Lightning module's steps call self(x)"
        )
        raise InputError(message, where=config.task.use, hint=hint)
    try:
        columns = tuple(torch.cat(parts) for parts in zip(*(call.tensors for call in calls), strict=True))
    except RuntimeError:  # of several lengths: the first batch will do
        return calls[0]
    if any(len(column) != len(positions) for column in columns):
        shapes = [list(column.shape) for column in columns]
        message = f"expected a model that reads tensors with samples first; for {len(positions)} samples it got {shapes}"
        raise InputError(message, where=config.task.use, hint="let forward() give the model one row of a tensor for each sample")
    return replace(calls[0], tensors=columns)


def calls_of(task: OpenTask, model: nn.Module, batches: Iterable[Batch]) -> list[Call]:
    """Return the model's first call for each batch."""
    seen: list[Call] = []

    def note(_module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], outputs: Any) -> None:
        call = call_of(arguments, named, outputs)
        if call is None:
            kinds = [type(x).__name__ for x in arguments] + [f"{key}={type(x).__name__}" for key, x in named.items()]
            hint = "let your task's forward() call the model with tensors, samples first; by name also numbers, text and None"
            raise InputError(expected="a model called with tensors", found=", ".join(kinds), hint=hint)
        seen.append(call)

    handle = model.register_forward_hook(note, with_kwargs=True)
    try:
        calls = []
        for batch in batches:
            seen.clear()
            _forward(task, model, batch)
            calls += seen[:1]
    finally:
        handle.remove()
    return calls


def _forward(task: OpenTask, model: nn.Module, batch: Batch) -> None:
    """Run a task's forward pass; a call that cannot be exported is reported with the user's line."""
    try:
        with user_code(task.root, "forward of your task"):
            task.task.forward(model, batch)
    except InputError as error:
        error.where = error.where or user_frame(error, task.root)
        raise
