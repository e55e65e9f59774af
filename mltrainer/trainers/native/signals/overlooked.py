"""Answers that a custom task's loss overlooks though its metric counts them: a class, or all but padding.

The loss's gradient by the outputs is zero wherever the loss ignores them. That alone is no fault - padding, a mask - unless a
metric changes with these outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mltrainer.tasks.structures import main_output, mapped, tensors_in
from mltrainer.tasks.task import Task

DRAWS = 12  # orders of the outputs: outputs that a loss ignores for their values, such as easy samples, differ among them
MOST_NUMBERS = 1 << 22  # the most outputs that are tested
MODERATE = 10  # chosen by us: larger outputs are also tried shrunk to this, since the gradient of a softmax is 0 beyond 100
LEAST = 0.005  # chosen by us: the least share of the answers that is reported
MOST_CLASSES = 32  # the most classes that are named


def overlooked(task: Task, outputs: Any, targets: Any) -> dict[str, Any] | None:
    """Return the share of answers that the loss overlooks and a metric counts, and their classes; None if there are none.

    Args:
        task: The task, with its loss and metrics.
        outputs: The outputs for a batch, in the loss's precision.
        targets: The batch's targets.
    """
    output = main_output(outputs)
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() < 1 or len(output) < 2:
        return None
    if output.numel() > MOST_NUMBERS:
        return None
    try:
        return _overlooked(task, outputs, output, targets)
    except Exception:  # from the user's loss or metrics, which get values that training never gives
        return None


def _overlooked(task: Task, outputs: Any, output: Tensor, targets: Any) -> dict[str, Any] | None:
    labels, axis = _labelled(output, targets)
    seen = torch.zeros_like(output, dtype=torch.bool)
    moderate = MODERATE / max(float(output.abs().max()), MODERATE)
    for draw in range(DRAWS):
        moved = output.roll(draw * max(1, len(output) // DRAWS), 0)
        seen |= _slopes(task, outputs, output, targets, moved * moderate if draw % 2 else moved) != 0
    unseen = ~(seen.any(axis, keepdim=True) if axis is not None else seen)
    share = float(unseen.float().mean())
    if not LEAST <= share < 1:
        return None
    counted = _counting(task, outputs, output, targets, unseen, axis)
    if not counted:
        return None
    return {"share": share, "metrics": counted, **_classes(labels, unseen, axis)}


def _labelled(output: Tensor, targets: Any) -> tuple[Tensor | None, int | None]:
    """Return class numbers with the dimension of the outputs that holds the classes; None for both without class numbers."""
    for target in tensors_in(targets):
        for axis in (1, -1) if output.dim() > 1 and not target.is_floating_point() else ():
            if output.movedim(axis, -1).shape[:-1] == target.shape or output.shape[:-1].numel() == target.numel():
                return target, axis if output.movedim(axis, -1).shape[:-1] == target.shape else -1
    return None, None


def _with(outputs: Any, output: Tensor, other: Tensor) -> Any:
    return mapped(lambda one: other if one is output else one, outputs)


def _slopes(task: Task, outputs: Any, output: Tensor, targets: Any, moved: Tensor) -> Tensor:
    asked = moved.detach().clone().requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(task.loss(_with(outputs, output, asked), targets), asked)
    return found


def _counting(task: Task, outputs: Any, output: Tensor, targets: Any, unseen: Tensor, axis: int | None) -> list[str]:
    """Return the metrics that change with outputs that the loss overlooks."""
    before, changed = metrics_of(task, outputs, targets), set[str]()
    for turn in (1, 2, 3):
        other = output.roll(turn, axis) if axis is not None and output.shape[axis] > 1 else output + turn * output.std()
        after = metrics_of(task, _with(outputs, output, torch.where(unseen, other, output)), targets)
        changed |= {name for name, value in before.items() if after.get(name) != value}
    return sorted(changed - {"loss"})


def metrics_of(task: Task, outputs: Any, targets: Any) -> dict[str, float]:
    """Return a task's metrics of one batch."""
    if type(task).accumulate is not Task.accumulate:
        return dict(task.compute(task.accumulate(None, outputs, targets)))
    return task.metrics(outputs, targets)


def _classes(labels: Tensor | None, unseen: Tensor, axis: int | None) -> dict[str, list[int]]:
    """Return the classes without any answer that the loss counts, and those with some; at most `MOST_CLASSES` of each."""
    if labels is None or axis is None:
        return {"classes": [], "seen": []}
    missed = unseen.squeeze(axis).flatten()
    known = labels.flatten()
    classes = {name: known[part].unique().tolist() for name, part in (("classes", missed), ("seen", ~missed))}
    classes["classes"] = [label for label in classes["classes"] if label not in classes["seen"]]
    return {name: found[:MOST_CLASSES] for name, found in classes.items()}
