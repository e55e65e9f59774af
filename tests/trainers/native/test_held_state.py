"""Attributes of the user's objects that a resumed training begins without."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

import mltrainer
from mltrainer.trainers.native import held_state
from mltrainer.trainers.native.held_state import Attributes, attributes, changed, not_restored


class Jitter:
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)


class Rows(Dataset[Any]):
    """Counts, draws and keeps."""

    def __init__(self) -> None:
        self.asked, self.jitter, self.last = 0, [Jitter()], deque([1, 2], maxlen=2)
        self.x = torch.zeros(1 << 19)  # 2 MiB: data
        self.itself = self


class Counting(nn.Module):
    """Has a parameter, which a checkpoint holds, and a mean, which it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.mean = nn.Linear(2, 2), torch.zeros(2)


class Mine(mltrainer.Task):
    """A task that holds nothing."""


class Opened:
    """A task that is open, as far as this is read."""

    def __init__(self) -> None:
        self.task, self.rows = Mine(), Rows()

    def split(self, _name: str) -> Any:
        part = Subset(self.rows, [0])
        return type("Samples", (), {"dataset": part, "given": part})


def state(opened: Opened, model: nn.Module) -> Attributes:
    return attributes(opened, model)  # type: ignore[arg-type]  # as far as it is read


def draw(rows: Rows, _model: Counting) -> None:
    rows.jitter[0].rng.normal()


def count(rows: Rows, _model: Counting) -> None:
    rows.asked += 1


def keep(rows: Rows, _model: Counting) -> None:
    rows.last.append(3)


def average(_rows: Rows, model: Counting) -> None:
    model.mean += 1


@pytest.mark.parametrize(
    ("train", "path", "owner"),
    [
        (draw, "Rows.jitter[0].rng", "Jitter"),
        (count, "Rows.asked", "Rows"),
        (keep, "Rows.last[0]", "Rows"),
        (average, "Counting.mean", "Counting"),
    ],
)
def test_what_training_changed_and_a_new_process_has_not_is_named_with_its_class(train, path, owner):
    opened, model = Opened(), Counting()
    begun = state(opened, model)
    train(opened.rows, model)
    at_stop = changed(begun, state(opened, model))
    assert path in at_stop
    found = not_restored(at_stop, state(Opened(), Counting()), Path(__file__).parent)
    assert (found[0].call, found[0].function) == (path, owner)
    assert found[0].where.startswith("test_held_state.py:")
    assert not_restored(at_stop, state(opened, model), Path(__file__).parent) == []


def test_a_generator_comes_before_a_counter():
    opened, model = Opened(), Counting()
    begun = state(opened, model)
    count(opened.rows, model)
    draw(opened.rows, model)
    found = not_restored(changed(begun, state(opened, model)), state(Opened(), Counting()), Path("/"))
    assert [call.call for call in found] == ["Rows.jitter[0].rng", "Rows.asked"]


def test_weights_data_and_what_stands_still_are_not_named():
    opened, model = Opened(), Counting()
    begun = state(opened, model)
    with torch.no_grad():
        model.layer.weight += 1
    model.eval()
    opened.rows.x[0] = 1
    assert changed(begun, state(opened, model)) == {}


@pytest.mark.parametrize("value", [torch.Generator(), np.random.RandomState(1), torch.tensor([1.0]), np.ones(2), "x", None])
def test_a_value_has_a_state(value):
    assert held_state._state(value) == held_state._state(value) is not None


def test_lists_of_lists_and_keys_of_any_kind_are_gone_through_in_a_moment():
    opened = Opened()
    opened.rows.table = [[[0] * 900] * 900] * 900  # type: ignore[attr-defined]  # as a user's data set may hold it
    opened.rows.each = [[number] * 900 for number in range(900)]  # type: ignore[attr-defined]  # the same, of lists of their own
    opened.rows.named = {("a", 1): 1, "k" * 100: 2, "short": 3}  # type: ignore[attr-defined]  # keys of any kind
    found = state(opened, Counting())
    assert len(found) <= 3 * held_state.MOST_ATTRIBUTES
    assert not [path for path in found if "k" * 65 in path or "('a'" in path]


@pytest.mark.parametrize(
    "value",
    [Tensor, np.array([None]), torch.zeros(1 << 19), open, torch.eye(2).to_sparse(), torch.empty(2, device="meta")],
)
def test_data_and_code_have_none(value):
    assert held_state._state(value) is None
