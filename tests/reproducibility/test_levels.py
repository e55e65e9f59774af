"""Reports claim the level of reproducibility that was tested, and never more."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.reproducibility.levels import level_of

PROBE = {"steps": 8, "identical": True}


def record(phase: str, **evidence: Any) -> dict[str, Any]:
    return {"phase": phase, "evidence": evidence}


@pytest.mark.parametrize(
    ("record", "level", "tested"),
    [
        (record("planning", probe=PROBE), "R1", "the first 8 steps"),
        (record("planning", probe={**PROBE, "identical": False}), "none", "the first 8 steps"),
        (record("planning", probe={**PROBE, "resumed_at": 4}), "R1", "once without and once with an interruption"),
        (
            record("planning", probe={**PROBE, "resumed_at": 28}, program={"resumed": {"same": True}}),
            "R1",
            "killed after step 28",
        ),
        (record("planning"), "none", "the first"),
        (record("baseline", run={}), "none", "was not trained again"),
        (record("optimization", skipped=True), "none", "nothing was trained here"),
        (record("optimization", skipped=False, replay={"identical": True}), "R1", "the whole run of the best trial"),
        (record("optimization", skipped=False, replay={"identical": False}), "none", "the whole run"),
        (record("finalization", reproduction={"identical": True, "steps_compared": 400}), "R1", "all 400 steps"),
        (record("finalization", reproduction={"identical": "yes", "steps_compared": 400}), "none", "all 400 steps"),
    ],
)
def test_the_level_is_the_one_that_was_tested(record, level, tested):
    found = level_of(record)
    assert found.level == level
    assert tested in found.tested


def test_portable_numerics_aim_at_another_family_of_cpu():
    assert level_of(record("planning", probe=PROBE, config={"numerics": "portable"})).intended == "R3"
    assert level_of(record("baseline", run={"numerics": "portable"})).intended == "R3"
    assert level_of(record("baseline", run={"numerics": "native"})).intended == "R2"


def test_no_interruption_is_told_where_there_was_none():
    found = level_of(record("planning", probe={**PROBE, "resumed_at": 0}, program={"resumed": None}))
    assert found.tested == "the first 8 steps, in fresh processes"
