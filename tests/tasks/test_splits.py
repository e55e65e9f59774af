import numpy as np
import pytest

from mltrainer.configs.project import Split
from mltrainer.errors import InputError
from mltrainer.tasks.splits import SplitConstraints, fold_places, ids_digest, of_fold, split_ids

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


# --- folds ----------------------------------------------------------------------------------------

FIVE = Split(folds=5, test=0.1)


def folds(n, labels, split, bound=None, seed=1):
    places = fold_places(n, labels, split, seed, bound)
    return places, [of_fold(places, split.model_copy(update={"fold": fold})) for fold in range(split.folds)]


def test_each_sample_validates_once_and_the_test_split_is_no_fold():
    _, found = folds(103, None, FIVE)
    held_out = np.concatenate([ids["validation"] for ids in found])
    assert sorted([*held_out, *found[0]["test"]]) == list(range(103))
    assert all(np.array_equal(ids["test"], found[0]["test"]) for ids in found)
    assert all(sorted(joined(ids)) == list(range(103)) for ids in found)
    sizes = [len(ids["validation"]) for ids in found]
    assert max(sizes) - min(sizes) <= 1


def test_the_test_split_is_that_of_a_project_without_folds():
    labels = np.arange(100) % 3
    without = split_ids(100, labels, Split(validation=0.2, test=0.1), 4)["test"]
    assert np.array_equal(folds(100, labels, FIVE, seed=4)[1][0]["test"], without)


def test_folds_keep_each_classes_share():
    labels = np.array([0] * 70 + [1] * 20 + [2] * 10)
    places, _ = folds(100, labels, FIVE)
    for label, least in ((0, 12), (1, 3), (2, 1)):
        counts = np.bincount(places[(labels == label) & (places >= 0)], minlength=5)
        assert counts.min() >= least
        assert counts.max() - counts.min() <= 1


def test_a_group_validates_as_a_whole_and_folds_are_of_nearly_one_size():
    groups = np.repeat(np.arange(12), [30, 2, 2, 10, 10, 5, 5, 9, 1, 12, 8, 6])
    places, _ = folds(100, None, Split(folds=3, test=0.0, group="who"), SplitConstraints(units=groups))
    assert all(len(set(places[groups == group])) == 1 for group in range(12))
    assert np.bincount(places).max() - np.bincount(places).min() <= 3


def test_by_time_each_fold_is_trained_on_what_came_before_it_and_the_first_is_the_latest():
    times = np.random.default_rng(0).integers(0, 40, 200)
    _, found = folds(200, None, Split(folds=4, test=0.1, time="day"), SplitConstraints(times=times))
    for ids in found:
        assert times[ids["train"]].max() < times[ids["validation"]].min() <= times[ids["validation"]].max()
        assert times[ids["validation"]].max() <= times[ids["test"]].min()
    assert [len(ids["train"]) for ids in found] == sorted((len(ids["train"]) for ids in found), reverse=True)


@pytest.mark.parametrize(
    ("split", "bound", "told"),
    [
        (Split(folds=5), SplitConstraints(given=np.zeros(20, dtype=np.int64)), "comes with its own"),
        (Split(folds=5, group="who"), SplitConstraints(units=np.arange(20) % 4), "do not fill 5 folds"),
        (Split(folds=4, time="day"), SplitConstraints(times=np.arange(20) % 4), "do not fill 4 folds"),
        (Split(folds=30), None, "do not fill 30 folds"),
    ],
)
def test_folds_that_cannot_be_are_refused(split, bound, told):
    with pytest.raises(InputError, match=told):
        folds(20, None, split, bound)


@pytest.mark.parametrize("values", [{"folds": 1}, {"folds": 3, "fold": 3}, {"fold": 1}, {"folds": 3, "column": "part"}])
def test_folds_that_mean_nothing_are_no_config(values):
    with pytest.raises(ValueError, match="fold"):
        Split(**values)


# --- a row with thousands of copies ---

CAPPED = Split(validation=0.2, test=0.1, repeats="together", largest_repeat=0.02)


def with_copies(copies: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Return units and labels of rows that differ, and of one of them that occurs many times, in a rare class."""
    units = np.concatenate([np.zeros(copies, dtype=np.int64), np.arange(1, others + 1)])
    return units, np.concatenate([np.zeros(copies, dtype=np.int64), np.arange(others) % 2])


def test_a_row_with_thousands_of_copies_is_trained_on_and_the_shares_hold():
    """3,329 of 11,183 rows were one row, all in validation: 52 others were there, and 63/30/7 in place of 70/20/10."""
    units, labels = with_copies(3329, 7854)
    ids = split_ids(len(units), labels, CAPPED, 42, SplitConstraints(units=units, largest=0.02))
    assert {name: round(len(part) / len(units), 2) for name, part in ids.items()} == {
        "train": 0.7,
        "validation": 0.2,
        "test": 0.1,
    }
    assert set(np.flatnonzero(units == 0)) <= set(ids["train"])
    shares = [np.bincount(labels[ids[name]]) / len(ids[name]) for name in ("train", "validation", "test")]
    assert np.allclose(shares, shares[0], atol=0.01)


def test_without_the_key_a_split_is_what_it_was():
    units, labels = with_copies(300, 700)
    plain = CAPPED.model_copy(update={"largest_repeat": None})
    before = split_ids(len(units), labels, plain, 3, SplitConstraints(units=units))
    assert (
        ids_digest(before["validation"]) == "67760bef5acacda824c3fc5b2ded940869c4d804b754260ad62796ae322c9d3e"
    )  # of version 0.2
    few = split_ids(700, labels[300:], CAPPED, 3, SplitConstraints(units=units[300:], largest=0.02))
    assert all(np.array_equal(few[name], part) for name, part in split_ids(700, labels[300:], plain, 3).items())


@pytest.mark.parametrize(("copies", "is_trained_on"), [(20, False), (21, True)])
def test_few_copies_fall_where_they_are_drawn(copies, is_trained_on):
    units, _ = with_copies(copies, 400 - copies)
    seeds = range(12)
    parts = [split_ids(400, None, CAPPED, seed, SplitConstraints(units=units, largest=0.01))["train"] for seed in seeds]
    assert all(0 in part for part in parts) == is_trained_on


def test_more_copies_than_are_to_be_trained_on_leave_the_rest_to_the_others():
    units, _ = with_copies(900, 100)
    ids = split_ids(1000, None, CAPPED, 1, SplitConstraints(units=units, largest=0.02))
    assert (len(ids["train"]), len(ids["validation"]), len(ids["test"])) == (900, 67, 33)


def test_of_several_giants_those_are_trained_on_that_fit():
    units = np.concatenate([np.full(400, 0), np.full(350, 1), np.full(250, 2), np.arange(3, 103)])
    ids = split_ids(len(units), None, CAPPED, 1, SplitConstraints(units=units, largest=0.02))
    assert {0} <= set(units[ids["train"]].tolist())
    assert all(len(part) for part in ids.values())


def test_in_folds_a_row_with_thousands_of_copies_is_always_trained_on():
    units, _ = with_copies(300, 700)
    split = CAPPED.model_copy(update={"folds": 5})
    places = fold_places(1000, None, split, 1, SplitConstraints(units=units, largest=0.02))
    assert set(places[units == 0].tolist()) == {5}
    for fold in range(5):
        trained = of_fold(places, split.model_copy(update={"fold": fold}))["train"]
        assert set(np.flatnonzero(units == 0)) <= set(trained)
    assert np.bincount(places[(places >= 0) & (units != 0)], minlength=6)[:5].tolist() == [120] * 5


def test_rows_of_one_moment_are_not_parted_by_a_split_in_time():
    times = np.array([3, 0, 1, 0, 1, 0, 1, 0, 0, 0, 2, 2, 2, 2, 3, 3])
    found = split_ids(len(times), None, Split(validation=0.25, test=0.125, time="t"), 1, SplitConstraints(times=times))
    moments = [set(times[ids].tolist()) for ids in found.values()]
    assert moments == [{0, 1}, {2}, {3}]
