import numpy as np
import pytest

from mltrainer.configs.project import Split
from mltrainer.errors import InputError
from mltrainer.tasks.splits import ids_digest, split_ids

SHARES = Split(validation=0.2, test=0.1)


def joined(ids):
    return np.concatenate(list(ids.values()))


@pytest.mark.parametrize("n", [3, 10, 101])
def test_splits_are_disjoint_and_together_all(n):
    assert sorted(joined(split_ids(n, None, SHARES, 1))) == list(range(n))


def test_the_same_seed_gives_the_same_splits_and_another_seed_others():
    first, again, other = (split_ids(100, None, SHARES, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert ids_digest(first["test"]) != ids_digest(other["test"])


def test_draws_do_not_depend_on_numpys_global_generator():
    first = split_ids(50, None, SHARES, 1)
    np.random.random(7)
    assert np.array_equal(first["train"], split_ids(50, None, SHARES, 1)["train"])


def test_shares_follow_the_largest_remainder():
    assert {name: len(ids) for name, ids in split_ids(100, None, SHARES, 0).items()} == {
        "train": 70,
        "validation": 20,
        "test": 10,
    }


def test_stratified_splits_keep_each_classes_share():
    labels = np.array([0] * 100 + [1] * 10)
    ids = split_ids(110, labels, SHARES, 3)
    assert np.bincount(labels[ids["validation"]]).tolist() == [20, 2]
    assert np.bincount(labels[ids["test"]]).tolist() == [10, 1]


@pytest.mark.parametrize(("members", "expected"), [(2, [1, 1, 0]), (3, [1, 1, 1]), (1, [1, 0, 0])])
def test_a_rare_class_is_trained_on_first_then_validated_on(members, expected):
    labels = np.array([0] * 50 + [1] * members)
    ids = split_ids(len(labels), labels, SHARES, 5)
    assert [int((labels[ids[name]] == 1).sum()) for name in ("train", "validation", "test")] == expected


def test_adding_a_class_leaves_the_others_where_they_were():
    labels = np.array([0] * 20 + [1] * 20)
    before = split_ids(20, labels[:20], SHARES, 5)
    after = split_ids(40, labels, SHARES, 5)
    assert set(before["test"]) <= set(after["test"])


def test_stratify_off_ignores_the_labels():
    plain = Split(validation=0.2, test=0.1, stratify=False)
    with_labels = split_ids(40, np.arange(40) % 2, plain, 5)
    assert np.array_equal(with_labels["test"], split_ids(40, None, plain, 5)["test"])


def test_ids_are_sorted_int64():
    ids = split_ids(40, np.arange(40) % 2, SHARES, 5)["train"]
    assert ids.dtype == np.int64
    assert (np.diff(ids) > 0).all()


def test_no_test_share_gives_an_empty_test_split():
    assert len(split_ids(10, None, Split(validation=0.2, test=0), 1)["test"]) == 0


def test_fewer_samples_than_splits_are_refused():
    with pytest.raises(InputError, match="2 samples; at least 3"):
        split_ids(2, None, SHARES, 1)


def test_fewer_samples_than_twice_the_classes_are_refused():
    with pytest.raises(InputError, match="5 samples of 4 classes"):
        split_ids(5, np.array([0, 1, 2, 3, 3]), SHARES, 1)
