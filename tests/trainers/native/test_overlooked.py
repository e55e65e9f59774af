"""What a loss overlooks though a metric counts it is told, and what both leave out is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mltrainer.tasks.task import Task
from mltrainer.trainers.native.signals.overlooked import overlooked

Loss = Callable[[Tensor, Any], Tensor]
PAD = 0


class Judged(Task):
    """A loss and the share of right answers, of all or of those that count."""

    def __init__(self, loss: Loss, counts: Callable[[Tensor], Tensor] = lambda labels: labels >= 0) -> None:
        self.measure, self.counts = loss, counts

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return self.measure(outputs, targets)

    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        labels = targets[0] if isinstance(targets, tuple) else targets
        right = outputs.argmax(-1) == labels
        return {"accuracy": float(right[self.counts(labels)].double().mean())}


class Summed(Judged):
    """Sums up its metric."""

    def accumulate(self, state: Any, outputs: Any, targets: Any) -> Any:
        return self.metrics(outputs, targets)

    def compute(self, state: Any) -> dict[str, float]:
        return dict(state)


draws = torch.Generator().manual_seed(0)
LABELS, ANSWERS = torch.arange(60) % 4, torch.randn(60, 4, generator=draws)
PLACES, TEXTS = (
    torch.where(torch.arange(12) < 7, torch.arange(12) % 4 + 1, PAD).expand(20, 12),
    torch.randn(20, 12, 5, generator=draws),
)


def masked(keeps: Callable[[Tensor], Tensor]) -> Loss:
    def loss(outputs: Tensor, targets: Any) -> Tensor:
        labels, mask = targets if isinstance(targets, tuple) else (targets, targets)
        losses = functional.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none")
        return (losses * keeps(mask).flatten()).sum()

    return loss


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none").topk(40).values.mean()


weighted: Loss = lambda o, t: functional.cross_entropy(o, t, weight=torch.tensor([1.0, 0.0, 1.0, 1.0]))  # noqa: E731
ignoring: Loss = lambda o, t: functional.cross_entropy(o, t, ignore_index=3)  # noqa: E731
padding: Loss = masked(lambda labels: labels == PAD)
text: Loss = masked(lambda labels: labels != PAD)
mask: Loss = masked(lambda kept: ~kept)


@pytest.mark.parametrize(
    ("task", "outputs", "targets", "share", "classes"),
    [
        (Judged(ignoring), ANSWERS, LABELS, 0.25, [3]),
        (Judged(weighted), ANSWERS, LABELS, 0.25, [1]),
        (Summed(ignoring), ANSWERS, LABELS, 0.25, [3]),
        (Judged(padding, lambda labels: labels != PAD), TEXTS, PLACES, 7 / 12, [1, 2, 3, 4]),
        (Judged(mask, lambda labels: labels != PAD), TEXTS, (PLACES, PLACES != PAD), 7 / 12, [1, 2, 3, 4]),
    ],
)
def test_what_a_loss_overlooks_and_its_metric_counts(task, outputs, targets, share, classes):
    found = overlooked(task, outputs, targets)
    assert (found["share"], found["metrics"], found["classes"]) == (pytest.approx(share), ["accuracy"], classes)


@pytest.mark.parametrize(
    ("task", "outputs", "targets"),
    [
        (Judged(functional.cross_entropy), ANSWERS, LABELS),
        (Judged(text, lambda labels: labels != PAD), TEXTS, PLACES),
        (Judged(ignoring, lambda labels: labels != 3), ANSWERS, LABELS),
        (Judged(hardest), ANSWERS, LABELS),
        (Judged(functional.cross_entropy), 1e4 * (ANSWERS + torch.tensor([0.0, 0.0, 0.0, 9.0])), LABELS),
        (Judged(functional.multi_margin_loss), 3 * ANSWERS, LABELS),
        (Judged(lambda o, t: o.new_tensor(1.0)), ANSWERS, LABELS),
    ],
    ids=[
        "all",
        "padding",
        "a class that neither counts",
        "the hardest samples",
        "one answer for all, whose softmax is 1",
        "a margin",
        "a constant",
    ],
)
def test_what_both_leave_out_and_what_the_answers_decide_is_not_told(task, outputs, targets):
    assert overlooked(task, outputs, targets) is None
