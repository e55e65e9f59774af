"""What lies in the blocks that are split among processes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mltrainer.errors import InputError
from mltrainer.trainers.native.parallel.fsdp import FSDP, _blocks
from mltrainer.trainers.native.ranks import Ranks


class Twice(Ranks):
    """Two processes that hold the same rows."""

    size = 2

    def gather_blocks(self, block: Tensor) -> Tensor:
        return block.repeat(2, 1)


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(1100, 64))

    def forward(self) -> Tensor:
        return self.codes[:1]


def test_a_container_that_is_never_called_is_no_block():
    entries = nn.ModuleList([nn.ModuleDict({"a": nn.Linear(64, 1100)}), nn.Linear(64, 1100)])
    found = {block.name: [*block.parameters] for block in _blocks(entries, ["0.a.weight", "1.weight"])}
    assert found == {"": ["0.a.weight"], "1": ["1.weight"]}


def test_a_block_that_returns_its_own_parameters_is_refused_by_name():
    model = nn.ModuleList([Positions()])
    FSDP(model, Twice())._split()
    with pytest.raises(InputError, match="0 returns a view of its own parameters"):
        model[0]()
