"""A search ends itself where its trials say so, and a record cannot say it of trials that do not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from mltrainer.records.equations import faults
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.records.stagnation import Stagnation, last_begun

CHEAP = {"cost": "<= 30"}
RISING, LEVEL = (0.5, 0.6, 0.7, 0.8), (0.5, 0.4, 0.4, 0.4)


@dataclass(frozen=True)
class Row:
    nr: int
    value: Any
    objectives: dict[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return "failed" if math.isnan(self.value) else "finished"


@pytest.mark.parametrize(
    ("trials", "ends_after"),
    [
        ([(0.5, 20), (0.4, 20), (0.5, 20), (0.9, 20)], 3),  # no better: as good
        ([(0.5, 20), (0.4, 20), (0.6, 20), (0.5, 20), (0.5, 20)], 5),
        ([(0.5, 20), (math.nan, 20), (0.4, 20), (0.4, 20)], 4),  # one has failed
        ([(0.5, 20), (0.9, 40), (0.8, 40)], 3),  # better, but not as the constraint asks
        ([(0.5, 40), (0.4, 40), (0.3, 40), (0.2, 40)], None),  # none to stay with
    ],
)
def test_patience_counts_trials_that_were_no_better(trials, ends_after):
    rows = [Row(nr, value, {"cost": cost}) for nr, (value, cost) in enumerate(trials, 1)]
    assert last_begun(rows, 1, Stagnation(2, CHEAP, "max")) == ends_after


@pytest.mark.parametrize(("lag", "last"), [(1, 3), (2, 4), (3, 5), (4, None)])
def test_trials_that_had_begun_before_the_search_stagnated_are_its_last(lag, last):
    rows = [Row(nr, value) for nr, value in enumerate((0.5, 0.4, 0.3, 0.9, 0.8), 1)]
    assert last_begun(rows, lag, Stagnation(2, {}, "max")) == last


@pytest.mark.parametrize(
    ("ended", "values", "patience", "expected"),
    [
        ("stagnation", LEVEL, 3, None),
        ("stagnation", RISING, 3, "trials"),  # the last one was the best
        ("stagnation", LEVEL, 4, "trials"),
        ("stagnation", LEVEL, None, "trials"),  # nobody asked for that
        ("stagnation", LEVEL, 2, "trials"),  # it would have ended before
        ("trials", LEVEL, 2, "stagnation"),
        ("time", LEVEL, 2, "stagnation"),
        ("trials", LEVEL, 3, None),  # as many trials as were planned
        ("time", RISING, 3, None),
        ("trials", LEVEL, None, None),
    ],
)
def test_a_recorded_end_that_the_trials_contradict_is_named(ended, values, patience, expected):
    trials = [{"nr": nr, "value": value, "state": "finished"} for nr, value in enumerate(values, 1)]
    found = {"trials": trials, "ended": ended, "patience": patience, "lag": 1, "constraints": {}}
    record = partial(Searched, {**found, "metric": {"name": "accuracy", "mode": "max"}})
    said = {fault.field: fault.expected for fault in faults(record)}
    assert said.get("ended") == (expected and f"{expected!r}")
