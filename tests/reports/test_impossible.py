"""Two versions of a project's records that cannot both be true, and those that can."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from mltrainer.records.envelope import Envelope, partial_record
from mltrainer.reports.review import OF_A_RUN, contradictions, lost
from tests.reports import records

Record = dict[str, Any]


def final(**test: Any) -> Record:
    found = records.finalization()
    found["evidence"]["test"].update(test)
    for key in OF_A_RUN:
        found["evidence"]["run"].setdefault(key, "a")
    return {"finalization": found}


def typed(found: Record) -> dict[str, Envelope[Any]]:
    return {phase: partial_record(content, phase) for phase, content in found.items()}


def changed(change: Callable[[Record], object]) -> list[tuple[str, str, Any, Any]]:
    before, now = final(), final()
    change(now["finalization"]["evidence"])
    found = contradictions(typed(now), typed(before))
    return [(row.what.split()[0], row.key, row.before, row.after) for row in found]


def test_equal_records_contradict_each_other_in_nothing():
    assert changed(lambda evidence: None) == []


DIGESTS = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "weights_sha256", "init_sha256")


@pytest.mark.parametrize("key", [*DIGESTS, "steps", "first_loss", "parameters", "seed", "weights_tree_sha256"])
def test_the_same_run_has_one_value_of_all_that_its_bits_decide(key):
    before = final()["finalization"]["evidence"]["run"][key]
    assert changed(lambda evidence: evidence["run"].update({key: "other"})) == [("run", key, before, "other")]


def test_of_metrics_the_one_that_differs_is_named():
    before = final()["finalization"]["evidence"]["run"]["metrics"]["accuracy"]
    told = changed(lambda evidence: evidence["run"].update(metrics={**evidence["run"]["metrics"], "accuracy": 1.0}))
    assert told == [("run", "metrics.accuracy", before, 1.0)]


def test_the_same_weights_have_one_outcome_on_the_same_test_split():
    def change(evidence: Record) -> None:
        evidence["test"]["metrics"] = {**evidence["test"]["metrics"], "accuracy": 1.0}

    assert changed(change) == [("weights", "metrics.accuracy", 0.9553, 1.0)]


@pytest.mark.parametrize("key", ["data_sha256", "code_sha256", "environment_sha256", "numerics_class"])
def test_the_same_weights_measured_by_something_else_may_have_another_outcome(key):
    def change(evidence: Record) -> None:
        evidence["run"].update({"id": "ffffffffffff", key: "other"})
        evidence["test"]["metrics"] = {"accuracy": 1.0}

    assert changed(change) == []


def test_another_run_and_other_weights_may_have_other_numbers():
    def change(evidence: Record) -> None:
        evidence["run"].update(id="ffffffffffff", metrics={"accuracy": 1.0})
        evidence.update(delivered_sha256="0" * 64)
        evidence["test"]["metrics"] = {"accuracy": 1.0}

    assert changed(change) == []


def test_a_program_that_came_to_other_bits_is_no_contradiction_and_to_the_same_bits_is():
    def other_bits(evidence: Record) -> None:
        evidence["run"].update(program={}, chain={"entries": 1, "head": "b"}, metrics={"accuracy": 1.0})

    assert all(what != "run" for what, *_ in changed(lambda e: [other_bits(e), e["run"].update(program={"a": 1})]))
    told = changed(lambda e: e["run"].update(program={"a": 1}, metrics={"accuracy": 1.0}))
    assert ("run", "metrics.accuracy") in {(what, key) for what, key, *_ in told}


OPENING = {"nr": 1, "run": "a", "purpose": "test", "data_sha256": "d", "weights_sha256": "w"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, None),
        ({"weights_sha256": "v"}, "replaced"),
        ({"data_sha256": "e"}, "replaced"),
        ({"run": "b"}, None),
        ({"run": "b", "weights_sha256": "v"}, "lost"),
    ],
)
def test_an_opening_is_lost_or_replaced(change, told):
    before, now = final(openings=[OPENING]), final(openings=[{**copy.deepcopy(OPENING), **change}])
    assert [row.change for row in lost(typed(now), typed(before))] == ([told] if told else [])


def test_all_openings_are_lost_with_the_record():
    assert [row.run for row in lost({}, typed(final(openings=[OPENING, {**OPENING, "run": "b", "weights_sha256": "v"}])))] == [
        "a",
        "b",
    ]
    assert lost(typed(final(openings=[OPENING])), {}) == []
