"""What a task's own samples show: each fault made on purpose, in memory, in a data set and in a stream, beside healthy twins."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from mltrainer.configs.items import DataLimits
from mltrainer.records.run import UNDECLARED
from mltrainer.tasks import checks, reading, value_checks
from mltrainer.tasks.checks import CHECKS, findings_of
from mltrainer.tasks.reading import DataView, planning_budget, read_split
from mltrainer.tasks.samples import Samples, sample_bytes

LIMITS = DataLimits()
SEEDS = range(4)


class Given(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]


class Streamed(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)


def in_memory(*parts):
    return read_split(
        Samples(np.arange(len(parts[0])), tensors=tuple(map(torch.as_tensor, parts))), "labels", 1, planning_budget()
    )


def in_a_data_set(*parts):
    rows = list(zip(*map(torch.as_tensor, parts), strict=True))
    return read_split(Samples(np.arange(len(rows)), dataset=Given(rows)), "labels", 1, planning_budget())


def in_a_stream(*parts):
    from mltrainer.tasks.samples import Stream

    rows = list(zip(*map(torch.as_tensor, parts), strict=True))
    return read_split(Samples(np.arange(len(rows)), dataset=Stream(Streamed(rows), len(rows))), "labels", 1, planning_budget())


WAYS = [in_memory, in_a_data_set, in_a_stream]


def found(train, validation=None, kind=None):
    """Return what is found where a task declares the kind of its targets: where a test names none, whole numbers are classes."""
    target = train.target
    kind = kind or ("classes" if target is not None and target.is_whole and target.size == 1 else "values")
    readings = (replace(one, kind=kind) for one in (train, validation or train))
    return [one.what for one in findings_of(CHECKS, DataView(*readings, LIMITS))]


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


# --- what says nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", [np.full(60, 3), np.zeros(60), np.ones((60, 1)), np.zeros((60, 4))])
def test_equal_targets_are_told(way, target):
    (told,) = found(way(np.random.default_rng(0).normal(size=(60, 5)), target), way(np.eye(20), np.arange(20) % 2))
    assert told.startswith("the targets of all 60 training samples are ")
    assert "look at how they are read" in told


def test_equal_targets_of_all_training_samples_are_an_error_once_all_were_read(way):
    rows = np.random.default_rng(0).normal(size=(60, 5))
    both = findings_of(CHECKS, DataView(way(rows, np.zeros(60)), way(rows[:20], np.zeros(20)), LIMITS))
    assert [one.severity for one in both] == ["error"]


def test_equal_targets_of_a_part_of_the_training_samples_are_a_warning(monkeypatch):
    monkeypatch.setattr("mltrainer.tasks.reading.MAX_LOOKED", 20)
    monkeypatch.setattr("mltrainer.tasks.reading.MAX_COMPARED", 50)
    rows = np.random.default_rng(0).normal(size=(60, 1))
    said = findings_of(CHECKS, DataView(in_a_data_set(rows, np.zeros(60)), in_a_data_set(rows[:20], np.arange(20) % 2), LIMITS))
    assert [one.severity for one in said] == ["warning"]


@pytest.mark.slow
@pytest.mark.parametrize("rare", [1, 2_500])
def test_one_other_target_among_thousands_is_no_error(way, rare):
    target = np.zeros(3_000)
    target[rare] = 1
    read = way(np.random.default_rng(0).normal(size=(3_000, 1)), target)
    assert "error" not in [one.severity for one in findings_of(CHECKS, DataView(read, read, LIMITS))]


def test_features_that_never_change_are_named(way):
    rows = np.random.default_rng(0).normal(size=(60, 7)).astype(np.float32)
    rows[:, [2, 5]] = 3
    assert found(way(rows, np.arange(60) % 2)) == [
        "inputs[2], inputs[5] never change in 60 training samples: nothing is learned from that"
    ]


@pytest.mark.parametrize("rows", [np.zeros((60, 2, 4), dtype=np.float32), np.zeros((60, 8), dtype=np.int64)])
def test_the_corner_of_an_image_and_the_first_token_of_a_text_may_never_change(way, rows):
    rows[..., 3] = np.random.default_rng(0).integers(0, 9, rows.shape[:-1])
    assert not [text for text in found(way(rows, np.arange(60) % 2)) if "never change" in text]


def test_equal_targets_of_the_validation_samples_are_told(way):
    rows = np.random.default_rng(0).normal(size=(60, 5))
    (told,) = found(way(rows, np.arange(60) % 3), way(rows[:20], np.zeros(20, dtype=int)))
    assert told.startswith("the targets of all 20 validation samples are 0: a metric that uses them says nothing")


def test_equal_inputs_are_told(way):
    told = found(
        way(np.full((40, 3, 4), 0.5), np.arange(40) % 2), way(np.random.default_rng(0).normal(size=(20, 3, 4)), np.arange(20) % 2)
    )
    assert [text.split(":")[0] for text in told] == ["inputs are the same in all 40 training samples"]


@pytest.mark.parametrize("rows", [6, 30, 500])
@pytest.mark.parametrize("target", ["classes", "quantity", "many", "sequence"])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_said_of_random_samples(rows, target, seed):
    draw = np.random.default_rng(seed)
    made = {
        "classes": lambda n: draw.integers(0, 3, n),
        "quantity": lambda n: draw.normal(size=n),
        "many": lambda n: draw.normal(size=(n, 3)),
        "sequence": lambda n: draw.integers(0, 50, (n, 12)),
    }[target]
    train, held_out = (in_memory(draw.normal(size=(n, 12)), made(n)) for n in (rows, max(6, rows // 4)))
    if target == "classes" and rows == 6:
        return  # of six samples of three classes one may be missing
    assert found(train, held_out) == []


# --- features that are the target -----------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_float_feature_that_parts_the_classes_is_named(way, seed):
    rows = np.random.default_rng(seed).normal(size=(150, 2, 8))
    told = found(way(rows, (rows[:, 1, 3] > 0.2).astype(int)))
    assert len(told) == 1
    assert told[0].startswith("inputs[1][3] of a training sample predicts the target almost by itself (100.00%)")


@pytest.mark.parametrize("shape", [lambda x: 2.54 * x + 1, np.exp])
def test_a_feature_along_a_quantity_is_named(way, shape):
    rows = np.random.default_rng(1).normal(size=(40, 6))
    (told,) = found(way(rows, shape(rows[:, [4]])))
    assert told.startswith("inputs[4] of a training sample predicts the target")


def test_a_feature_that_is_the_target_is_told_to_be_it(way):
    rows = np.random.default_rng(1).normal(size=(80, 6))
    assert found(way(rows, rows[:, 2])) == [
        "inputs[2] of each training sample is the target (a leak): leave it out of the inputs"
    ]


def test_of_several_targets_the_one_that_is_told_is_named(way):
    rows = np.random.default_rng(1).normal(size=(80, 6))
    (told,) = found(way(rows, np.stack([rows[:, 0] + rows[:, 1], 3 * rows[:, 5]], axis=1)))
    assert told.startswith("inputs[5] of a training sample predicts number 1 of the target almost by itself")


def test_a_one_hot_target_and_a_float_of_two_classes_are_classes(way):
    labels = np.arange(120) % 3
    rows = np.random.default_rng(1).normal(size=(120, 6))
    rows[:, 3] = labels * 7.0 + 0.1 * rows[:, 3]
    assert found(way(rows, np.eye(3)[labels]), kind="classes")[0].startswith("inputs[3] of a training sample predicts the target")
    two = (labels > 0).astype(np.float32)
    assert found(way(rows, two), kind="classes")[0].startswith("inputs[3] of a training sample predicts the target")


def test_several_inputs_of_a_sample_are_named_by_their_place():
    rows = np.random.default_rng(1).normal(size=(80, 3))
    (told,) = found(in_a_data_set(rows, rows.sum(axis=1) * 2, rows.sum(axis=1)))
    assert told.startswith("inputs[1] of a training sample predicts")


def test_the_inputs_again_as_targets_and_a_single_feature_are_no_leaks(way):
    rows = np.random.default_rng(1).normal(size=(80, 6))
    assert found(way(rows, rows)) == []  # an autoencoder
    assert found(way(rows[:, :1], 3 * rows[:, 0])) == []  # a line is what is learned


@pytest.mark.parametrize("seed", SEEDS)
def test_an_honest_feature_is_none(way, seed):
    draw = np.random.default_rng(seed)
    target = draw.normal(size=200)
    rows = np.stack([0.95 * target + np.sqrt(1 - 0.95**2) * draw.normal(size=200), draw.normal(size=200)], axis=1)
    assert found(way(rows, target)) == []
    assert found(way(rows, (target > 0).astype(int))) == []


# --- labels that contradict one another ------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_inputs_of_two_classes_are_told(way, seed):
    draw = np.random.default_rng(seed)
    rows, labels = draw.normal(size=(200, 6)), draw.integers(0, 3, 200)
    rows[100:120] = rows[:20]
    labels[100:120] = (labels[:20] + 1) % 3
    (told,) = found(way(rows, labels))
    assert told.startswith("40 of 200 training samples have the inputs of another and another class: which is right?")
    labels[100:120] = labels[:20]
    assert found(way(rows, labels)) == []  # copies that agree


@pytest.mark.parametrize("seed", SEEDS)
def test_inputs_of_few_values_differ_in_their_class_by_nature(way, seed):
    draw = np.random.default_rng(seed)
    for values, columns in ((2, 6), (3, 5), (5, 4), (20, 2)):
        rows = draw.integers(0, values, (300, columns)) * 1.0
        assert found(way(rows, draw.integers(0, 2, 300))) == []


# --- two splits beside each other -----------------------------------------------------------------


@pytest.mark.parametrize("scaled", [lambda x: 2.54 * x, lambda x: x / 1000, lambda x: x + 273.15, lambda x: (x - 170) / 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_feature_in_other_units_is_named(way, scaled, seed):
    draw = np.random.default_rng(seed)
    train, held_out = (np.stack([draw.normal(size=n), draw.normal(170, 10, n)], axis=1) for n in (200, 50))
    held_out[:, 1] = scaled(held_out[:, 1])
    (told,) = found(way(train, np.arange(200) % 3), way(held_out, np.arange(50) % 3))
    assert told.startswith("validation has another scale than training: inputs[1]: median 1")


def test_a_wider_spread_of_numbers_of_the_same_size_is_no_other_unit(way):
    draw = np.random.default_rng(0)
    train, held_out = (
        np.stack([draw.normal(size=n), draw.normal(at, spread, n)], axis=1) for n, at, spread in ((200, 10, 0.1), (50, 10.5, 0.9))
    )
    assert not any("another scale" in line for line in found(way(train, np.arange(200) % 3), way(held_out, np.arange(50) % 3)))


def test_images_that_are_scaled_in_training_alone_are_told_once(way):
    draw = np.random.default_rng(0)
    train, held_out = (draw.integers(0, 256, (n, 1, 8, 8)) * (draw.random((n, 1, 8, 8)) < 0.3) for n in (100, 30))
    (told,) = found(way(train / 255, np.arange(100) % 3), way(held_out * 1.0, np.arange(30) % 3))
    assert told.startswith("validation has another scale than training: inputs: median ")
    assert "; and" not in told


def test_a_target_in_other_units_is_told(way):
    """A loss of .008 beside one of 59: validation was in grams, training in kilograms."""
    draw = np.random.default_rng(0)
    train, held_out = draw.normal(size=(200, 4)), draw.normal(size=(50, 4))
    target = train.sum(axis=1) + draw.normal(size=200)
    (told,) = found(way(train, target), way(held_out, 1000 * (held_out.sum(axis=1) + draw.normal(size=50))))
    assert "the target: median" in told


@pytest.mark.parametrize("sizes", [(20, 8), (60, 15), (1000, 300)])
@pytest.mark.parametrize("seed", range(8))
def test_splits_of_one_distribution_are_in_one_unit(sizes, seed):
    draw = np.random.default_rng(seed)
    kinds = [
        lambda n: draw.normal(size=n),
        lambda n: np.exp(2 * draw.normal(size=n)),
        lambda n: draw.standard_cauchy(n),
        lambda n: draw.poisson(0.3, n) + 0.0,
        lambda n: np.where(draw.random(n) < 0.5, draw.normal(size=n), 1000 + draw.normal(size=n)),
    ]
    train, held_out = (np.stack([kind(n) for kind in kinds for _ in range(4)], axis=1) for n in sizes)
    assert found(in_memory(train, draw.normal(size=sizes[0])), in_memory(held_out, draw.normal(size=sizes[1]))) == []


def test_what_goes_on_in_time_is_in_one_unit():
    draw = np.random.default_rng(0)
    days = np.arange(1000.0)
    rows = np.stack([days, 15 + 10 * np.sin(days / 58) + 3 * draw.normal(size=1000), np.exp(days / 400)], axis=1)
    assert found(in_memory(rows[:800], draw.normal(size=800)), in_memory(rows[800:], draw.normal(size=200))) == []


def test_a_narrower_split_around_the_same_value_is_in_one_unit():
    draw = np.random.default_rng(0)
    train, held_out = (
        np.stack([draw.normal(100, width, n), draw.normal(size=n)], axis=1) for n, width in ((400, 10), (100, 0.8))
    )
    (told,) = found(in_memory(train, draw.normal(size=400)), in_memory(held_out, draw.normal(size=100)))
    assert "distribution shift" in told, "and no other unit"


def of_groups(draw, size, noise, samples=1000, features=20):
    """Return samples of which so many that follow one another are of one person, in any order."""
    rows = np.repeat(draw.normal(size=(samples // size, features)), size, axis=0)
    return draw.permutation(rows + noise * draw.normal(size=rows.shape))


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_samples_of_one_person_on_both_sides_are_told(way, size, seed):
    draw = np.random.default_rng(seed)
    rows = of_groups(draw, size, noise=0.2)
    train, held_out = (way(part, draw.normal(size=len(part))) for part in np.split(rows, [800]))
    (told,) = found(train, held_out)
    assert "validation samples lie far nearer to one training sample than others do to one another" in told
    assert "dataset(self, split)" in told


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_of_one_person_on_one_side_are_no_finding(seed):
    draw = np.random.default_rng(seed)
    sides = [of_groups(draw, 5, 0.2, samples) for samples in (800, 200)]
    assert found(*(in_memory(part, draw.normal(size=len(part))) for part in sides)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_heaps_hills_grids_and_few_values_are_no_groups(seed):
    draw = np.random.default_rng(seed)
    low = draw.normal(size=(1000, 3)) @ draw.normal(size=(3, 30))
    heaps = draw.normal(size=(10, 20))[np.arange(1000) % 10] + 0.1 * draw.normal(size=(1000, 20))
    zeros = np.where(draw.random((1000, 20)) < 0.8, 0, draw.normal(size=(1000, 20)))
    steps = np.concatenate([draw.integers(0, 2, (1000, 10)), draw.normal(size=(1000, 2))], axis=1)
    moons = np.stack([np.sin(turn := draw.random(1000) * 6), np.cos(turn)], axis=1) + 0.05 * draw.normal(size=(1000, 2))
    tails = np.exp(2 * draw.normal(size=(1000, 10)))
    for rows in (low + 0.1 * draw.normal(size=low.shape), heaps, zeros, steps, moons, tails, draw.normal(size=(60, 8))):
        train, held_out = np.split(draw.permutation(rows), [4 * len(rows) // 5])
        assert found(in_memory(train, draw.normal(size=len(train))), in_memory(held_out, draw.normal(size=len(held_out)))) == []


def test_a_few_samples_of_each_of_many_classes_are_no_groups():
    draw = np.random.default_rng(0)
    rows = np.repeat(draw.normal(size=(30, 20)), 10, axis=0) + 0.1 * draw.normal(size=(300, 20))
    labels, order = np.arange(300) // 10, draw.permutation(300)
    train, held_out = order[:240], order[240:]
    assert found(in_memory(rows[train], labels[train]), in_memory(rows[held_out], labels[held_out])) == []


# --- what was read --------------------------------------------------------------------------------


def not_looked_at(read, kind="classes"):
    return checks.not_looked_at(replace(read, kind=kind), replace(read, kind=kind))


def test_targets_of_an_unknown_kind_are_not_judged(way):
    read = way(np.random.default_rng(1).normal(size=(80, 6)), np.arange(80) % 2)
    (line,) = not_looked_at(read, None)
    assert line.startswith("classes that are rare or missing, contradicting labels, a number that predicts the target")
    assert line.endswith(f"near copies, numbers made of later targets: {UNDECLARED}")
    leak = way(np.stack([np.arange(80) % 2, np.arange(80) * 1.0], axis=1), np.arange(80) % 2)
    assert findings_of(CHECKS, DataView(leak, leak, LIMITS)) == []


def test_what_was_not_looked_at_is_named(monkeypatch):
    monkeypatch.setattr(reading, "MAX_LOOKED", 10)
    monkeypatch.setattr(reading, "MAX_FEATURES", 4)
    read = in_a_data_set(np.random.default_rng(0).normal(size=(30, 9)), np.arange(30) % 2)
    samples, numbers = not_looked_at(read)
    assert samples.endswith("near copies: beyond 10 of 30 training samples and 10 of 30 validation samples")
    assert numbers == "features that predict the target: beyond 4 of 9 numbers of inputs"


def test_samples_that_are_no_numbers_are_named():
    rows = [({"text": "a" * n, "numbers": torch.ones(2)}, n % 2) for n in range(20)]
    read = read_split(
        Samples(np.arange(20), dataset=Given([(torch.ones(n % 5 + 1), n % 2) for n in range(20)])), "labels", 1, planning_budget()
    )
    assert not_looked_at(read) == ["inputs of the samples: no numbers of one shape"]
    named = read_split(
        Samples(np.arange(20), dataset=Given([{**inputs, "labels": y} for inputs, y in rows])), "labels", 1, planning_budget()
    )
    assert not_looked_at(named) == ["'text' of the samples: no numbers of one shape"]
    assert list(named.inputs) == ["'numbers'"]


def test_the_numbers_of_a_sealed_split_are_not_looked_at():
    rows = Samples(np.arange(20), dataset=Given([(torch.ones(2), 1)] * 20))
    read = read_split(rows, "labels", 1, planning_budget(is_sealed=True))
    assert (len(read.hashes), len(read.places), read.target) == (20, 0, None)


def test_where_not_all_samples_are_read_they_are_from_everywhere(monkeypatch):
    """Sorted by class, the first samples alone would show one class."""
    rows = np.random.default_rng(0).normal(size=(400, 3))
    monkeypatch.setattr(reading, "MAX_BYTES", 50 * sample_bytes((torch.from_numpy(rows[0]), torch.tensor(0))))
    read = in_a_data_set(rows, np.arange(400) // 100)
    assert 40 < len(read.places) < 60
    assert set(read.target.values[:, 0]) == {0, 1, 2, 3}
    assert found(read) == []


def test_nan_in_a_data_set_is_told_with_the_sample():
    rows = np.random.default_rng(0).normal(size=(30, 4))
    rows[7, 2] = np.nan
    (told,) = value_checks.nonfinite(in_a_data_set(rows, np.arange(30) % 2), "train")
    assert told.what == "1 of 30 train samples hold NaN or infinity in inputs; the first is sample 7"


# --- samples that each reading draws anew -------------------------------------------------------------


class Drawn(Given):
    """Rows whose inputs, or targets too, are moved by a draw at each reading."""

    def __init__(self, rows, targets=False):
        super().__init__(rows)
        self.targets = targets

    def __getitem__(self, place):
        row, target = self.rows[place]
        return row + 0.1 * torch.randn_like(row), target + torch.randn(()) if self.targets else target


def read_anew(kind, target, **more):
    rows = list(zip(torch.randn(40, 6), target, strict=True))
    return read_split(Samples(np.arange(40), dataset=kind(rows, **more)), "labels", 1, planning_budget())


LABELS = torch.arange(40) % 2


def test_validation_samples_that_are_augmented_are_told():
    still, moved = read_anew(Given, LABELS), read_anew(Drawn, LABELS)
    assert "change with each reading, and the training samples do not" in found(still, moved)[0]
    assert "as the training samples do" in found(moved, moved)[0]
    assert found(moved, still) == []


def test_what_is_drawn_with_its_target_is_the_task():
    masked, denoised = read_anew(Drawn, LABELS.float(), targets=True), read_anew(Drawn, torch.randn(40, 20))
    assert found(masked, masked) == found(denoised, denoised) == []


# --- features that predict the target together -----------------------------------------------------------


def test_a_mark_for_each_class_is_told(way):
    labels = torch.arange(600) % 5
    images = torch.rand(600, 6, 6)
    assert found(way(images, labels)) == []
    images[:, 0, :5] = torch.nn.functional.one_hot(labels, 5).float()
    (told,) = found(way(images, labels))
    assert "inputs[0][0], inputs[0][1], inputs[0][2] and 2 more of a training sample each predict a class" in told


def test_a_sum_of_few_features_is_told_and_one_with_noise_is_none(way):
    rows = torch.randn(400, 12)
    total = rows[:, 3] - 2 * rows[:, 7]
    (told,) = found(way(rows, total))
    assert "inputs[7], inputs[3] of a training sample, each times a number, is the target" in told
    assert found(way(rows, total + 0.1 * torch.randn(400))) == []
    assert found(way(rows[:, :8], total)) == []  # two of eight may be what the target is made of
    assert found(way(rows, rows.sum(1))) == []


# --- features that were made of the target -----------------------------------------------------------


def grouped(seed, rows=600, groups=90):
    """Return inputs without the groups' code, a target, and the group of each row."""
    drawn = np.random.default_rng(seed)
    codes = drawn.integers(0, groups, rows)
    x = drawn.normal(size=(rows, 4))
    return x, x[:, 0] + drawn.normal(size=groups)[codes] + drawn.normal(size=rows), codes


def mean_of(target, codes, shrunk=0.0):
    sums, counts = np.bincount(codes, target), np.bincount(codes)
    return ((sums + shrunk * target.mean()) / (counts + shrunk))[codes]


@pytest.mark.parametrize("shrunk", [0.0, 10.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_s_mean_of_the_target_is_told_and_one_of_other_samples_is_none(way, seed, shrunk):
    x, y, codes = grouped(seed)
    leaky, honest = mean_of(y, codes, shrunk), mean_of(y + np.random.default_rng(seed + 9).normal(size=len(y)) - x[:, 0], codes)
    (told,) = found(*halves(way, np.c_[x, 2 * leaky + 1], y))
    assert told.startswith("inputs[4] of a sample is the mean of the target over the samples that share it")
    assert found(*halves(way, np.c_[x, mean_of(np.random.default_rng(seed + 5).permutation(y), codes)], y)) == []
    assert np.corrcoef(honest, leaky)[0, 1] > 0.5
    labels = (y > 1).astype(np.int64)
    assert "inputs[4] of a sample is the mean" in found(*halves(way, np.c_[x, mean_of(labels.astype(float), codes)], labels))[0]


def halves(way, x, y, share=0.7):
    cut = int(share * len(x))
    return way(x[:cut], y[:cut]), way(x[cut:], y[cut:])


def test_pairs_of_both_classes_are_no_mean_of_them(way):
    drawn = np.random.default_rng(0)
    labels = np.tile([0, 1], 200)
    assert (
        found(*halves(way, np.c_[drawn.normal(size=(400, 3)) + labels[:, None], np.repeat(drawn.random(200), 2)], labels)) == []
    )


def test_what_follows_from_the_target_is_told_and_what_it_follows_from_with_others_is_none(way):
    drawn = np.random.default_rng(0)
    x = drawn.normal(size=(300, 8))
    y = x[:, 0] + drawn.normal(size=300)
    (told,) = found(*halves(way, np.c_[x, np.abs(y)], y))
    assert told.startswith("inputs[8] of a training sample follows from the target")
    assert found(*halves(way, np.c_[x, np.abs(x[:, 0])], y)) == []


# --- windows, and numbers of samples -------------------------------------------------------------------


def windows_of(series, length=16, stride=1):
    starts = np.arange(0, len(series) - length, stride)
    return np.stack([series[start : start + length] for start in starts]), series[starts + length]


@pytest.mark.parametrize("kind", ["numbers", "tokens", "pairs of numbers"])
def test_windows_of_one_series_on_both_sides_are_told_and_those_of_a_split_by_time_are_none(way, kind):
    drawn = np.random.default_rng(0)
    series = drawn.integers(0, 30, 500) if kind == "tokens" else drawn.normal(size=500).cumsum()
    x, y = windows_of(series, stride=2)
    x = (
        np.stack([x, drawn.normal(size=500)[windows_of(np.arange(500), stride=2)[0]]], axis=2)
        if kind == "pairs of numbers"
        else x
    )
    y = y % 2 if kind == "tokens" else y
    order = drawn.permutation(len(x))
    told = found(*halves(way, x[order], y[order]))
    assert any("validation samples are in the training split too, shifted: windows that overlap" in one for one in told)
    assert not any("shifted" in one for one in found(*halves(way, x, y)))


def test_padding_and_a_common_end_are_no_overlap(way):
    drawn = np.random.default_rng(0)
    x, ending = drawn.integers(1, 50, (300, 24)), drawn.integers(1, 50, 10)
    for row in x:
        cut = drawn.integers(5, 14)
        row[cut : cut + 10], row[cut + 10 :] = ending, 0
    assert not any("shifted" in one for one in found(*halves(way, x, drawn.integers(0, 2, 300))))


def test_copies_that_have_numbers_of_their_own_are_told(way):
    drawn = np.random.default_rng(0)
    x, y = drawn.normal(size=(300, 4)), drawn.normal(size=300)
    again = drawn.integers(0, 300, 150)
    order = drawn.permutation(450)
    copied, target = np.r_[x, x[again]][order], np.r_[y, y[again]][order]
    told = found(*halves(way, np.c_[np.arange(450), copied], target))
    assert any(one.startswith("but for inputs[0], ") and "are in the training split too" in one for one in told)
    assert found(*halves(way, np.c_[np.arange(300), x], y)) == []


def pictures():
    """Return pictures with a bright middle before a dark background, with classes."""
    draw = np.random.default_rng(0)
    rows = draw.uniform(0, 0.1, (120, 8, 8))
    rows[:, 2:6, 2:6] += draw.uniform(0, 0.9, (120, 4, 4))
    return rows.astype(np.float32), np.arange(120) % 2


OTHER_PICTURES = {
    "their middle alone, enlarged": (lambda rows: rows[:, 2:6, 2:6].repeat(2, 1).repeat(2, 2), False),
    "turned": (lambda rows: np.roll(rows, 3, axis=2), False),
    "in other units": (lambda rows: 255 * rows, True),
}


@pytest.mark.parametrize(("change", "told"), OTHER_PICTURES.values(), ids=OTHER_PICTURES)
def test_a_crop_and_pictures_that_lie_otherwise_are_no_other_scale(way, change, told):
    rows, labels = pictures()
    texts = found(way(rows, labels), way(change(rows[:60]).astype(np.float32), labels[:60]))
    assert any("another scale than training: inputs: median" in text for text in texts) is told
    assert any("another scale than training" in text for text in texts) is told
