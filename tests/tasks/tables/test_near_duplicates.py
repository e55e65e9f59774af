import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Data, Split
from mltrainer.tasks.sources import read_source, table_of
from mltrainer.tasks.splits import split_ids
from mltrainer.tasks.tables.files import read_csv
from mltrainer.tasks.tables.schema import schema_of
from mltrainer.tasks.tables.two_splits import near_duplicates

ROWS, COPIES = 300, 60


def told(lines):
    table = read_csv(("a,b,c,k,t\n" + "\n".join(lines) + "\n").encode(), "d.csv")
    return found_in(table, "t")


def found_in(table, target):
    schema = schema_of(table, target, [])
    ids = split_ids(len(schema), None, Split(validation=0.3, test=0.1), 1)
    return [finding.what for finding in near_duplicates(schema.features, ids["train"], ids["validation"], DataLimits())]


def rows_of(changed, copies=COPIES):
    draw = np.random.default_rng(0)
    rows = [(*draw.normal(size=3).round(6).tolist(), "uvw"[draw.integers(3)]) for _ in range(ROWS)]
    copied = [changed(*row) for row in rows[:copies]]
    return [",".join(map(str, (*row, number % 2))) for number, row in enumerate([*rows, *copied])]


CHANGES = {
    "one number": (lambda a, b, c, k: (a, b + 1, c, k), "equal a training row but for column 'b': are they copies?"),
    "one category": (lambda a, b, c, k: (a, b, c, "x"), "equal a training row but for column 'k'"),
    "the last digits": (
        lambda a, b, c, k: (a * 1.00001, b * 1.00001, c * 0.99999, k),
        "equal a training row in 3 digits",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_are_equal_but_for_little_are_told(change):
    changed, text = CHANGES[change]
    found = told(rows_of(changed))
    assert len(found) == 1
    assert text in found[0]
    assert "of 108 validation rows" in found[0]


def test_rows_of_their_own_and_exact_copies_are_not_told():
    assert told(rows_of(lambda *row: row, copies=0)) == []
    assert told(rows_of(lambda *row: row)) == []


def test_two_changed_columns_are_no_near_copy():
    assert told(rows_of(lambda a, b, c, k: (a + 1, b + 1, c, k))) == []


def test_columns_of_few_values_coincide_by_chance():
    draw = np.random.default_rng(0)
    lines = [",".join(map(str, [*draw.integers(0, 4, 3), "uvw"[draw.integers(3)], n % 2])) for n in range(300)]
    assert told(lines) == []


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes"])
def test_common_tables_have_none(name, tmp_path):
    table, target = table_of(read_source(Data(source=f"sklearn:{name}"), tmp_path).content, None)
    assert found_in(table, target) == []


def test_rows_whose_cells_stand_in_other_columns_are_no_copies():
    assert told(rows_of(lambda a, b, c, k: (b, a, c + 1, k))) == []
