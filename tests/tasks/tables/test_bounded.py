"""Tables that explode are read quickly or refused with a sentence."""

from __future__ import annotations

import gzip
import time

import pytest

from mltrainer.checkpointing.inference_script import MOST_UNPACKED, UNPACKED_FROM, names_of, unpacked


@pytest.mark.parametrize("header", [[f"c{n}" for n in range(100_000)], ["x"] * 100_000, [""] * 100_000])
def test_a_hundred_thousand_columns_are_named_in_a_second(header: list[str]) -> None:
    begun = time.process_time()
    assert len(set(names_of(header))) == 100_000
    assert time.process_time() - begun < 3


def test_names_that_stand_twice_are_told_apart_from_each_other_and_from_the_rest() -> None:
    assert names_of(["x", "x_2", "x", "", "x", "column_4", "y", "y"]) == [
        *("x", "x_2", "x_3", "column_4", "x_4", "column_4_2", "y", "y_2")
    ]


def test_a_small_file_that_unpacks_to_far_more_is_refused_before_it_is_held_in_memory() -> None:
    bomb = gzip.compress(b"a,b\n1," + b"x" * (UNPACKED_FROM + 1), 9)
    assert MOST_UNPACKED * len(bomb) < UNPACKED_FROM
    with pytest.raises(OSError, match="more than 200 times larger inside"):
        unpacked(bomb)


def test_what_a_table_was_packed_from_comes_out_whole() -> None:
    rows = b"a,b\n" + b"1,2\n" * 1_000_000
    assert unpacked(gzip.compress(rows)) == rows
