"""The history of a program's run: where its evaluations stand among its steps, and what the steps between them showed."""

from __future__ import annotations

import math

import pytest

from mltrainer.trainers.script.history import PARTS, Steps, first_nonfinite, history, placed, steps_of
from mltrainer.trainers.script.metrics import ReportedEvaluation

ROWS = [
    [0, "about", ["0.weight"], 48],
    *([0, "step", step, 0, 0.1, 1.0 / step, 2.0 * step, 10**9 * step] for step in range(1, 41)),
    [10**9, "layers", 1, {"0.weight": 0.5}, {"0.weight": 0.01}],
]
SEEN = steps_of(ROWS)


def evaluation(step: int | None = None, epoch: float | None = None, accuracy: float = 0.5) -> ReportedEvaluation:
    return ReportedEvaluation(step, epoch, {"accuracy": accuracy}, {})


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        ([evaluation(step=10), evaluation(step=30), evaluation(step=40)], [10, 30, 40]),
        ([evaluation(epoch=1), evaluation(epoch=2), evaluation(epoch=4)], [10, 20, 40]),
        ([evaluation(epoch=0), evaluation(epoch=1)], [20, 40]),
        ([evaluation(), evaluation()], [20, 40]),
        ([evaluation(step=38)], [40]),
        ([evaluation(step=900), evaluation(step=10)], [40]),
    ],
    ids=["by step", "by epoch", "epochs from 0", "evenly", "the last one is the end", "steps that were never made"],
)
def test_evaluations_stand_where_the_program_says(rows, steps):
    found = placed(rows, 40)
    assert list(found) == steps
    assert found[40] == rows[-1]


def test_a_row_tells_what_the_steps_since_the_last_one_showed():
    first, second, third = history([evaluation(epoch=1), evaluation(epoch=2), evaluation(epoch=4, accuracy=0.9)], SEEN, 40)
    assert first["train_loss"] == pytest.approx(sum(1 / step for step in range(1, 11)) / 10)
    assert (first["grad_norm"]["max"], second["grad_norm"]["min"], third["step"]) == (20.0, 22.0, 40)
    assert (first["layer_norms"], second["layer_norms"], first["update_ratios"]) == ([0.5], [None], [0.01])
    assert second["seconds"] == pytest.approx(10.0)
    assert (third["validation"], third["epoch"], third["lr"]) == ({"accuracy": 0.9}, 4.0, 0.1)


def test_between_few_evaluations_the_steps_are_looked_at_in_parts_that_claim_no_metric():
    rows = history([evaluation(accuracy=0.7)], SEEN, 40)
    assert len(rows) == PARTS
    assert [row["validation"] for row in rows] == [*[{}] * (PARTS - 1), {"accuracy": 0.7}]
    assert all(row["train_loss"] is not None for row in rows)


def test_what_nobody_saw_is_missing_and_no_number():
    (row,) = history([evaluation()], Steps(), 1)
    assert row["train_loss"] is None
    assert row["grad_norm"] == {"median": None, "max": None, "min": None}
    assert math.isnan(row["lr"])


def test_what_a_program_tells_of_its_losses_counts_more_than_what_was_seen():
    seen = steps_of(ROWS, [[0, "loss", 2, math.inf], [0, "metrics", 2, None, {}]])
    assert seen.losses[1] == 1.0
    assert first_nonfinite(seen) == (2, "loss")
    assert first_nonfinite(SEEN) is None


def test_a_norm_that_is_not_finite_shows_in_its_row():
    seen = steps_of([*ROWS, [0, "step", 41, 0, 0.1, 0.1, math.nan, 0]])
    row = history([evaluation()], seen, 41)[-1]
    assert math.isnan(row["grad_norm"]["max"])
    assert first_nonfinite(seen) == (41, "gradient norm")


def test_without_steps_the_evaluations_are_numbered_by_themselves_and_keep_their_epochs():
    rows = history([evaluation(epoch=0), evaluation(epoch=1), evaluation(epoch=2)], Steps(), 0)
    assert [(row["step"], row["epoch"], row["validation"]) for row in rows] == [(n, n, {"accuracy": 0.5}) for n in (1, 2, 3)]
    [alone] = history([evaluation(step=500)], Steps(), 0)
    assert (alone["step"], alone["epoch"], alone["train_loss"]) == (1, 1, None)
