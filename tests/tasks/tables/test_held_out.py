"""How well one value a row gives the target of rows that the rule was not fitted on."""

import numpy as np
import pytest

from mltrainer.tasks.tables.held_out import LEAST_ROWS, HeldOutRows

RANDOM = np.random.default_rng(5)
TARGET = RANDOM.normal(size=400)
LABELS = np.arange(300) % 3


def score(values, target, classes=0):
    return HeldOutRows(np.asarray(target), classes).score(np.asarray(values))


@pytest.mark.parametrize("copy", [-3 * TARGET + 7, np.exp(3 * TARGET), TARGET.argsort().argsort() + 0.0, TARGET.round(1)])
def test_a_copy_in_any_form_gives_a_quantity(copy):
    assert score(copy, TARGET) > 0.99


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_a_feature_with_noise_has_the_r2_that_the_noise_leaves(share):
    target = RANDOM.normal(size=4000)
    noise = RANDOM.normal(size=4000) * np.sqrt((1 - share) / share)
    assert score(target, target + noise) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("codes", [np.array([5.0, 1.0, 3.0])[LABELS], np.array([7, 2, 4])[LABELS]])
def test_a_code_gives_the_class(codes):
    assert score(codes, LABELS, 3) == 1


def test_the_balanced_accuracy_is_that_of_the_mistakes():
    labels = np.arange(2000) % 2
    wrong = np.arange(2000) % 40 == 1  # 5 % of one class
    assert score(np.where(wrong, 1 - labels, labels), labels, 2) == pytest.approx(0.975)


def test_an_order_by_which_classes_are_sorted_gives_them():
    assert score(np.arange(120) * 7.0, np.repeat([2, 0, 1], 40), 3) > 0.97


def test_ids_of_each_rows_own_give_nothing():
    assert score(RANDOM.permutation(400) + 0.0, TARGET) < 0.2
    assert score(RANDOM.permutation(400), TARGET) == 0
    assert score(RANDOM.permutation(300), LABELS, 3) == 0


def test_a_group_gives_what_its_rows_share():
    group = np.arange(400) % 50
    assert score(group, RANDOM.normal(size=50)[group]) > 0.99
    assert score(group, TARGET) < 0.3


def test_a_feature_that_is_mostly_missing_gives_nothing():
    assert score(np.where(np.arange(400) < 100, TARGET, np.nan), TARGET) < 0.5


def test_gaps_give_a_class():
    labels = np.arange(300) % 2
    assert score(np.where(labels == 1, RANDOM.normal(size=300), np.nan), labels, 2) == 1


def test_of_a_rare_class_no_feature_gives_most_rows():
    labels = (np.arange(3000) % 100 == 0).astype(int)
    assert score(RANDOM.normal(size=3000), labels, 2) < 0.6


def test_one_far_row_makes_no_feature_a_copy():
    values, target = RANDOM.normal(size=(2, 400))
    values[7] = target[7] = values[8] = target[8] = 1e6
    assert score(values, target) < 0.1


def test_a_feature_that_tells_zero_from_the_rest_does_not_give_the_amounts():
    has = RANDOM.random(2000) < 0.2
    assert score(has.astype(int), np.where(has, RANDOM.gamma(2, 500, 2000), 0)) < 0.9


def test_few_rows_show_nothing():
    assert score(TARGET[: LEAST_ROWS - 1], TARGET[: LEAST_ROWS - 1]) == 0
    assert score(LABELS[:45] + 0.0, LABELS[:45], 3) == 0
