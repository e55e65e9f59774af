"""The list of planted faults is as old as the code: each can be planted, and is named once."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutations.__main__ import TOP, faults, planted_text
from tests.mutations.fault import Fault


@pytest.mark.parametrize(("room", "fault"), [pytest.param(room, fault, id=f"{room}: {fault.what}") for room, fault in faults()])
def test_a_fault_can_be_planted_and_runs(room: str, fault: Fault) -> None:
    assert fault.file.startswith(f"mltrainer/{room}")
    ast.parse(planted_text((TOP / fault.file).read_text("utf-8"), fault))
    assert all((TOP / word.partition("::")[0]).exists() for word in fault.tests.split() if word.startswith("tests/"))


def test_no_fault_is_planted_twice() -> None:
    assert max(Counter((fault.file, fault.right, fault.wrong) for _, fault in faults()).values()) == 1
