"""The classes that a split lacks, by what planning counted and what a run was evaluated on."""

from typing import Any

from mltrainer.phases.lacking_classes import lacking_classes
from mltrainer.records.partial import partial
from mltrainer.records.planning import Data
from mltrainer.records.run import Run


def data(**counts: dict[str, int]) -> Data:
    return partial(Data, {"class_counts": counts or None})


def run(*targets: dict[str, Any]) -> Run:
    return partial(Run, {"evaluation": {"kind": "targets", "targets": list(targets)} if targets else None})


def test_splits_with_all_classes_lack_none():
    assert lacking_classes(data(train={"a": 3, "b": 2}, validation={"a": 1, "b": 1}), run()) is None
    assert lacking_classes(data(), run(), []) is None


def test_classes_without_a_sample_are_named_by_split():
    found = lacking_classes(data(train={"a": 3, "b": 0}, validation={"a": 0, "b": 0}), run(), ["c"])
    assert (found.train, found.validation, found.test) == (["b"], ["a", "b"], ["c"])


def test_of_several_targets_each_says_its_own():
    size = {"name": "size", "labels": ["large", "small"], "confusion": [[3, 1], [0, 0]]}
    price = {"name": "price", "residual_quantiles": [0, 0, 0, 0, 0]}
    found = lacking_classes(data(), run(size, price))
    assert found.validation == ["small of size"]
