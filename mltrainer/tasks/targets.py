"""The kind of a task's targets - classes, values or tokens - as declared by the task, or as certain from types and shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mltrainer.errors import InputError
from mltrainer.records.run import TargetKind
from mltrainer.tasks.structures import main_output
from mltrainer.tasks.task import Task

KINDS: tuple[TargetKind, ...] = ("classes", "values", "tokens")


def declared(task: Task) -> TargetKind | None:
    """Return the kind of targets that a task declares; None where it declares none.

    Raises:
        InputError: The task declares something else.
    """
    found: Any = task.targets
    for kind in (None, *KINDS):
        if found is kind or (isinstance(found, str) and found == kind):
            return kind
    given = repr(found) if isinstance(found, str) else f"an object of type {type(found).__name__}"
    raise InputError(
        f"targets of {type(task).__name__}",
        expected=f"{', '.join(map(repr, KINDS))} or None",
        found=given,
        where="task.use",
        hint='write targets = "classes", for example; rename an attribute `targets` that means something else',
    )


def derived(outputs: Any, targets: Any) -> TargetKind | None:
    """Return "classes" for one int64 number beside one output for each of several classes; None where the kind is not certain."""
    output = main_output(outputs)
    if not isinstance(output, Tensor) or not isinstance(targets, Tensor):
        return None
    is_number = targets.dim() == 1 and targets.dtype == torch.int64
    has_classes = output.is_floating_point() and output.dim() == 2 and output.shape[1] > 1 and len(output) == len(targets)
    return "classes" if is_number and has_classes else None


def class_numbers(targets: Tensor, kind: TargetKind | None) -> Tensor | None:
    """Return the class number of each sample, int64; None where the targets are not one class a sample.

    Classes are whole numbers from 0, the signs of -1 and 1, or one-hot rows.
    """
    if kind != "classes" or targets.is_complex() or not targets.dim() or not targets.numel():
        return None
    if targets.numel() > len(targets):
        is_one_hot = targets.dim() == 2 and bool(((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all())
        return targets.argmax(1) if is_one_hot else None
    numbers = targets.flatten()
    if bool((numbers < 0).any()):
        return (numbers > 0).long() if bool(((numbers == 1) | (numbers == -1)).all()) else None
    return numbers.long() if bool((numbers == numbers.long()).all()) else None
