"""Features that predict the target by themselves: found beyond chance, and never in few rows."""

import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.leak_rules import telling_features, telling_score

LIMITS = DataLimits()
SEEDS = range(5)


def found(rows, target, classes):
    return list(telling_features(rows.astype(np.float64), target, classes, LIMITS))


def sorted_classes(feature, classes):
    """Return classes that follow the order of a feature."""
    return feature.argsort().argsort() * classes // len(feature)


@pytest.mark.parametrize(("rows", "features", "classes"), [(18, 4, 3), (8, 50, 2), (12, 300, 2), (60, 400, 3), (6, 200, 0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_of_random_data_no_feature_tells_the_target(rows, features, classes, seed):
    draw = np.random.default_rng(seed)
    target = np.arange(rows) % classes if classes else draw.normal(size=rows)
    assert found(draw.normal(size=(rows, features)), target, classes) == []
    assert found(draw.integers(0, 3, (rows, features)), target, classes) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_float_feature_whose_thresholds_part_the_classes_is_found(seed, classes):
    rows = np.random.default_rng(seed).normal(size=(120, 40))
    assert found(rows, sorted_classes(rows[:, 7], classes), classes) == [7]


@pytest.mark.parametrize("classes", [2, 3])
def test_eighteen_rows_that_a_feature_parts_show_nothing(classes):
    rows = np.random.default_rng(0).normal(size=(18, 4))
    assert found(rows, sorted_classes(rows[:, 0], classes), classes) == []


@pytest.mark.parametrize("shape", [lambda x: 7 - 3 * x, np.exp, lambda x: -(x**3)])
def test_a_quantity_along_a_feature_is_found_in_few_rows_too(shape):
    rows = np.random.default_rng(1).normal(size=(12, 5))
    assert found(rows, shape(rows[:, 3]), 0) == [3]


@pytest.mark.parametrize("rows", [20, 200, 2000])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_feature_that_is_truly_related_is_an_honest_one(rows, seed):
    draw = np.random.default_rng(seed)
    target = draw.normal(size=rows)
    features = np.stack([0.95 * target + np.sqrt(1 - 0.95**2) * draw.normal(size=rows), draw.normal(size=rows)], axis=1)
    assert found(features, target, 0) == []
    assert found(features, (target > 0).astype(int), 2) == []


def test_of_more_features_one_is_sooner_as_good_by_chance():
    feature = np.arange(7.0)
    assert telling_score(feature, 2 * feature, 0, LIMITS) == pytest.approx(1)
    assert telling_score(feature, 2 * feature, 0, LIMITS, features=100) == 0


def test_the_bound_on_chance_holds_where_every_order_is_counted():
    """Of 60 labels, 4 of them rare, 2 of the C(60, 4) orders are parted by one cut: more features than that find it by chance."""
    feature, labels = np.arange(60.0), (np.arange(60) >= 56).astype(int)
    assert telling_score(feature, labels, 2, LIMITS) == pytest.approx(1)
    orders = 60 * 59 * 58 * 57 / 24
    assert telling_score(feature, labels, 2, LIMITS, features=int(orders / 1000)) == 0


def test_classes_that_are_sorted_by_a_rare_one_alone_are_not_parted():
    labels = np.repeat([0, 1], [990, 10])
    rows = np.stack([np.random.default_rng(2).normal(size=1000), labels + 0.0], axis=1)
    assert found(rows, labels, 2) == [1]


def test_classes_that_lie_far_apart_in_most_features_are_no_leak():
    labels = np.arange(200) % 2
    clouds = 10.0 * labels[:, None] + np.random.default_rng(3).normal(size=(200, 2))
    assert found(clouds, labels, 2) == []
    assert found(np.concatenate([clouds[:, :1], clouds[:, 1:] % 1], axis=1), labels, 2) == [0]
    assert found(clouds[:, :1], labels, 2) == []  # a single feature is what is learned from


@pytest.mark.parametrize(("apart", "told"), [(4.0, 0), (12.0, 20)])
def test_a_rare_class_is_told_by_a_feature_that_parts_it_widely_and_by_no_honest_one(apart, told):
    draw = np.random.default_rng(0)
    labels = (np.arange(800) % 16 == 0).astype(int)  # 15 : 1
    features = [draw.normal(size=800) + apart * labels for _ in range(20)]
    assert sum(telling_score(feature, labels, 2, LIMITS) >= LIMITS.leak_score for feature in features) == told
