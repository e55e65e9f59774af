import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import Metric
from mltrainer.errors import InputError
from mltrainer.tasks import data_findings
from mltrainer.tasks.array_operations import common, row_hashes
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.metric_names import CLASSIFICATION_METRICS

LIMITS = DataLimits()
RANDOM = np.random.default_rng(0)


def severities(findings):
    return [f.severity for f in findings]


def test_balanced_classes_are_not_mentioned():
    assert data_findings.class_findings(["a", "b"], np.array([0, 1]), np.array([0, 1]), LIMITS) == []


def test_a_class_absent_in_validation_is_a_warning():
    found = data_findings.class_findings(["a", "b"], np.array([0, 1]), np.array([0]), LIMITS)
    assert found == [Finding("warning", "classes without a validation sample: 'b'")]


@pytest.mark.parametrize(("many", "warned"), [(10, False), (11, True)])
def test_imbalance_beyond_ten_to_one_is_a_warning(many, warned):
    found = data_findings.class_findings(["a", "b"], np.array([0] * many + [1]), np.array([0, 1]), LIMITS)
    assert [f.what for f in found] == ([f"classes are imbalanced: {many} training samples of 'a', 1 of 'b'"] if warned else [])


def test_an_absent_training_class_does_not_hide_imbalance():
    found = data_findings.class_findings(["a", "b", "c"], np.array([0] * 30 + [1]), np.array([0, 1, 2]), LIMITS)
    assert len(found) == 2


def test_row_hashes_tell_rows_apart_by_all_parts():
    x, y = np.array([[1.0], [1.0], [1.0]]), np.array([0, 1, 0])
    first, second, third = row_hashes([x, y])
    assert first == third != second
    assert common(np.array([first, second]), np.array([third])) == 1


def test_no_rows_have_no_hashes():
    assert len(row_hashes([np.zeros((0, 3), dtype=np.float32), np.zeros(0, dtype=np.int64)])) == 0


def test_row_hashes_of_many_rows_do_not_meet():
    rows = np.arange(200_000, dtype=np.float32).reshape(-1, 2)
    assert len(np.unique(row_hashes([rows]))) == 100_000
    assert len(np.unique(row_hashes([rows[:, ::-1]]))) == 100_000
    assert not np.isin(row_hashes([rows]), row_hashes([rows[:, ::-1]])).any()


@pytest.mark.parametrize(
    ("repeats", "excuse", "severity"),
    [(0, None, []), (4, None, ["warning"]), (5, None, ["error"]), (5, "few values", ["warning"])],
)
def test_repeated_rows_are_leakage_from_5_percent_on(repeats, excuse, severity):
    assert severities(data_findings.duplicate_findings(repeats, 100, 0, excuse, LIMITS)) == severity


def test_rows_repeated_in_the_test_split_alone_are_a_warning():
    assert severities(data_findings.duplicate_findings(0, 100, 3, None, LIMITS)) == ["warning"]


@pytest.mark.parametrize(("largest", "count"), [(100.0, 0), (101.0, 1)])
def test_large_inputs_are_an_info(largest, count):
    assert severities(data_findings.scale_finding(largest, LIMITS)) == ["info"] * count


def test_an_unknown_metric_names_the_nearest():
    with pytest.raises(InputError, match="no metric 'acuracy' of the task; did you mean 'accuracy'"):
        data_findings.refuse_unknown_metric("acuracy", CLASSIFICATION_METRICS)


def test_fewer_samples_than_a_batch_or_than_classes_are_refused(config):
    with pytest.raises(InputError, match="3 training samples are fewer than batch_size 4"):
        data_findings.refuse_too_few(config(), 3)
    with pytest.raises(InputError, match="3 training samples of 5 classes"):
        data_findings.refuse_too_few(config(), 3, 5)


@pytest.mark.parametrize(("name", "mode"), [("accuracy", "min"), ("roc_auc", "min"), ("loss", "max"), ("mae", "max")])
def test_a_direction_that_would_keep_the_worst_checkpoint_is_refused(name, mode):
    with pytest.raises(InputError, match=f"found {mode}"):
        data_findings.refuse_wrong_direction(Metric(name=name, mode=mode))


@pytest.mark.parametrize("criteria", [{"accuracy": ">= 85"}, {"train_f1_macro": ">= 1.5"}, {"calibration_error": "<= -1"}])
def test_a_criterion_beyond_what_a_share_can_be_is_refused(criteria):
    with pytest.raises(InputError, match="expected a share, from 0 to 1"):
        data_findings.refuse_criteria_out_of_range(criteria)


def test_a_criterion_in_percent_is_answered_with_the_share():
    with pytest.raises(InputError) as caught:
        data_findings.refuse_criteria_out_of_range({"accuracy": ">= 85"})
    assert (caught.value.where, caught.value.hint) == ("acceptance.accuracy", 'accuracy: ">= 0.85", if it was meant in percent')
    data_findings.refuse_criteria_out_of_range({"accuracy": ">= 0.85", "loss": "<= 3", "mine": ">= 85"})


def test_a_metric_of_ones_own_may_have_either_direction():
    for mode in ("min", "max"):
        data_findings.refuse_wrong_direction(Metric(name="mine", mode=mode))


@pytest.mark.parametrize(
    ("counts", "metric"), [([10, 100], "accuracy"), ([9, 100], "average_precision"), ([100, 9, 50], "f1_macro")]
)
def test_unequal_classes_ask_for_another_metric_than_accuracy(counts, metric):
    found, told = data_findings.suited_metric(["a", "b", "c"][: len(counts)], np.array(counts))
    assert found == metric
    assert [f"{metric} " in text and "class_weights=balanced" in text for text in told] == [True] * (metric != "accuracy")
