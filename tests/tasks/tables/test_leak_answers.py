"""Leaks of a table as a person meets them: in `mltrainer.yaml` and in planning's findings."""

import numpy as np
import pytest
import torch

from mltrainer.configs.items import DataLimits
from mltrainer.errors import InputError
from mltrainer.tasks.opening import open_task
from tests.tasks.tables.labelled_leaks import HONEST, LEAKS, NATURE, Columns


@pytest.fixture
def found(config, tmp_path):
    """Return the findings of planning on a table's leaks, each after its severity."""

    def make(table: Columns, kind="tabular_classification", split=None, **data):
        cells = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
        (tmp_path / "t.csv").write_text("\n".join([",".join(table), *cells]) + "\n")
        settings = config(
            task={"kind": kind},
            data={"source": "t.csv", "target": "t", **data},
            metric={"name": "loss", "mode": "min"},
            split={"validation": 0.2, "test": 0.2, "stratify": False, **(split or {})},
            batch_size=2,
        )
        told = open_task(settings, tmp_path).facts(DataLimits())["findings"]
        return [f"{one['severity']}: {one['what']}" for one in told if one["what"].startswith(("leakage", "accepted"))]

    return make


def drawn(name, group=NATURE):
    return group[name](np.random.default_rng(0))


def test_a_table_that_nature_determines_goes_on_once_it_is_answered(found):
    (asked,) = found(drawn("mushrooms"))
    assert asked.startswith("error: leakage: 'smell' gives the target (of held-out training rows, balanced accuracy 0.99")
    assert "`ignore: [smell]`" in asked
    assert "`leak_accepted: {smell: REASON}`" in asked
    (answered,) = found(drawn("mushrooms"), leak_accepted={"smell": "it is smelled before anyone eats"})
    assert answered.startswith("warning: accepted: 'smell' gives the target")
    assert answered.endswith("because: it is smelled before anyone eats")


def test_an_honest_table_is_asked_nothing(found):
    assert found(drawn("titanic", HONEST)) == []


def test_an_unknown_column_is_refused_with_the_nearest_name(found):
    with pytest.raises(InputError, match=r"data\.leak_accepted: there is no column 'smel' in t\.csv; did you mean 'smell'\?"):
        found(drawn("mushrooms"), leak_accepted={"smel": "it is smelled first"})
    with pytest.raises(InputError, match=r"data\.sentinel_accepted: there is no column 'T' in t\.csv"):
        found(drawn("mushrooms"), sentinel_accepted={"T": "it is that cold"})


@pytest.mark.parametrize("key", ["leak_accepted", "sentinel_accepted"])
@pytest.mark.parametrize("reason", ["", "  ", "REASON"])
def test_a_reason_is_needed(config, key, reason):
    with pytest.raises((InputError, ValueError), match="column 'smell' needs a reason of your own"):
        config(data={"source": "t.csv", "target": "t", key: {"smell": reason}})


def test_several_targets_are_asked_about_one_by_one(config, tmp_path):
    columns = drawn("a copy", {name: make for name, (make, _) in LEAKS.items()})
    columns["u"] = np.where(columns["x0"] > 0, "high", "low").astype(object)
    cells = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([",".join(columns), *cells]) + "\n")
    settings = config(
        task={"kind": "tabular_multitask"},
        data={"source": "t.csv", "targets": ["t", "u"]},
        metric={"name": "loss", "mode": "min"},
        batch_size=2,
    )
    told = [one for one in open_task(settings, tmp_path).facts(DataLimits())["findings"] if one["severity"] == "error"]
    assert [one["what"].split(" the target")[0] for one in told] == [
        "target 't': leakage: 'leak' equals",
        "target 'u': leakage: 'x0' gives",
    ]


def series(draw):
    days = np.datetime64("2020-01-01") + np.arange(500)
    return days.astype(str), np.cumsum(draw.normal(size=500)).round(4) + 7


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (lambda t: np.append(t[1:], 0), "is the target of the next row in time"),
        (lambda t: np.convolve(t, np.ones(7) / 7, "same").round(3), "is the mean of the target over 7 rows in time, later ones"),
        (lambda t: np.convolve(t, np.ones(7) / 7)[:500], "is the mean of the target over 7 rows in time, its own among them"),
    ],
)
def test_what_comes_later_is_found_in_a_split_by_time(found, column, said):
    draw = np.random.default_rng(2)
    days, target = series(draw)
    order = draw.permutation(500)
    columns = {"day": days, "x": draw.normal(size=500), "leak": column(target), "t": target}
    shuffled = {name: values[order] for name, values in columns.items()}
    (asked,) = found(shuffled, "tabular_regression", {"time": "day"}, columns={"day": "date"})
    assert asked.startswith(f"error: leakage: 'leak' {said}")


@pytest.mark.parametrize("column", [lambda t: np.append(0, t[:-1]), lambda t: np.append(0, np.convolve(t, np.ones(7) / 7)[:499])])
def test_what_was_known_before_is_honest_in_a_split_by_time(found, column):
    draw = np.random.default_rng(2)
    days, target = series(draw)
    columns = {"day": days, "x": draw.normal(size=500), "past": column(target), "t": target}
    assert found(columns, "tabular_regression", {"time": "day"}, columns={"day": "date"}) == []


# --- beside metrics ---


def test_a_task_names_the_classes_that_a_split_lacks(config, tmp_path):
    rows = [f"{nr},{part},{kind}" for nr, (part, kind) in enumerate([*PARTS["train"], *PARTS["validation"], *PARTS["test"]] * 8)]
    (tmp_path / "t.csv").write_text("\n".join(["n,part,t", *rows]) + "\n")
    opened = open_task(config(data={"source": "t.csv", "target": "t"}, split={"column": "part"}, batch_size=2), tmp_path)
    assert {split: opened.lacking_classes(split) for split in PARTS} == {"train": ["c"], "validation": [], "test": ["a", "b"]}


PARTS = {
    "train": [("train", "a"), ("train", "b")],
    "validation": [("validation", "a"), ("validation", "b"), ("validation", "c")],
    "test": [("test", "c")],
}


def test_segments_by_the_target_are_said_to_be_such(config, tmp_path):
    draw = np.random.default_rng(0)
    x = draw.normal(size=400)
    target = x + (x > 1) * draw.normal(size=400) * 5
    rows = [f"{a:.4f},{b:.4f}" for a, b in zip(x, target, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x,t", *rows]) + "\n")
    settings = config(
        task={"kind": "tabular_regression"},
        data={"source": "t.csv", "target": "t"},
        metric={"name": "loss", "mode": "min"},
        split={"stratify": False},
        batch_size=2,
    )
    task = open_task(settings, tmp_path).task
    ids = np.arange(400)
    found = task.errors(torch.from_numpy(x), torch.from_numpy(target), ids)
    assert {row.column for row in found.segments.rows} == {"x", "t, the target itself"}
