import math

import pytest
import torch
from sklearn import metrics as peer

from mltrainer.tasks import metrics

GENERATOR = torch.Generator().manual_seed(1)
LOGITS = torch.randn(200, 4, generator=GENERATOR)
LABELS = torch.randint(0, 4, (200,), generator=GENERATOR)
VALUES = torch.randn(200, generator=GENERATOR) * 3 + 100
GUESSES = VALUES + torch.randn(200, generator=GENERATOR)


def test_classification_agrees_with_scikit_learn():
    found = metrics.classification(LOGITS, LABELS)
    guesses = LOGITS.argmax(1)
    assert found["accuracy"] == pytest.approx(peer.accuracy_score(LABELS, guesses))
    assert found["f1_macro"] == pytest.approx(peer.f1_score(LABELS, guesses, average="macro"))


def test_f1_macro_leaves_out_classes_that_never_occur():
    outputs = torch.tensor([[9.0, 0, 0], [0, 9.0, 0]])
    assert metrics.classification(outputs, torch.tensor([0, 1]))["f1_macro"] == 1.0


def test_regression_agrees_with_scikit_learn():
    found = metrics.regression(GUESSES, VALUES)
    true, guesses = VALUES.double().numpy(), GUESSES.double().numpy()
    assert found["r2"] == pytest.approx(peer.r2_score(true, guesses))
    assert found["rmse"] == pytest.approx(peer.root_mean_squared_error(true, guesses))
    assert found["mae"] == pytest.approx(peer.mean_absolute_error(true, guesses))


def test_sums_are_taken_in_float64():
    values = torch.full((100_000,), 1000.1)
    assert metrics.regression(values + 1, values)["mae"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("bad", [math.nan, -math.nan])
def test_nan_outputs_give_nan_metrics_never_zero(bad):
    logits, guesses = LOGITS.clone(), GUESSES.clone()
    logits[3, 1] = guesses[3] = bad
    found = {**metrics.classification(logits, LABELS), **metrics.regression(guesses, VALUES)}
    assert all(math.isnan(value) for value in found.values())


def test_infinite_guesses_do_not_look_like_a_result():
    guesses = GUESSES.clone()
    guesses[0] = math.inf
    found = metrics.regression(guesses, VALUES)
    assert found["rmse"] == math.inf
    assert found["r2"] == -math.inf


def test_no_samples_give_nan():
    assert math.isnan(metrics.classification(LOGITS[:0], LABELS[:0])["accuracy"])
    assert math.isnan(metrics.regression(GUESSES[:0], VALUES[:0])["mae"])


def test_r2_of_equal_targets_is_nan():
    assert math.isnan(metrics.regression(GUESSES, torch.ones(200))["r2"])


def test_the_confusion_matrix_has_true_classes_as_rows():
    outputs = torch.tensor([[0.0, 1], [0, 1], [1, 0]])
    found = metrics.classification_evaluation(outputs, torch.tensor([0, 1, 1]), ["no", "yes"])
    assert found == {"kind": "classification", "labels": ["no", "yes"], "confusion": [[0, 1], [1, 1]]}


def test_nan_outputs_have_no_confusion_matrix():
    assert metrics.classification_evaluation(torch.full((2, 2), math.nan), torch.tensor([0, 1]), ["a", "b"])["confusion"] is None


@pytest.mark.parametrize(("samples", "pairs"), [(5, 5), (1000, 200)])
def test_residual_pairs_are_evenly_spaced_and_at_most_200(samples, pairs):
    targets = torch.arange(samples, dtype=torch.float32)
    found = metrics.regression_evaluation(targets + 1, targets)
    assert len(found["pairs"]) == pairs
    assert found["pairs"][0] == [0.0, 1.0]
    assert found["pairs"][-1][0] == samples - 1


def test_residual_quantiles_are_of_prediction_minus_target():
    targets = torch.zeros(101)
    found = metrics.regression_evaluation(torch.arange(101.0), targets)
    assert found["residual_quantiles"] == [5.0, 25.0, 50.0, 75.0, 95.0]
