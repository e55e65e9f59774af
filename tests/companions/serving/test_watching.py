"""Drift and live quality of a served model, from what is kept of its answers."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from mltrainer.checkpointing.deployment import write_checksums
from mltrainer.companions.serving.contract import labels_of, truth_of
from mltrainer.companions.serving.store import Kept, Store
from mltrainer.companions.serving.watching import labelled, watched
from mltrainer.errors import InputError
from mltrainer.tasks.statistics import share_difference
from mltrainer.tasks.tables.columns import parse_column
from mltrainer.tasks.tables.task import training_distribution
from tests.companions.serving.conftest import ROW, TABLE, VALUE, asking, deliver

TARGETS: dict[str, Any] = {
    "output": "targets",
    "targets": [
        {"name": "kind", "word": "kind", "output": "logits", "classes": ["a", "b"]},
        {"name": "House price", "word": "house_price", "output": "value", "classes": None},
    ],
}
RANDOM = np.random.default_rng(5)


def trained_on(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a description with what 500 training rows held of the ages: about 40."""
    age = training_distribution(parse_column("age", RANDOM.normal(40, 10, 500)), np.arange(500), None)
    return {**spec, "columns": [{**spec["columns"][0], "training": age}, *spec["columns"][1:]]}


def final(**metrics: float) -> Any:
    """What finalization measured, as far as it is asked."""
    evaluation = {"confusion": [[70, 10], [10, 70]], "labels": ["no", "yes"]}
    test = SimpleNamespace(metrics=metrics, samples=200)
    return SimpleNamespace(run=SimpleNamespace(evaluation=evaluation), test=test, config={"data": {"source": "loans.csv"}})


def kept(answer: Any, label: Any = None, given: Any = None) -> Kept:
    return Kept(datetime.now(UTC), {"prediction": answer}, given, label)


def aged(mean: float) -> list[Kept]:
    return [
        kept("no" if n % 2 else "yes", given={**ROW, "age": float(age)}) for n, age in enumerate(RANDOM.normal(mean, 10, 300))
    ]


def test_rows_of_another_age_are_told_by_column_and_like_ones_are_not():
    same, older = (watched(trained_on(TABLE), None, aged(mean), 7) for mean in (40, 60))
    assert (same.columns[0].has_drifted, same.alerts) == (False, [])
    assert older.columns[0].has_drifted
    assert older.alerts[0].startswith("column 'age' differs from training: population stability index")
    assert "mltrainer run" in older.next
    assert watched(trained_on(TABLE), None, aged(60)[:49], 7).columns == []


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "most"), [(50, 12), (400, 12)])
def test_chance_alone_rarely_raises_an_alarm(rows, most):
    """One in a hundred is meant; of 400 trials, 12 are the 99.9th percentile."""
    spec = trained_on(TABLE)
    found = [watched(spec, None, aged(40)[:rows] if rows <= 300 else aged(40) + aged(40)[:100], 7) for _ in range(400)]
    assert sum(bool(one.alerts) for one in found) <= most


def test_other_predictions_than_on_validation_are_told():
    balanced = [kept("no" if n % 2 else "yes") for n in range(200)]
    found = watched(TABLE, final(accuracy=0.9), balanced, 7)
    assert found.answers == pytest.approx(0)
    found = watched(TABLE, final(accuracy=0.9), [kept("yes")] * 200, 7)
    assert "the predicted classes are not those of validation" in found.alerts[0]


@pytest.mark.parametrize(("wrong", "is_worse"), [(10, False), (14, False), (40, True)])
def test_an_accuracy_is_worse_only_where_chance_does_not_explain_it(wrong, is_worse):
    """Of 100 labels, beside 0.9 on 200 test rows."""
    rows = [kept("no", "yes" if n < wrong else "no") for n in range(100)] + [kept("no")] * 30
    (found,) = watched(TABLE, final(accuracy=0.9), rows, 7).quality
    assert (found.live, found.rows, found.is_worse) == (1 - wrong / 100, 100, is_worse)
    by_chance = stats.fisher_exact([[100 - wrong, wrong], [180, 20]], alternative="less").pvalue
    assert bool(by_chance < 0.025) is is_worse


def test_an_interval_of_unlike_numbers_of_rows_is_that_of_the_textbook():
    """Newcombe, 1998, table II, contrast (a): 56/70 and 48/80."""
    assert share_difference(48 / 80, 56 / 70, 80, after_count=70) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_an_error_of_quantities_is_compared_by_the_interval_of_its_mean():
    truth = RANDOM.normal(0, 1, 80)
    rows = [kept(0.0, float(value)) for value in truth] + [kept(None, 1.0)]
    (found,) = watched(VALUE, final(mae=0.1), rows, 7).quality
    sizes = np.abs(truth)
    low, high = stats.norm.interval(0.95, sizes.mean(), sizes.std(ddof=1) / math.sqrt(80))
    assert (found.live, found.rows, found.is_worse) == (pytest.approx(sizes.mean()), 80, True)
    assert found.interval == pytest.approx((low - 0.1, high - 0.1), abs=1e-4)
    assert not watched(VALUE, final(mae=0.8), rows, 7).quality[0].is_worse


def test_each_of_several_targets_has_its_metric():
    rows = [kept({"kind": "a", "House price": 1.0}, {"kind": "b", "House price": 1.5}) for _ in range(60)]
    found = watched(TARGETS, final(accuracy_kind=0.9, mae_house_price=1.0), rows, 7).quality
    assert [(row.metric, row.live, row.is_worse) for row in found] == [
        ("accuracy_kind", 0.0, True),
        ("mae_house_price", 0.5, False),
    ]


@pytest.mark.parametrize(
    ("label", "is_taken"),
    [
        ({"House price": 2.5}, True),
        ({"kind": "a", "House price": 2.5}, True),
        ({"House price": "cheap"}, False),
        ({"House price": None}, False),
        ({"kind": "c"}, False),
        ({"Houseprice": 2.5}, False),
        ("a", False),
    ],
)
def test_a_label_of_several_targets_is_checked_by_target(label, is_taken):
    labels = TypeAdapter(labels_of(TARGETS, 10))
    given = {"labels": [{"id": "0" * 32, "label": label}]}
    if not is_taken:
        with pytest.raises(ValidationError):
            labels.validate_python(given)
        return
    read: Any = labels.validate_python(given)
    assert truth_of(read.labels[0].label) == label


def test_labelled_rows_are_written_as_training_reads_them(tmp_path):
    rows = [kept("no", "yes", ROW), kept("no", None, ROW), kept("no", "no")]
    assert labelled(TABLE, rows, tmp_path / "new.jsonl") == 1
    assert [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()] == [{**ROW, "paid": "yes"}]


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ([kept("no", "yes", ROW)], "mltrainer watch --rows new_rows.jsonl, "),
        ([kept("no", None, ROW), kept("no", "yes")], "send the labels of these rows once they are known; "),
        ([kept("no", "yes")], "keep the rows, too: mltrainer serve --store --keep-days 30; "),
    ],
)
def test_the_next_step_is_one_that_gives_rows(rows, first):
    assert watched(TABLE, final(), rows, 7).next.startswith(first)


def test_labelled_rows_are_not_written_over_a_file(tmp_path):
    (tmp_path / "loans.csv").write_text("age,paid\n")
    with pytest.raises(InputError, match="it exists already: nothing is written over it"):
        labelled(TABLE, [kept("no", "yes", ROW)], tmp_path / "loans.csv")
    assert (tmp_path / "loans.csv").read_text() == "age,paid\n"


def test_the_command_tells_what_differs_and_sends_it_on(tmp_path, cli, monkeypatch):
    folder, url = deliver(tmp_path / "model", trained_on(TABLE)), f"sqlite:///{tmp_path}/kept.sqlite"
    said = cli("watch", folder, "--database", url, code=1, err="no answers were kept")
    with asking(folder, store=Store(url), with_inputs=True) as client:
        client.post("/predict", json={"rows": [{**ROW, "age": float(age)} for age in RANDOM.normal(70, 5, 100)]})
    monkeypatch.setenv("MLTRAINER_ALERT_COMMAND", f"tee {tmp_path}/alert.json")
    said = cli("watch", folder, "--database", url, code=5, out="ALERT: column 'age' differs from training")
    assert "then train again: mltrainer run" in said.out
    assert "column 'age'" in json.loads((tmp_path / "alert.json").read_text())["reason"]
    found = cli("watch", folder, "--database", url, "--json").json
    assert (found["predictions"], found["inputs"], found["labels"]) == (100, 100, 0)
    assert found["columns"][0]["has_drifted"]
    (folder / "manifest.json").write_text(json.dumps({"weights_sha256": "2" * 64}))  # another model: its answers are others
    write_checksums(folder)
    said = cli("watch", folder, "--database", url, code=0, out="too few answers")
