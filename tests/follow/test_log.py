"""A run's log, read from outside its process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltrainer.follow.log import EVENTS_FILE, seconds_worked

BEGAN, ROW = {"event": "began", "step": 0}, {"event": "row", "step": 4}


def worked(seconds: float) -> dict[str, object]:
    return {"event": "worked", "seconds": seconds}


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], 0.0),
        ([BEGAN, ROW, worked(2.0), ROW, worked(3.5)], 3.5),
        ([BEGAN, worked(2.0), BEGAN, worked(1.0)], 3.0),
        ([BEGAN, worked(2.0), BEGAN], 2.0),  # the second was killed before its first evaluation
    ],
)
def test_the_time_of_all_processes_counts(tmp_path: Path, events: list[dict[str, object]], expected: float) -> None:
    (tmp_path / EVENTS_FILE).write_text("".join(f"{json.dumps(event)}\n" for event in events) + '{"event": "wor')
    assert seconds_worked(tmp_path) == expected
