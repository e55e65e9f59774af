"""The list of planted faults is as old as the code: each can be planted, and is named once."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutations.__main__ import TOP, Met, asked_for, faults, holds, planted_text, table
from tests.mutations.fault import Fault


@pytest.mark.parametrize(("room", "fault"), [pytest.param(room, fault, id=f"{room}: {fault.what}") for room, fault in faults()])
def test_a_fault_can_be_planted_and_runs(room: str, fault: Fault) -> None:
    assert fault.file.startswith(f"mltrainer/{room}")
    ast.parse(planted_text((TOP / fault.file).read_text("utf-8"), fault))
    assert all(is_there(word) for word in fault.tests.split() if word.startswith("tests/"))


def is_there(test: str) -> bool:
    """Return whether a file or folder of tests is there, and the function in it that is named."""
    path, _, function = test.partition("[")[0].partition("::")
    return f"def {function}(" in (TOP / path).read_text("utf-8") if function else (TOP / path).exists()


def test_no_fault_is_planted_twice() -> None:
    assert max(Counter((fault.file, fault.right, fault.wrong) for _, fault in faults()).values()) == 1


def met(met: Met, survives: str = "", room: str = "runs") -> tuple[str, Fault, Met]:
    return room, Fault("a fault", "mltrainer/a.py", "right", "wrong", "tests", survives), met


CAUGHT, SURVIVED, FAILS_ANYWAY = Met("tests/test_a.py", 1.0), Met("", 1.0), Met("tests/test_a.py", 1.0, fails_anyway=True)


@pytest.mark.parametrize(
    ("missed", "enough"),
    [
        ([], True),
        ([met(SURVIVED, "nothing changes")], True),
        ([met(SURVIVED)], False),
        ([met(FAILS_ANYWAY, "nothing changes")], False),
        ([met(SURVIVED, "nothing changes")] * 2, False),
    ],
)
def test_nineteen_of_twenty_are_caught_and_the_rest_is_explained(missed: list[tuple[str, Fault, Met]], enough: bool) -> None:
    assert holds([met(CAUGHT)] * (20 - len(missed)) + missed) is enough


def test_the_table_counts_each_room_and_all() -> None:
    found = [met(CAUGHT), met(SURVIVED, "nothing changes"), met(SURVIVED), met(FAILS_ANYWAY), met(CAUGHT, room="wrap")]
    rows = [line.split() for line in table(found).splitlines()]
    assert rows[1:] == [["runs", "4", "1", "1", "2", "4"], ["wrap", "1", "1", "0", "0", "1"], ["all", "5", "2", "1", "2", "5"]]


def test_a_rooms_name_chooses_its_faults_alone() -> None:
    assert {room for room, _ in asked_for("runs")} == {"runs"}
    assert len({room for room, _ in asked_for("")}) > 20
