"""Samples of an iterable by their place: the same whatever was read before, and a clear word where that cannot be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mltrainer.errors import InputError
from mltrainer.tasks.opening import check_model, open_task
from mltrainer.tasks.samples import Stream, stream_of


class Shuffled:
    """Gives numbers in the order of the epoch, each with a draw of its own."""

    def __init__(self, count: int = 6) -> None:
        self.count, self.epoch = count, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        for number in random.Random(self.epoch).sample(range(self.count), self.count):
            yield number, random.random()


class Sized(Shuffled):
    def __len__(self) -> int:
        return 6


ADDRESSES = [(epoch, position) for epoch in (0, 1) for position in range(6)]


def read(stream: Stream, addresses: list[tuple[int, int]]) -> dict[tuple[int, int], Any]:
    """Return the samples at some places, read in that order while others draw from the generators too."""
    found = {}
    for address in addresses:
        random.seed(len(found))
        found[address] = stream.read(7, "sample", *address)
    return found


def test_a_place_has_the_same_sample_in_whatever_order_places_are_read():
    straight = read(Stream(Shuffled(), 6), ADDRESSES)
    crossed = read(Stream(Shuffled(), 6), random.Random(3).sample(ADDRESSES, len(ADDRESSES)))
    assert straight == crossed
    assert len({straight[0, position] for position in range(6)}) == 6
    assert [straight[0, p][0] for p in range(6)] != [straight[1, p][0] for p in range(6)]


def test_another_reader_in_between_changes_nothing():
    stream = Stream(Shuffled(), 6)
    begun = stream.read(7, "sample", 1, 0)
    other = [stream.read(7, "evaluate-train", 0, position) for position in range(3)]
    assert [begun, stream.read(7, "sample", 1, 1)] == [*read(Stream(Shuffled(), 6), [(1, 0), (1, 1)]).values()]
    assert other[0][1] != read(Stream(Shuffled(), 6), [(0, 0)])[0, 0][1]


@pytest.mark.parametrize(
    ("given", "samples", "told"),
    [
        (Shuffled(), None, "an iterable without a length"),
        (iter([1, 2]), None, "can be read only once"),
        ((n for n in range(3)), 3, "a generator, which can be read only once"),
        (Sized(), 4, "an iterable of 6 samples, and 4 are asked for"),
    ],
)
def test_an_iterable_that_cannot_be_addressed_is_refused(given, samples, told):
    with pytest.raises(InputError, match=told):
        stream_of(given, "dataset('train')", samples)


def test_an_iterable_that_ends_early_says_where():
    stream = stream_of(Shuffled(count=4), "dataset('train')", 6)
    with pytest.raises(InputError, match="in epoch 2: expected 6 samples, found 4"):
        stream.read(7, "sample", 1, 5)


# --- in a task ------------------------------------------------------------------------------------

SOURCE = """
import torch
from torch import nn
import mltrainer

class Rows:
    def __init__(self, count, told):
        self.count, self.told = count, told
    def __len__(self):
        return self.told
    def __iter__(self):
        for number in range(self.count):
            yield torch.ones(2) * number, number % 2

ROWS = Rows(30, 30)

class Own(mltrainer.Task):
    def __init__(self, case):
        self.case = case
    def dataset(self, split):
        if self.case == "shared":
            return ROWS
        return Rows(30, 28 if self.case == "more" and split == "validation" else 30)
    def prepare(self, train):
        assert type(train) is Rows
    def model(self):
        return nn.Linear(2, 2)
    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

class Whole(Own):
    dataset = mltrainer.Task.dataset
    def samples(self):
        return ROWS
"""


@pytest.mark.parametrize(
    ("kind", "case", "keys", "told"),
    [
        ("Own", "more", {}, "gives more samples than the 28 of its __len__"),
        ("Own", "shared", {}, "dataset('validation') gave the iterable of another split"),
        (
            "Own",
            "fine",
            {"samples_per_epoch": 9},
            "task.samples_per_epoch: dataset('train') gave an iterable of 30 samples, and 9",
        ),
        ("Whole", "fine", {}, "samples() gave an iterable, which mltrainer cannot split"),
    ],
)
def test_what_a_stream_cannot_be_is_told_when_it_is_opened(own_config, tmp_path, kind, case, keys, told):
    name = f"stream_{case}_{kind.lower()}_{len(keys)}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    chosen = own_config(f"{name}:{kind}", options={"case": case})
    chosen = chosen.model_copy(update={"task": chosen.task.model_copy(update=keys)})
    with pytest.raises(InputError) as caught:
        open_task(chosen, tmp_path)
    assert told in str(caught.value)


def test_a_stream_fits_a_model_and_is_prepared_as_it_was_given(own_config, tmp_path):
    (tmp_path / "stream_fine.py").write_text(SOURCE)
    opened = open_task(own_config("stream_fine:Own", options={"case": "fine"}), tmp_path)
    torch.manual_seed(0)
    check_model(opened, opened.task.model())
    assert opened.split("train").is_stream


def test_a_number_of_samples_is_refused_where_the_data_tells_it(own_config, tmp_path):
    rows = "class Rows(Rows):\n    def __getitem__(self, place):\n        return torch.ones(2), place % 2\n"
    (tmp_path / "stream_map.py").write_text(
        SOURCE.replace("ROWS =", f"{rows}\nROWS =").replace("assert type(train) is Rows", "pass")
    )
    chosen = own_config("stream_map:Whole", options={"case": "fine"})
    chosen = chosen.model_copy(update={"task": chosen.task.model_copy(update={"samples_per_epoch": 9})})
    with pytest.raises(InputError, match="the training samples have a length already"):
        open_task(chosen, tmp_path)
