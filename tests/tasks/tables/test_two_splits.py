"""A table's validation rows beside its training rows: other units and rows of one group, each beside a healthy twin."""

import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.splits import SplitIds
from mltrainer.tasks.tables.files import read_csv
from mltrainer.tasks.tables.leakage import Target
from mltrainer.tasks.tables.schema import schema_of
from mltrainer.tasks.tables.two_splits import split_findings

SEEDS = range(3)


def told(rows, target, train, held_out, is_grouped=False):
    names = [f"n{place}" for place in range(rows.shape[1])]
    cells = np.concatenate([rows, target[:, None]], axis=1).round(6).tolist()
    text = "\n".join([",".join([*names, "t"]), *(",".join(map(str, row)) for row in cells)])
    schema = schema_of(read_csv((text + "\n").encode(), "d.csv"), "t", [])
    ids = SplitIds(train=np.sort(train), validation=np.sort(held_out))
    wanted = [Target(schema.target)]
    return [one.what for one in split_findings(schema.features, wanted, ids, DataLimits(), is_grouped=is_grouped, is_apart=True)]


@pytest.fixture(params=SEEDS)
def draw(request):
    return np.random.default_rng(request.param)


def test_a_column_in_other_units_is_named(draw):
    rows = np.stack([draw.normal(size=400), draw.normal(170, 10, 400)], axis=1)
    rows[300:, 1] /= 2.54
    (text,) = told(rows, draw.normal(size=400), np.arange(300), np.arange(300, 400))
    assert text.startswith("validation has another scale than training: column 'n1': median 1")


def test_a_target_in_other_units_is_named(draw):
    target = draw.normal(70, 12, 400)
    target[300:] *= 1000
    (text,) = told(draw.normal(size=(400, 3)), target, np.arange(300), np.arange(300, 400))
    assert "column 't': median" in text


def test_rows_of_one_patient_on_both_sides_are_told_unless_a_group_keeps_them_together(draw):
    patients = np.repeat(draw.normal(size=(200, 8)), 5, axis=0)
    rows, order = patients + 0.1 * draw.normal(size=patients.shape), draw.permutation(1000)
    target = draw.normal(size=1000)
    (text,) = told(rows, target, order[:800], order[800:])
    assert "validation samples lie far nearer to one training sample" in text
    assert text.endswith("Then split by what they share: split: {group: COLUMN}")
    assert told(rows, target, order[:800], order[800:], is_grouped=True) == []
    assert told(rows, target, np.arange(800), np.arange(800, 1000)) == []  # each patient on one side


@pytest.mark.parametrize("count", [40, 600])
def test_nothing_is_said_of_rows_that_were_drawn(draw, count):
    rows = np.stack([draw.normal(size=count), np.exp(2 * draw.normal(size=count)), draw.integers(0, 3, count)], axis=1)
    rows[::7, 0] = np.nan
    order = draw.permutation(count)
    assert told(rows, rows[:, 1] + draw.normal(size=count), order[count // 4 :], order[: count // 4]) == []
