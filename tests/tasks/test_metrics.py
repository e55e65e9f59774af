import math

import pytest
import torch
from sklearn import metrics as peer

from mltrainer.tasks import metrics
from mltrainer.tasks.metric_names import CLASSIFICATION_METRICS, REGRESSION_METRICS

GENERATOR = torch.Generator().manual_seed(1)
LOGITS = torch.randn(200, 4, generator=GENERATOR)
LABELS = torch.randint(0, 4, (200,), generator=GENERATOR)
VALUES = torch.randn(200, generator=GENERATOR) * 3 + 100
GUESSES = VALUES + torch.randn(200, generator=GENERATOR)


def test_classification_agrees_with_scikit_learn():
    found = metrics.classification(LOGITS, LABELS)
    guesses, chances = LOGITS.argmax(1), LOGITS.double().softmax(1)
    assert found == pytest.approx(
        {
            "accuracy": peer.accuracy_score(LABELS, guesses),
            "f1_macro": peer.f1_score(LABELS, guesses, average="macro"),
            "balanced_accuracy": peer.balanced_accuracy_score(LABELS, guesses),
            "log_loss": peer.log_loss(LABELS, chances),
            "roc_auc": peer.roc_auc_score(LABELS, chances, multi_class="ovr"),
            "average_precision": peer.average_precision_score(LABELS, chances),
            "calibration_error": calibration_error(chances, LABELS),
        }
    )


def calibration_error(chances, labels):
    """Return the expected calibration error, bin by bin as it is defined."""
    surest, right = chances.amax(1), chances.argmax(1) == labels
    bins = [(surest > nr / 15) & (surest <= (nr + 1) / 15) for nr in range(15)]
    gaps = [abs(float(right[one].double().mean() - surest[one].mean())) * float(one.double().mean()) for one in bins if one.any()]
    return sum(gaps)


@pytest.mark.parametrize("positive", [0, 1])
def test_two_classes_with_ties_agree_with_scikit_learn(positive):
    logits, labels = (LOGITS[:, :2] * 2).round(), LABELS % 2
    found = metrics.classification(logits, labels, positive)
    margin = (logits[:, positive] - logits[:, 1 - positive]).numpy()
    assert len(set(margin)) < 30
    is_positive = (labels == positive).numpy()
    assert found["roc_auc"] == pytest.approx(peer.roc_auc_score(is_positive, margin))
    assert found["average_precision"] == pytest.approx(peer.average_precision_score(is_positive, margin))


def test_probabilities_that_are_all_but_one_are_still_told_apart():
    outputs = torch.tensor([[0.0, 50.0], [0.0, 60.0], [0.0, 70.0], [0.0, 80.0]])
    assert metrics.classification(outputs, torch.tensor([0, 0, 1, 1]))["roc_auc"] == 1.0


def test_absent_classes_are_left_out_and_a_ranking_of_one_class_does_not_exist():
    labels = torch.where(LABELS == 3, 0, LABELS)
    found = metrics.classification(LOGITS, labels)
    chances = LOGITS.double().softmax(1)
    areas = [peer.roc_auc_score(labels == nr, chances[:, nr]) for nr in range(3)]
    assert found["roc_auc"] == pytest.approx(sum(areas) / 3)
    assert found["balanced_accuracy"] == pytest.approx(
        peer.recall_score(labels, LOGITS.argmax(1), average=None, zero_division=0)[:3].mean()
    )
    alone = metrics.classification(LOGITS[:, :2], torch.zeros(200, dtype=torch.long))
    assert "roc_auc" not in alone
    assert all(math.isfinite(value) for value in alone.values())


def test_one_metric_alone_is_the_same_and_many_classes_are_not_sorted_one_by_one():
    assert (
        metrics.classification(LOGITS, LABELS, names=["roc_auc"])["roc_auc"] == metrics.classification(LOGITS, LABELS)["roc_auc"]
    )
    assert "roc_auc" not in metrics.classification(torch.randn(5, 101, generator=GENERATOR), torch.arange(5))


def test_every_metric_is_known_to_configs_with_its_direction():
    assert {"loss", *metrics.CLASSIFICATION} == set(CLASSIFICATION_METRICS)
    assert set(metrics.regression(GUESSES, VALUES)) | {"loss"} == set(REGRESSION_METRICS)


def test_the_threshold_of_the_best_f1_is_found_for_the_rare_class():
    outputs = torch.stack([torch.zeros(100), torch.arange(100) / 10 - 9], dim=1)  # the larger, the surer
    labels = (torch.arange(100) >= 80).long()
    found = metrics.classification_evaluation(outputs, labels, ["no", "yes"])["threshold"]
    assert found["class"] == "yes"
    assert found["f1"] == 1.0
    assert found["probability"] == pytest.approx(1 / (1 + math.exp(1)), abs=1e-6)
    guesses = (torch.arange(100) > 90).long()
    assert found["f1_at_half"] == pytest.approx(peer.f1_score(labels, guesses))
    assert "threshold" not in metrics.classification_evaluation(outputs, torch.zeros(100, dtype=torch.long), ["no", "yes"])
    assert "threshold" not in metrics.classification_evaluation(LOGITS, LABELS, ["a", "b", "c", "d"])


def test_f1_macro_leaves_out_classes_that_never_occur():
    outputs = torch.tensor([[9.0, 0, 0], [0, 9.0, 0]])
    assert metrics.classification(outputs, torch.tensor([0, 1]))["f1_macro"] == 1.0


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [0, 0, 0, 0], [2, 1, 1, 2], [3, 1, 0, 1]])
def test_f1_macro_of_classes_that_are_predicted_and_never_a_target_is_scikit_learns(labels):
    guesses = torch.tensor([0, 2, 1, 0])
    outputs = torch.nn.functional.one_hot(guesses, 5).float() * 9
    found = metrics.classification(outputs, torch.tensor(labels))["f1_macro"]
    assert found == pytest.approx(peer.f1_score(labels, guesses, average="macro", zero_division=0))


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
    assert (found["kind"], found["labels"], found["confusion"]) == ("classification", ["no", "yes"], [[0, 1], [1, 1]])


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


def test_a_class_that_is_predicted_and_never_a_target_counts_as_scikit_learn_counts_it():
    guesses, labels = torch.tensor([0, 1, 2, 0, 2, 1, 1]), torch.tensor([0, 1, 0, 0, 1, 1, 0])
    found = metrics.classification(torch.nn.functional.one_hot(guesses, 4).float() * 3, labels)
    assert found["f1_macro"] == pytest.approx(peer.f1_score(labels, guesses, average="macro"))
    assert found["balanced_accuracy"] == pytest.approx(peer.recall_score(labels, guesses, average="macro", labels=[0, 1]))
