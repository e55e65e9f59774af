"""Samples of a step whose loss stood out: named with their share of it, where that is known; no draw of training changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mltrainer.tasks.task import Task
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.signals.outputs import RecentOutputs, seen

TARGETS = torch.zeros(6, 1)
OUTPUTS = torch.tensor([[0.1], [0.2], [9.0], [0.1], [0.3], [0.2]], requires_grad=True)
IDS = np.array([50, 51, 52, 53, 54, 55])


class Squares(Task):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        torch.rand(1)  # as dropout in a loss draws
        return nn.functional.mse_loss(outputs, targets)


class Relative(Squares):
    """Divides by the largest output of the batch, which of one sample is its own."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs / outputs.abs().max()).square().mean()


class WholeBatches(Squares):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if len(outputs) < 2:
            raise ValueError("pairs are compared")
        return outputs.square().mean()


class Tokens(Task):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=-100)

    def loss_items(self, targets: Tensor) -> int | Tensor:
        return (targets != -100).sum()


def loss_of(task: Task) -> float:
    return task.loss(OUTPUTS, TARGETS).item()


def noted(passes: list[tuple[Any, Any]], ids: np.ndarray, step: int = 9) -> RecentOutputs:
    recent = RecentOutputs(is_on=True)
    recent.took(step, ids, passes)
    return recent


def test_the_sample_that_made_a_spike_leads_with_its_share():
    halves = [(OUTPUTS[:3], TARGETS[:3]), (OUTPUTS[3:], TARGETS[3:])]
    loss = loss_of(Squares())
    state = torch.get_rng_state()
    found = noted(halves, IDS).largest(9, loss, Squares(), Ranks())
    assert torch.equal(torch.get_rng_state(), state)
    assert [row["sample"] for row in found] == [52, 54, 51, 55, 50]
    assert (found[0]["loss"], found[0]["share"]) == (pytest.approx(81), pytest.approx(81 / (6 * loss)))


def test_a_sample_of_tokens_counts_by_those_that_are_not_padding():
    outputs, targets = (
        torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[1, 2, 3, 4], [1, -100, -100, -100]]),
    )
    outputs[1, 0] = torch.tensor([9.0, -9, 0, 0, 0])
    task = Tokens()
    found = noted([(outputs, targets)], IDS[:2]).largest(9, float(task.loss(outputs, targets)), task, Ranks())
    assert [row["sample"] for row in found] == [51, 50]
    assert sum(row["share"] for row in found) == pytest.approx(1)


@pytest.mark.parametrize("task", [Relative(), WholeBatches()])
def test_of_a_loss_that_is_no_mean_over_samples_none_is_named(task):
    assert noted([(OUTPUTS, TARGETS)], IDS).largest(9, loss_of(task), task, Ranks()) == []


def test_of_samples_that_share_rows_none_is_named():
    outputs, targets = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)), torch.ones(2, 4, dtype=torch.int64)
    task = Tokens()
    assert noted([(outputs, targets)], IDS[:3]).largest(9, float(task.loss(outputs, targets)), task, Ranks()) == []


def test_what_is_not_kept_names_none(monkeypatch):
    loss = loss_of(Squares())
    recent = noted([(OUTPUTS, TARGETS)], IDS)
    assert recent.largest(8, loss, Squares(), Ranks()) == []
    recent.forget()
    assert recent.largest(9, loss, Squares(), Ranks()) == []
    monkeypatch.setattr(f"{seen.__module__}.HELD", 11)
    assert noted([(OUTPUTS, TARGETS)], IDS).largest(9, loss, Squares(), Ranks()) == []


def test_the_logits_of_many_tokens_are_not_kept(monkeypatch):
    monkeypatch.setattr(f"{seen.__module__}.HELD", 23)
    assert seen(torch.zeros(2, 3, 4), TARGETS) is None
    outputs, _ = seen(torch.zeros(6, 4, requires_grad=True), TARGETS) or (None, None)
    assert not outputs.requires_grad
