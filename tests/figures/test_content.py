"""The captions of a run's figures say what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.figures.bound import data_digest
from mltrainer.figures.content import (
    confusion,
    gap,
    gradient_conflict,
    gradients,
    learning_curves,
    loss_terms,
    metric,
    residuals,
    throughput,
    time_spent,
    weights,
)
from mltrainer.records.partial import partial
from mltrainer.records.run import TaskEvaluation, TrainingResult


@pytest.mark.parametrize(
    ("validation", "words"),
    [
        ({"loss": 0.5}, "Validation loss began at 0.5"),
        ({"accuracy": 0.9}, "Training loss, mean over the steps, began at 0.7"),
    ],
)
def test_the_loss_of_a_caption_is_the_one_that_was_measured(validation, words):
    history = [{"epoch": 1.0, "train_loss": 0.7, "validation": validation}]
    assert caption(learning_curves(run(history=history))).startswith(words)


def run(**entries: Any) -> TrainingResult:
    """Return a result with these entries alone."""
    return partial(TrainingResult, entries)


def rows(**columns: list[Any]) -> list[dict[str, Any]]:
    """Return a history whose dotted columns have these values."""
    found: list[dict[str, Any]] = [{"epoch": float(nr + 1)} for nr in range(len(next(iter(columns.values()))))]
    for name, values in columns.items():
        for row, value in zip(found, values, strict=True):
            first, _, last = name.partition("__")
            row.setdefault(first, {}).update({last: value}) if last else row.update({first: value})
    return found


def caption(figure: Any) -> str:
    return str(figure.caption)


@pytest.mark.parametrize(("mode", "told"), [("max", "+0.200"), ("min", "-0.200")])
def test_a_gap_is_above_zero_where_validation_is_worse(mode, told):
    history = rows(train__score=[0.6, 0.9], validation__score=[0.6, 0.7], train__loss=[1.0, 0.25], validation__loss=[1.0, 0.75])
    said = caption(gap(run(history=history, metric={"name": "score", "mode": mode})))
    assert said.startswith(f"At the last evaluation: gap of loss +0.500, gap of score {told};")


@pytest.mark.parametrize(("mode", "best"), [("max", "0.900 (epoch 2)"), ("min", "0.500 (epoch 1)")])
def test_the_best_of_a_metric_is_told_in_its_direction_with_its_epoch(mode, best):
    history = rows(validation__score=[0.5, 0.9, 0.7])
    said = caption(metric(run(history=history, metric={"name": "score", "mode": mode})))
    assert said == f"Validation score began at 0.500 (epoch 1), was best at {best} and ended at 0.700 (epoch 3)."


def test_the_terms_of_a_loss_are_told_from_their_first_to_their_last():
    terms = [{"task": 2.0, "distillation": 3.0}, None, {"task": 1.0, "distillation": 0.5}]
    assert "task 2.00 to 1.00, distillation 3.00 to 0.500." in caption(loss_terms(run(history=rows(terms=terms))))
    assert loss_terms(run(history=rows(terms=[None, None]))) is None


def test_the_pairs_of_losses_whose_gradients_end_most_opposed_are_shown():
    first, last = ({f"a, {nr}": 0.1 * nr - drop for nr in range(8)} for drop in (0.0, 1.0))
    cosines = [{"cosines": first}, None, {"cosines": last}]
    said = caption(gradient_conflict(run(history=rows(signals=cosines))))
    assert "a, 0 0 to -1; a, 1 0.100 to -0.900;" in said.replace("-1.00", "-1")
    assert "a, 5" in said
    assert "a, 6" not in said
    assert gradient_conflict(run(history=rows(signals=[None, None]))) is None


def test_the_confusion_counts_the_diagonal_and_the_most_frequent_mistake_row_by_column():
    found = {"labels": ["a", "b", "c"], "confusion": [[8, 3, 0], [1, 5, 0], [0, 0, 3]]}
    said = caption(confusion(partial(TaskEvaluation, found)))
    assert said.startswith("16 of 20 validation samples are on the diagonal, 80.0 %; most often a was taken for b (3 times")


def test_half_of_the_residuals_are_told_by_the_quartiles():
    found = {"pairs": [[1.0, 2.0], [2.0, 2.5]], "residual_quantiles": [-9.0, -0.25, 0.0, 0.75, 9.0]}
    assert caption(residuals(partial(TaskEvaluation, found))) == (
        "2 validation samples, prediction against target; half of all residuals lie between -0.250 and 0.750."
    )


def test_the_largest_gradient_norm_is_that_of_any_step_and_not_the_median_s():
    history = rows(grad_norm__median=[2.0, 1.0], grad_norm__max=[7.0, 3.0], grad_norm__min=[0.5, 0.1])
    said = caption(gradients(run(history=history)))
    assert said == "The median gradient norm went from 2.00 (epoch 1) to 1.00 (epoch 2); the largest of any step was 7.00."


def test_the_share_of_time_is_of_all_that_was_timed():
    assert caption(time_spent(run(time_s={"train": 6.0, "evaluate": 2.0}))) == "train took 75.0 % of the 8.00 s that were timed."


@pytest.mark.parametrize(("rates", "median"), [([10.0, 30.0, 200.0], "30.0"), ([10.0, 200.0, 20.0, 40.0], "30.0")])
def test_the_throughput_is_the_median_between_its_ends(rates, median):
    said = caption(throughput(run(history=rows(samples_per_s=rates))))
    assert said == f"Training went at {median} samples/s (median), between 10.0 and 200."


def test_weights_that_spread_are_told_by_how_much_their_range_grew():
    def seen(*ranges: float) -> dict[str, Any]:
        return {f"layer {nr}": {"low": -width / 2, "high": width / 2, "counts": [1, 2]} for nr, width in enumerate(ranges)}

    last = {"epoch": 1.0, "signals": {"validation": {"distributions": {"weights": seen(3.0, 2.2)}}}}
    start = {"model": {"distributions": {"weights": seen(1.0, 2.0)}}}
    said = caption(weights(run(signals={"start": start}, history=[last])))
    assert said.endswith("that of layer 0 has changed most: its range is 3.00 times the first.")


@pytest.mark.parametrize(
    ("phase", "part"),
    [("planning", "schedule"), ("baseline", "run"), ("finalization", "run")]
    + [("optimization", part) for part in ("metric", "space", "trials", "best", "baseline", "comparison")],
)
def test_a_change_of_what_a_figure_is_drawn_from_is_noticed(phase, part):
    evidence = {name: [1] for name in ("schedule", "run", "metric", "space", "trials", "best", "baseline", "comparison")}
    assert data_digest(phase, evidence) != data_digest(phase, {**evidence, part: [2]})
    assert data_digest("diagnostics", evidence) is None
