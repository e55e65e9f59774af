"""What a worker of a search tells of the run that it trains: how far it is, at most once a second, and of no run before."""

from __future__ import annotations

import json
import os

import pytest

from mltrainer.errors import FaultAt, MachineError
from mltrainer.search import worker
from mltrainer.search.workers import Reports


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test sets."""
    clock = [100.0]
    monkeypatch.setattr(worker.time, "monotonic", lambda: clock[0])
    return clock


def heard(read_end: int) -> list[dict[str, object]]:
    return [json.loads(line) for line in os.read(read_end, 65536).splitlines()]


def test_a_beat_has_the_place_the_rate_and_the_metric_and_comes_once_a_second(said):
    read_end, write_end = os.pipe()
    beats = worker.Beats(write_end)
    place = {"epoch": 2, "epochs": 9, "step": 30, "steps": 90, "steps_per_s": 5.0}
    beats.send("progress", **place, loss=0.1)
    assert heard(read_end) == [{"event": "beat", **place}]
    beats.send("row", validation={"accuracy": 0.75}, metric="accuracy")
    said[0] += worker.BEAT_S
    beats.send("progress", step=31)
    assert heard(read_end) == [{"event": "beat", **place, "step": 31, "value": 0.75}]


def test_the_beats_of_a_run_tell_nothing_of_the_one_before(said):
    read_end, write_end = os.pipe()
    beats = worker.Beats(write_end)
    beats.send("row", step=90, validation={"accuracy": 0.75}, metric="accuracy")
    said[0] += worker.BEAT_S
    beats.send("start", step=0)
    beats.send("progress", step=1)
    said[0] += worker.BEAT_S
    beats.send("progress", step=2)
    assert heard(read_end)[-1] == {"event": "beat", "step": 2}


def test_the_error_of_a_worker_is_raised_as_it_was_reported():
    reports = Reports()
    said = {"message": "no space left", "where": "disk", "mend": "make room"}
    reports.take(json.dumps({"event": "error", "exit_code": 7, **said, "faults": [["disk", "some space", "none"]]}).encode())
    with pytest.raises(MachineError, match="no space left") as caught:
        reports.end(7)
    assert caught.value.faults == (FaultAt("disk", "some space", "none"),)
