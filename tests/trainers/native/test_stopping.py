"""The best row and patience follow from the history alone."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.checkpointing.ranking import best_row
from mltrainer.configs.project import Metric, ProjectConfig, TrainingConfig
from mltrainer.records.run import Evaluation
from mltrainer.trainers.native.stopping import patience_is_over

BASE: dict[str, Any] = {"name": "x", "task": {"use": "m:T"}, "metric": {"name": "accuracy", "mode": "max"}}


def history(*values: float) -> list[Evaluation]:
    return [Evaluation.at(1, step, {"accuracy": value}) for step, value in enumerate(values, 1)]


def config(**stopping: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**BASE, "early_stopping": stopping or None})


def test_the_first_of_equal_rows_is_the_best():
    best = best_row(history(0.5, 0.9, 0.9, 0.7), Metric(name="accuracy", mode="max"))
    assert best.step == 2


def losses(*pairs: tuple[float, float]) -> list[Evaluation]:
    return [Evaluation.at(1, step, {"accuracy": value, "loss": loss}) for step, (value, loss) in enumerate(pairs, 1)]


def test_of_equal_rows_the_one_with_the_smallest_loss_is_the_best_where_that_is_asked_for():
    rows = losses((0.9, 0.5), (1, 0.4), (1, 0.2), (1, 0.3), (1, 0.2))
    assert best_row(rows, Metric(name="accuracy", mode="max", ties="loss")) == rows[2]
    assert best_row(rows, Metric(name="accuracy", mode="max", ties="first")) == rows[1]


def test_of_equal_rows_without_a_loss_the_first_is_the_best():
    rows = [*history(0.5, 0.9, 0.9)]
    assert best_row(rows, Metric(name="accuracy", mode="max", ties="loss")) == rows[1]


def test_the_loss_decides_in_new_projects_and_the_first_where_a_file_says_so():
    metric = {"name": "accuracy", "mode": "max"}
    said = [ProjectConfig.model_validate({**BASE, "metric": one}) for one in (metric, {**metric, "ties": "first"})]
    assert [one.metric.ties for one in said] == ["loss", "first"]


def test_a_tie_that_is_won_renews_patience():
    rows = losses((1, 0.5), (1, 0.4), (1, 0.3))
    values = {**BASE, "early_stopping": {"patience": 2}}
    by_place = {**values, "metric": {"name": "accuracy", "mode": "max", "ties": "first"}}
    assert patience_is_over(rows, TrainingConfig.model_validate(by_place))
    assert not patience_is_over(rows, TrainingConfig.model_validate(values))


def test_no_number_at_all_never_renews_patience():
    assert patience_is_over(history(float("nan"), float("nan")), config(patience=2))


def test_the_direction_of_the_metric_counts():
    best = best_row(history(0.5, 0.9, 0.2), Metric(name="accuracy", mode="min"))
    assert best.step == 3


def test_nan_is_never_the_best():
    best = best_row(history(float("nan"), 0.1), Metric(name="accuracy", mode="min"))
    assert best.step == 2


@pytest.mark.parametrize(("values", "over"), [((0.5, 0.6, 0.6, 0.6), True), ((0.5, 0.6, 0.6), False)])
def test_patience_counts_evaluations_without_improvement(values, over):
    assert patience_is_over(history(*values), config(patience=2)) is over


def test_without_early_stopping_nothing_stops():
    assert not patience_is_over(history(*[0.1] * 50), config())


def test_a_gain_below_min_delta_is_no_improvement():
    assert patience_is_over(history(0.5, 0.501, 0.502), config(patience=2, min_delta=0.01))
