"""When a gate holds: it has a record, nothing is stale, there are items, and none of them fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.gates import gate
from mltrainer.gates.gate import Gate, GateItem
from mltrainer.records.reading import Record


def items(*verdicts: str) -> tuple[GateItem, ...]:
    return tuple(GateItem(f"item_{number}", "", verdict, {}, None) for number, verdict in enumerate(verdicts))


@pytest.mark.parametrize(
    ("verdicts", "stale", "holds"),
    [
        (("pass",), (), True),
        (("pass", "waived", "not_applicable"), (), True),
        (("pass", "fail"), (), False),
        (("fail", "pass"), (), False),
        (("pass",), ("data.csv changed",), False),
        ((), (), False),
    ],
)
def test_a_gate_holds_where_all_of_its_items_do_and_nothing_changed(verdicts, stale, holds):
    assert Gate("baseline", Record({}, "0"), items(*verdicts), stale).holds is holds


def test_a_gate_without_a_record_does_not_hold():
    assert not Gate("baseline", None, items("pass")).holds


@pytest.mark.parametrize(
    ("before", "stale"),
    [
        (Gate("baseline", Record({}, "0"), items("pass")), []),
        (Gate("baseline", Record({}, "0"), items("fail")), ["the gate before it, baseline, does not hold"]),
        (Gate("baseline", Record({}, "0"), ()), ["the gate before it, baseline, does not hold"]),
        (Gate("baseline", Record({}, "0"), items("pass"), ("changed",)), ["the gate before it, baseline, does not hold"]),
    ],
)
def test_a_record_that_follows_a_gate_which_does_not_hold_is_stale(before, stale):
    look: Any = SimpleNamespace(content=SimpleNamespace(previous="0"), rerun="")
    assert list(gate._origin(look, before)) == stale
