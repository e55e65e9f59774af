"""What is no better than a constant answer is never called good, nor sent on; what is better by more than chance is."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.diagnostics.rules import assess, diagnose, recommend
from mltrainer.diagnostics.signals import Run
from mltrainer.records.common import Acceptance
from mltrainer.records.diagnostics import Assessment
from tests.diagnostics.conftest import result, row
from tests.diagnostics.observed import beside

MET = [Acceptance(metric="accuracy", criterion=">= 0.1", value=0.5, met=True, split="validation")]


def judged(run: dict[str, Any], references: dict[str, Any] | None = None) -> tuple[Assessment, str, list[str]]:
    view = Run.of(run, references)
    rows = diagnose(view, None)
    found = assess(rows, view)
    return found, *recommend(rows, MET, found)


def reaching(validation: float, train: float = 0.62, counts: tuple[int, int] = (100, 100), **more: Any) -> dict[str, Any]:
    """Return a run that reaches such accuracies, beside how many validation samples each of two classes has."""
    matrix = [[count // 2, count - count // 2] for count in counts]
    return result([row(n, train, validation, 0.6) for n in range(1, 9)], evaluation={"confusion": matrix}, **more)


def constant(metric: str, value: float, verdict: str | None, **others: float) -> dict[str, Any]:
    rows = [{"name": "constant", "title": "majority class", "metrics": {metric: value, **others}, "verdict": verdict}]
    return {"metric": metric, "rows": rows}


@pytest.mark.parametrize(
    ("validation", "counts"),
    [(0.5, (100, 100)), (0.4, (100, 100)), (0.9, (180, 20)), (1.0, (200, 0)), (0.55, (100, 100))],
    ids=["at chance", "below chance", "the larger class", "one class alone", "above chance, by what chance gives"],
)
def test_a_metric_that_a_constant_answer_reaches_is_no_good_fit_and_no_deployment(validation, counts):
    found, recommendation, reasons = judged(reaching(validation, train=1.0, counts=counts))
    assert found.beats_constant is False
    assert found.fit != "good"
    assert recommendation == "debug"
    assert "a constant answer reaches" in reasons[-1]


@pytest.mark.parametrize("samples", [1000, 4000])
def test_a_hard_task_that_is_above_a_constant_answer_by_more_than_chance_is_let_go_on(samples):
    found, recommendation, _ = judged(reaching(0.55, counts=(samples // 2, samples // 2)))
    assert found.beats_constant is True
    assert recommendation == "deploy"


@pytest.mark.parametrize(
    ("metric", "value", "answer"), [("r2", 0.01, 0.0), ("r2", -0.2, 0.0), ("roc_auc", 0.49, 0.5), ("balanced_accuracy", 0.5, 0.5)]
)
def test_each_metric_has_its_own_constant_answer(metric, value, answer):
    run = reaching(0.9, train=0.9, metric={"name": metric, "mode": "max"})
    for each in run["history"]:
        each["validation"][metric] = each["train"][metric] = value
    found = Run.of(run).beside_constant
    assert (found.metric, found.constant, found.verdict == "ahead") == (metric, answer, False)


def test_a_plain_model_that_was_measured_says_what_a_constant_answer_reaches():
    errors = {"metric": {"name": "rmse", "mode": "min"}}
    run = reaching(0.9, train=0.9, **errors)
    for each in run["history"]:
        each["validation"]["rmse"] = each["train"]["rmse"] = 4.0
    assert judged(run, constant("rmse", 3.9, "behind"))[1] == "debug"
    assert judged(run, constant("rmse", 4.4, "ahead"))[1] == "deploy"


def test_a_lead_that_chance_explains_is_left_open_where_the_loss_is_better():
    told = {}
    for loss in (0.5, 0.9):  # the constant answer's is 0.69
        run = reaching(0.55)
        for each in run["history"]:
            each["validation"]["log_loss"] = loss
        told[loss] = judged(run, constant("accuracy", 0.5, "level", log_loss=0.69))[0].beats_constant
    assert told == {0.5: None, 0.9: False}


@pytest.mark.parametrize(("own", "expected"), [(2.3, False), (1.5, True)])
def test_a_metric_of_ones_own_is_judged_by_the_loss(own, expected):
    run = beside(own, constant=2.3, linear=2.0)
    run["metric"] = {"name": "quality", "mode": "max"}
    for each in run["history"]:
        each["validation"]["quality"] = each["train"]["quality"] = 0.99
    assert judged(run)[0].beats_constant is expected


def test_where_no_constant_answer_is_known_nothing_is_said_of_it():
    run = reaching(0.9, train=0.9, metric={"name": "bleu", "mode": "max"})
    for each in run["history"]:
        each["validation"]["bleu"] = each["train"]["bleu"] = 0.9
    found, recommendation, _ = judged(run)
    assert (found.beats_constant, found.constant_reason, recommendation) == (None, None, "deploy")


# --- classes that validation numbers otherwise ---


def numbered(matrix: list[list[int]], train: float = 0.98, last: float | None = None) -> dict[str, Any]:
    right = sum(each[place] for place, each in enumerate(matrix)) / sum(map(sum, matrix))
    rows = [row(n, train, right if last is None else last, 0.1, validation_loss=4.0) for n in range(1, 21)]
    return result(rows, evaluation={"confusion": matrix, "labels": ["ant", "bee", "cat"]})


MOVED = {
    "all of them": [[1, 38, 1], [2, 0, 38], [39, 1, 0]],
    "two of them": [[40, 0, 0], [0, 2, 38], [1, 37, 2]],
    "off by one, as validation lacks a class": [[1, 39, 0], [0, 1, 39], [0, 0, 0]],
}


@pytest.mark.parametrize("matrix", MOVED.values(), ids=MOVED)
def test_a_diagonal_that_is_permuted_is_a_numbering_and_no_overfitting(matrix):
    run = numbered(matrix)
    rows = {found.id: found for found in diagnose(Run.of(run), None)}
    assert "bee as cat" in rows["class_numbering"].reason
    assert [name for name, found in rows.items() if found.state == "fired"] == ["class_numbering"]
    assert "Explained by class_numbering" in rows["overfitting"].reason
    found, recommendation, _ = judged(run)
    assert (found.fit, recommendation) == ("unknown", "debug")


def test_what_was_observed_last_tells_it_where_the_matrix_is_of_an_evaluation_before_it_was_learned():
    run = numbered([[14, 13, 13], [14, 13, 13], [14, 13, 13]], last=0.01)
    seen = {"by_class": [[40, 1, 40]] * 3, "answered": [[1, 38], [2, 39], [0, 38]]}
    run["history"][-1]["signals"] = {"validation": seen, "evaluating": {"accuracy": 0.98}}
    found = {one.id: one for one in diagnose(Run.of(run), None)}["class_numbering"]
    assert found.state == "fired"
    assert "95.8 % are answered as one other class each" in found.reason


NOT_MOVED = {
    "a model that overfits": ([[20, 12, 8], [9, 21, 10], [11, 8, 21]], 0.98),
    "two classes that are taken for each other in part": ([[40, 0, 0], [0, 18, 22], [0, 22, 18]], 0.98),
    "one class that is taken for another": ([[40, 0, 0], [0, 1, 39], [0, 0, 40]], 0.98),
    "one answer for all": ([[40, 0, 0], [40, 0, 0], [40, 0, 0]], 0.98),
    "a training set that was not learned": ([[1, 38, 1], [2, 0, 38], [39, 1, 0]], 0.34),
    "a handful of samples": ([[0, 3, 0], [0, 0, 3], [3, 0, 0]], 0.98),
}


@pytest.mark.parametrize(("matrix", "train"), NOT_MOVED.values(), ids=NOT_MOVED)
def test_other_errors_are_no_numbering(matrix, train):
    rows = {found.id: found.state for found in diagnose(Run.of(numbered(matrix, train)), None)}
    assert rows["class_numbering"] == "clear"
