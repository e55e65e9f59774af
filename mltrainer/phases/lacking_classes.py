"""The classes that a split lacks: a metric over classes then covers only the others, which reports say beside it."""

from __future__ import annotations

from typing import Any

from mltrainer.records.planning import Data
from mltrainer.records.run import LackingClasses, Run


def lacking_classes(data: Data, run: Run, test: list[str] | None = None) -> LackingClasses | None:
    """Return the classes without a sample in a split; None where each split has all known classes.

    Args:
        data: Planning's record of the data, with the counts of the training and validation splits.
        run: The run, whose evaluation holds the validation counts of each of several targets.
        test: The classes that the test split lacks; None where it was not opened, or has all.
    """
    train, validation = ([name for name, count in _counts(data, split) if not count] for split in ("train", "validation"))
    validation += [name for target in (run.evaluation or {}).get("targets", []) for name in _without_samples(target)]
    found = LackingClasses(train=train, validation=validation, test=test or [])
    return found if train or validation or test else None


def _counts(data: Data, split: str) -> list[tuple[str, int]]:
    return list((data.class_counts or {}).get(split, {}).items())


def _without_samples(target: dict[str, Any]) -> list[str]:
    rows = zip(target.get("labels", []), target.get("confusion") or [], strict=False)
    return [f"{name} of {target['name']}" for name, row in rows if not sum(row)]
