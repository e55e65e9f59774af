"""Shards draw at addresses of their own, and their gradients are added in one tree, whoever computes them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.parallel.parallelism import Parallelism
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.shards import TreeSum, shard_key
from mltrainer.trainers.native.stepping import Stepper
from tests.trainers.native.digits_runs import config
from tests.trainers.native.test_stepping import BATCH, Rows, data


def leaves(count: int) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(count)
    return [[torch.randn(1000, generator=generator), torch.randn((), generator=generator)] for _ in range(count)]


def specified(lists: list[list[Tensor]]) -> list[Tensor]:
    """Return the sum as the tree is specified: the largest power of two below the number, plus the rest."""
    if len(lists) == 1:
        return lists[0]
    half = 2 ** math.ceil(math.log2(len(lists)) - 1)
    return [left + right for left, right in zip(specified(lists[:half]), specified(lists[half:]), strict=True)]


def tree(lists: list[list[Tensor]]) -> list[Tensor]:
    found = TreeSum()
    for tensors in lists:
        found.add([tensor.clone() for tensor in tensors])
    return found.total()


def same(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("count", range(1, 10))
def test_the_sum_is_that_of_the_specified_tree(count):
    assert same(tree(leaves(count)), specified(leaves(count)))


def test_one_after_another_would_be_another_sum():
    assert not torch.equal(sum(one for one, _ in leaves(8)), tree(leaves(8))[0])


@pytest.mark.parametrize("processes", [2, 4, 8])
@pytest.mark.parametrize("count", [8, 7, 5])
def test_parts_that_are_added_up_apart_give_the_bits_of_the_whole(count, processes):
    lists, each = leaves(count), 8 // processes
    parts = [tree(part) for low in range(0, 8, each) if (part := lists[low : low + each])]
    assert same(tree(parts), tree(lists))


@pytest.mark.parametrize("count", [1, 7, 8, 100])
def test_no_more_sums_are_held_than_the_tree_has_levels(count):
    found, most = TreeSum(), 0
    for tensors in leaves(count):
        found.add(tensors)
        most = max(most, len(found._subtrees))
    assert most <= math.log2(count) + 1


# --- in a step ------------------------------------------------------------------------------------

FOUR = {"accumulate": 4, "batch_size": BATCH, "clip": None}


def apart(number: int) -> list[Tensor]:
    """Return the gradient of a step of four shards, as two processes would compute it: two shards each, the later half first."""
    step, halves = data(1, 4)[0], []
    for shards in ((3, 2), (1, 0)):
        found = {}
        for shard in shards:
            model = Rows().model()
            seeds.seed_everything(shard_key(42, number, shard))
            outputs, targets = Rows().forward(model, step.micro_batches[shard])
            Rows().loss(outputs, targets).backward()
            found[shard] = [p.grad for p in model.parameters()]
        halves.append(tree([found[shard] for shard in sorted(found)]))
    return [(first + second) / 4 for second, first in zip(*halves, strict=True)]


def test_a_steps_gradient_is_that_of_its_shards_computed_apart():
    model = Rows().model()
    Stepper(Objective(Rows(), model, config(FOUR))).take(5, 0.0, data(1, 4)[0])
    assert same([p.grad for p in model.parameters()], apart(5))
    assert not same([p.grad for p in model.parameters()], apart(6))


class Gone(Ranks):
    """One of two processes, of which the other has ended."""

    size = 2

    def tree_sum(self, tensors: list[Tensor]) -> list[Tensor]:
        raise AssertionError("nobody answers")


def test_a_process_that_others_have_left_takes_whole_steps():
    model = Rows().model()
    stepper = Stepper(Objective(Rows(), model, config(FOUR)), Parallelism(model, Gone()))
    with pytest.raises(AssertionError, match="nobody answers"):
        stepper.take(5, 0.0, data(1, 4)[0])
    stepper.parallel.ranks = Ranks()
    assert [*stepper.parallel.shards(4, 4)] == [0, 1, 2, 3]
    stepper.take(5, 0.0, data(1, 4)[0])
    assert same([p.grad for p in model.parameters()], apart(5))


class Drawing(Rows):
    """Draws `extra` numbers in its first pass alone, and notes a draw of each generator in each pass."""

    def __init__(self, extra: int) -> None:
        self.extra, self.seen = extra, []

    def forward(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        found = super().forward(model, batch)
        self.seen.append(torch.rand(()).item())
        if len(self.seen) == 1:
            torch.rand(self.extra)
        return found


@pytest.mark.parametrize("optimizer", [{"name": "sgd"}, {"name": "sgd", "sam": {}}], ids=["plain", "sam"])
def test_what_a_shard_draws_does_not_depend_on_what_others_drew(optimizer):
    noise = {"noise": {"eta": 1.0}}
    found = []
    for extra in (0, 7):
        task = Drawing(extra)
        stepper = Stepper(Objective(task, task.model(), config({**FOUR, "gradients": noise, "optimizer": optimizer})))
        stepper.take(3, 0.1, data(1, 4)[0])
        found.append(([p.detach().clone() for p in stepper.parameters], task.seen))
    (weights, seen), (others, also_seen) = found
    assert seen == also_seen
    assert len(set(seen)) == 4
    assert seen == seen[:4] * (len(seen) // 4)  # both passes of a sharp step draw the same
    assert same(weights, others)


def test_one_shard_draws_what_a_step_that_is_not_split_draws():
    assert shard_key(42, 7, 0) == seeds.key(42, "step", 7)
    assert len({shard_key(42, step, shard) for step in range(1, 20) for shard in range(20)}) == 19 * 20
