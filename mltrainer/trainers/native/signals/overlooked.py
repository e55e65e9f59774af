"""What the loss of a task of one's own overlooks though its metric counts it: a class, or all but padding.

The loss's gradient by the outputs is zero wherever the loss does not look. That alone is no fault - padding, a mask - but for a
metric that changes with these outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mltrainer.tasks.structures import main_output, mapped, tensors_in
from mltrainer.tasks.task import Task

DRAWS = 12  # orders of the outputs: what a loss passes over for their sake, such as easy samples, differs among them
MOST_NUMBERS = 1 << 22  # of the outputs that are asked about
LEAST = 0.005  # chosen by us: the share of the answers from which on it is told
MOST_CLASSES = 32  # that are named


def overlooked(task: Task, outputs: Any, targets: Any) -> dict[str, Any] | None:
    """Return the share of answers that the loss overlooks and a metric counts, and of which classes; None where there are none.

    Args:
        task: Whose loss and metrics.
        outputs: Of a batch, as the loss gets them.
        targets: Likewise.
    """
    output = main_output(outputs)
    if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() < 1 or len(output) < 2:
        return None
    if output.numel() > MOST_NUMBERS:
        return None
    try:
        return _overlooked(task, outputs, output, targets)
    except Exception:  # of the user's loss or metrics, which are asked for what training never gives
        return None


def _overlooked(task: Task, outputs: Any, output: Tensor, targets: Any) -> dict[str, Any] | None:
    labels, axis = _labelled(output, targets)
    seen = torch.zeros_like(output, dtype=torch.bool)
    for draw in range(DRAWS):
        seen |= _slopes(task, outputs, output, targets, output.roll(draw * max(1, len(output) // DRAWS), 0)) != 0
    unseen = ~(seen.any(axis, keepdim=True) if axis is not None else seen)
    share = float(unseen.float().mean())
    if not LEAST <= share < 1:
        return None
    counted = _counting(task, outputs, output, targets, unseen, axis)
    if not counted:
        return None
    return {"share": share, "metrics": counted, **_classes(labels, unseen, axis)}


def _labelled(output: Tensor, targets: Any) -> tuple[Tensor | None, int | None]:
    """Return class numbers with the dimension of the outputs that holds the classes; None for both where there are none."""
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
    """Return the metrics that change with outputs which the loss overlooks."""
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
    """Return the classes of which the loss looks at no answer, and those of which it looks at some; no more than can be named."""
    if labels is None or axis is None:
        return {"classes": [], "seen": []}
    missed = unseen.squeeze(axis).flatten()
    known = labels.flatten()
    told = {name: known[part].unique().tolist() for name, part in (("classes", missed), ("seen", ~missed))}
    told["classes"] = [label for label in told["classes"] if label not in told["seen"]]
    return {name: found[:MOST_CLASSES] for name, found in told.items()}
