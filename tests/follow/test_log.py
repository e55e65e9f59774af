"""A run's log, read from outside its process."""

from __future__ import annotations

import json

import pytest

from mltrainer.companions.monitor.run import WatchedRun
from mltrainer.companions.monitor.scene import Scene
from mltrainer.follow.log import EVENTS_FILE, interruptions, read_rows, read_signals, seconds_worked
from mltrainer.runs.find import describe_run
from tests.companions.monitor.invented import Training, empty_project

BEGAN = {"event": "began", "step": 0}
ROW = {"event": "row", "step": 4, "epoch": 1, "validation": {"accuracy": 0.5}, "train": {"accuracy": 0.75}}


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
def test_the_time_of_all_processes_counts(tmp_path, events, expected):
    (tmp_path / EVENTS_FILE).write_text("".join(f"{json.dumps(event)}\n" for event in events) + '{"event": "wor')
    assert seconds_worked(tmp_path) == expected


STOPPED, OBSERVED = {"event": "stopped", "step": 4, "cause": "SIGINT"}, {"event": "observed", "train_samples": 9}
MALFORMED = {
    "no kind": {"step": 4},
    "a kind that is no text": {"event": ["row"], "step": 4},
    **{
        f"a row without its {key}": {name: ROW[name] for name in ROW if name != key}
        for key in ("step", "epoch", "train", "validation")
    },
    "a row of an endless step": {**ROW, "step": float("inf")},
    "a row of a text for a step": {**ROW, "step": "4"},
    "a row of a truth for a step": {**ROW, "step": True},
    "a row with a list of metrics": {**ROW, "validation": [1]},
    "a row with a word for norms": {**ROW, "layer_norms": 3},
    "signals that are a word": {**ROW, "signals": "no"},
    "an end without its step": {"event": "stopped", "cause": "SIGINT"},
    "a beginning again without its step": {"event": "resume"},
    "a time that is a word": {"event": "worked", "seconds": "long"},
    "a number": 4,
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_line_that_no_run_wrote_is_left_out_by_every_reader(tmp_path, what):
    project = empty_project(tmp_path)
    folder = Training(project).folder
    events = [MALFORMED[what], BEGAN, OBSERVED, ROW, MALFORMED[what], STOPPED, worked(2.0)]
    (folder / EVENTS_FILE).write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert [row["step"] for row in read_rows(folder)] == [4]
    assert ([stop.written() for stop in interruptions(folder)], seconds_worked(folder)) == ([{"step": 4, "cause": "SIGINT"}], 2.0)
    assert read_signals(folder)["train_samples"] == 9
    run = WatchedRun(project, folder.name)
    run.poll()
    assert ([row.step for row in run.rows], run.facts().interruptions) == ([4], [STOPPED])
    assert [shown.metrics for shown in Scene(project).look().runs] == [{"accuracy": 0.5, "train_accuracy": 0.75}]
    assert describe_run(project, folder.name).metrics == {"accuracy": 0.5, "train_accuracy": 0.75}


def test_an_end_that_names_no_cause_is_an_end(tmp_path):
    (tmp_path / EVENTS_FILE).write_text('{"event": "stopped", "step": 7}\n')
    assert [stop.written() for stop in interruptions(tmp_path)] == [{"step": 7, "cause": None}]
