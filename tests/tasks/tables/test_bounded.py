"""Tables that explode are read quickly or refused with a sentence."""

from __future__ import annotations

import cProfile
import gzip
import math
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from mltrainer.checkpointing.inference_script import MOST_UNPACKED, UNPACKED_FROM, names_of, unpacked
from mltrainer.errors import InputError
from mltrainer.tasks import config_inference
from mltrainer.tasks.config_inference import infer_project
from mltrainer.tasks.content import Table
from mltrainer.tasks.tables import files, polars_csv
from mltrainer.tasks.tables.columns import Column, parse_column
from mltrainer.tasks.tables.sentinels import sentinels


@pytest.mark.parametrize("header", [[f"c{n}" for n in range(100_000)], ["x"] * 100_000, [""] * 100_000])
def test_a_hundred_thousand_columns_are_named_in_a_second(header):
    begun = time.process_time()
    assert len(set(names_of(header))) == 100_000
    assert time.process_time() - begun < 3


def test_names_that_stand_twice_are_told_apart_from_each_other_and_from_the_rest():
    assert names_of(["x", "x_2", "x", "", "x", "column_4", "y", "y"]) == [
        *("x", "x_2", "x_3", "column_4", "x_4", "column_4_2", "y", "y_2")
    ]


@pytest.mark.slow
def test_a_small_file_that_unpacks_to_far_more_is_refused_before_it_is_held_in_memory():
    bomb = gzip.compress(b"a,b\n1," + b"x" * (UNPACKED_FROM + 1), 9)
    assert MOST_UNPACKED * len(bomb) < UNPACKED_FROM
    with pytest.raises(OSError, match="more than 200 times larger inside"):
        unpacked(bomb)


def test_what_a_table_was_packed_from_comes_out_whole():
    rows = b"a,b\n" + b"1,2\n" * 1_000_000
    assert unpacked(gzip.compress(rows)) == rows


def work_of(act: Callable[[], Any]) -> Counter[str]:
    """Return how often each function was called, those of libraries and those written in C too."""
    profile = cProfile.Profile()
    profile.runcall(act)
    profile.create_stats()
    calls: Counter[str] = Counter()
    for (_, _, name), (count, *_) in profile.stats.items():  # type: ignore[attr-defined]
        calls[name] += count
    return calls


def wide(folder: Path, columns: int, rows: int = 30) -> Path:
    """Write a table of number columns."""
    random = np.random.default_rng(columns)
    cells = random.normal(size=(rows, columns)).round(4).astype(str)
    head = ",".join([*(f"c{nr}" for nr in range(columns)), "label"])
    (folder / f"{columns}.csv").write_text(
        "\n".join([head, *(f"{','.join(row)},{'ab'[nr % 2]}" for nr, row in enumerate(cells))])
    )
    return folder / f"{columns}.csv"


@pytest.mark.slow
def test_the_work_of_inferring_a_wide_table_grows_with_its_columns_and_not_with_their_square(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FAST_FROM", 0)
    few, many = (sum(work_of(partial(infer_project, {"train": wide(tmp_path, n)}, "label")).values()) for n in (150, 600))
    assert many < 4.5 * few


def test_a_wide_table_is_read_many_columns_at_a_time():
    """Taking columns out of a frame one by one takes the square of them: 16 s for 16,000."""
    frame = polars.DataFrame({f"c{nr}": [f" {nr}", "x "] for nr in range(1000)})
    calls = work_of(lambda: polars_csv.stripped(frame))
    assert calls["drop_in_place"] == 0
    assert sum(count for name, count in calls.items() if "collect" in name) < 100
    columns = polars_csv.stripped(frame)
    assert [*columns] == frame.columns
    assert all(columns[f"c{nr}"].to_list() == [str(nr), "x"] for nr in range(1000))


def test_numbers_without_gaps_are_understood_without_a_query():
    cells = polars.Series(["1", "-2.5e3", "7", "1e400"])
    calls = work_of(lambda: parse_column("c", cells))
    assert sum(count for name, count in calls.items() if "collect" in name) == 0
    assert parse_column("c", cells).values.tolist() == [1.0, -2500.0, 7.0, math.inf]


def test_a_table_of_too_many_columns_is_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(config_inference, "MOST_COLUMNS", 150)
    with pytest.raises(InputError, match="151 columns; init looks at each of at most 150"):
        infer_project({"train": wide(tmp_path, 150)}, "label")
    monkeypatch.setattr(config_inference, "MOST_COLUMNS", 151)
    assert infer_project({"train": tmp_path / "150.csv"}, "label").kind == "tabular_classification"


def test_a_number_that_may_mean_no_value_names_each_other_column_that_holds_it_and_no_suspect():
    values = np.r_[np.full(20, -9.0), np.arange(100.0, 180.0)]
    columns = [Column(name, "number", values) for name in "ab"] + [Column("c", "number", np.r_[values[19:], values[20:39]])]
    columns += [Column("d", "number", np.arange(100.0)), Column("e", "number", np.full(100, np.nan))]
    columns += [Column("few", "number", np.r_[np.full(50, -9.0), np.full(50, 1.0)])]
    table = Table({column.name: column.values for column in columns}, lambda: np.arange(100), "t.csv")
    rows = np.arange(100)
    found = sentinels(table, columns, rows, rows)
    assert [(one.column, one.others, len(one.rows)) for one in found] == [("a", ["c", "few"], 20), ("b", ["c", "few"], 20)]


def many_sentinels(count: int) -> Callable[[], Any]:
    """Return the search for numbers that may mean no value in so many columns, half of which hold one."""
    rows = np.arange(100)
    values = [np.r_[np.full(20, -9.0), np.arange(100.0, 180.0)], np.r_[np.full(50, -9.0), np.full(50, 1.0)]]
    columns = [Column(str(nr), "number", values[nr % 2]) for nr in range(count)]
    table = Table({column.name: column.values for column in columns}, lambda: rows, "t.csv")
    return lambda: sentinels(table, columns, rows, rows)


def test_the_search_for_numbers_that_mean_no_value_grows_with_the_columns_and_not_with_their_square():
    few, many = (work_of(many_sentinels(count)).total() for count in (100, 400))
    assert many < 4.5 * few


@pytest.mark.parametrize("blank", ["", " ", "\t", "\x1f", "\u00a0", "\u3000"])
def test_spaces_around_the_cells_of_a_long_file_are_left_out(blank):
    data = b"a,b\n" + f"{blank}x,y{blank}\n".encode() * (files.FAST_FROM // 4)
    columns = files.read_csv(data, "t.csv").columns
    assert [columns[name].unique().to_list() for name in "ab"] == [["x"], ["y"]]


def test_a_line_end_at_the_end_of_a_quoted_cell_of_a_long_file_is_left_out():
    table = files.read_csv(b'a,b\n"x\n",y\n' * (files.FAST_FROM // 6), "t.csv", header=False)
    assert sorted(table.columns["column_1"].unique().to_list()) == ["a", "x"]
