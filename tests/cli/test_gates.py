"""`gate check` for a person: one line a gate, then what does not hold; everything else behind -v."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mltrainer.cli.gates import delivery, describe
from mltrainer.cli.phases import warnings
from mltrainer.errors import FaultAt
from mltrainer.gates.gate import Gate, closed
from mltrainer.records.reading import Record
from mltrainer.reports.gate_items import GateItem

PASSES = GateItem("losses_finite", "All were finite.", "pass", {"values": 360, "share": 0.022346368715083775}, None)
FAILS = GateItem("within_time_budget", "It was quick.", "fail", {"minutes": 61.23456, "ends": [1.0, None]}, "raise the budget")
WAIVED = GateItem("gpu_utilization", "The GPU was busy.", "waived", {"percent": 12.0}, "look")


def gate(*items: GateItem) -> Gate:
    return Gate("baseline", cast(Record, object()), items)


def test_a_gate_that_holds_is_one_line_and_its_waivers():
    assert describe(gate(PASSES)) == "baseline: holds (1 of 1 items pass)"
    assert describe(gate(PASSES, WAIVED)).splitlines()[1:] == ["  gpu_utilization is waived: The GPU was busy."]


def test_an_item_that_fails_says_what_was_measured_and_what_to_do():
    assert describe(gate(PASSES, FAILS)).splitlines() == [
        "baseline: does not hold (1 of 2 items pass)",
        "  within_time_budget fails: It was quick.",
        "    measured: time 1 h 01 min; ends 1, none",
        "    next: raise the budget",
    ]


def test_what_a_closed_gate_refuses_names_the_item_with_what_was_expected_and_found():
    error = closed(gate(PASSES, FAILS), "baseline is locked")
    assert error.faults == (FaultAt("baseline, item within_time_budget", "It was quick.", "time 1 h 01 min; ends 1, none"),)
    assert closed(replace(gate(PASSES), stale=("data.csv changed",)), "locked").faults[0].found == "data.csv changed"


def test_verbose_shows_every_item_and_every_reason():
    stale = replace(gate(PASSES), stale=("one", "two"))
    assert describe(stale) == "baseline: stale: one (+1 more: mltrainer gate check -v)"
    assert describe(stale, verbose=True).splitlines()[3:] == [
        "pass     losses_finite  values 360; share 0.0223",
        "  stale: one",
        "  stale: two",
    ]


def delivered(*files: str) -> list[Any]:
    rows = [SimpleNamespace(path=name) for name in files]
    gate = SimpleNamespace(content=SimpleNamespace(evidence=SimpleNamespace(model_files=rows)))
    return [SimpleNamespace(gate=gate)]


def test_a_clone_without_the_models_files_is_told_so(tmp_path):
    (tmp_path / "a.json").touch()
    assert delivery(delivered("a.json"), tmp_path) == "the model is in phases/05_finalization/final_model"
    assert "not all here, as in a clone: bring a.onnx" in delivery(delivered("a.json", "a.onnx"), tmp_path)


@pytest.mark.parametrize(("count", "last"), [(2, "  warning: found 1"), (7, "  and 2 more, in its report")])
def test_plannings_warnings_are_printed(count, last):
    data = SimpleNamespace(warnings=[f"found {number}" for number in range(count)])
    planning: Any = SimpleNamespace(phase="planning", content=SimpleNamespace(evidence=SimpleNamespace(data=data)))
    lines = warnings(planning)
    assert (lines[0], lines[-1], len(lines)) == ("  warning: found 0", last, min(count, 6))
    assert warnings(SimpleNamespace(phase="baseline", content=planning.content)) == []
