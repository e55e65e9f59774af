"""Batch norms' statistics over the shards of a step: as torch would update them, whoever computed which shard."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mltrainer.trainers.native.objective import RunningStatistics

SHARDS = 4


def model_of(**options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, **options), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4), nn.BatchNorm1d(4)
    )


def shards() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(5, 3, 6, 6, generator=generator) * (1 + shard) for shard in range(SHARDS)]


def pass_through(model: nn.Module, inputs: Tensor) -> None:
    model(inputs).square().mean().backward()


def stepped(model: nn.Module, processes: int, steps: int = 3, forward: Any = pass_through) -> nn.Module:
    """Take steps as so many processes would, each with a block of the shards; their rows are added up."""
    copies = [copy.deepcopy(model) for _ in range(processes)]
    each = SHARDS // processes
    for _ in range(steps):
        added: list[list[Tensor]] = []
        for rank, own in enumerate(copies):
            statistics = RunningStatistics(own)
            added.append(statistics.rows(SHARDS))
            for shard in range(rank * each, (rank + 1) * each):
                with statistics.captured(added[-1], shard):
                    forward(own, shards()[shard])
        sums = [torch.stack(parts).sum(0) for parts in zip(*added, strict=True)]
        for own in copies:
            RunningStatistics(own).replay(sums)
    return copies[-1]


def by_torch(model: nn.Module, steps: int = 3, forward: Any = pass_through) -> nn.Module:
    own = copy.deepcopy(model)
    for _ in range(steps):
        for inputs in shards():
            forward(own, inputs)
    return own


def twice(model: nn.Module, inputs: Tensor) -> None:
    (model(inputs) + model(-inputs)).square().mean().backward()


def recomputed(model: Any, inputs: Tensor) -> None:
    hidden = checkpoint(model[:2], inputs.clone().requires_grad_(), use_reentrant=False)
    model[2:](hidden).square().mean().backward()


@pytest.mark.parametrize("forward", [pass_through, twice, recomputed])
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"momentum": 0.0}, {"momentum": 1.0}])
def test_the_statistics_are_torchs_own_up_to_rounding(options, forward):
    found, expected = stepped(model_of(**options), 1, forward=forward), by_torch(model_of(**options), forward=forward)
    for (name, ours), theirs in zip(found.named_buffers(), expected.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(found.parameters(), expected.parameters(), strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"momentum": None}])
@pytest.mark.parametrize("processes", [2, 4])
def test_the_number_of_processes_changes_no_bit(processes, options):
    alone, shared = stepped(model_of(**options), 1), stepped(model_of(**options), processes)
    assert all(torch.equal(a, b) for a, b in zip(alone.buffers(), shared.buffers(), strict=True))


def test_a_norm_that_is_held_in_evaluation_keeps_its_statistics():
    model = model_of()
    model[1].eval()
    before = [buffer.clone() for buffer in model[1].buffers()]
    found = stepped(model, 2)
    assert all(torch.equal(a, b) for a, b in zip(found[1].buffers(), before, strict=True))  # type: ignore[index]
    assert found[5].num_batches_tracked == 3 * SHARDS  # type: ignore[index]


def test_a_norm_without_a_momentum_that_a_step_does_not_use_keeps_its_statistics():
    model = model_of(momentum=None)
    model[1].eval()
    for buffer, value in zip(model[1].buffers(), (5.0, 7.0, 0), strict=True):  # of a file that does not count the batches
        buffer.fill_(value)
    assert [float(buffer.max()) for buffer in stepped(model, 2)[1].buffers()] == [5.0, 7.0, 0.0]  # type: ignore[index]


def test_statistics_are_given_back_where_a_forward_pass_fails():
    model = model_of()
    statistics = RunningStatistics(model)
    kept = model[1].running_mean
    with contextlib.suppress(RuntimeError), statistics.captured(statistics.rows(SHARDS), 0):
        model(torch.zeros(2, 5))
    assert model[1].running_mean is kept


class Own(nn.BatchNorm1d):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs - self.running_mean


def test_norms_with_a_forward_pass_of_their_own_are_left_alone():
    assert RunningStatistics(Own(3)).rows(SHARDS) == []
    assert RunningStatistics(nn.BatchNorm1d(3, track_running_stats=False)).rows(SHARDS) == []
