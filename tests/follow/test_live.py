"""How far a search is, as another terminal tells it."""

from __future__ import annotations

import os
from typing import Any

from mltrainer.follow.live import running_study, running_words, study_text
from mltrainer.gates.machine import derive
from mltrainer.records.event import Running, Study
from mltrainer.workspace import LOCK_FILE, RUNNING_FILE, locked, write_json
from tests.projects import write_rings

STUDY: dict[str, Any] = {
    "what": "trials", "done": 12, "planned": 20, "left_s": 200.0, "metric": "accuracy",
    "best": {"nr": 7, "value": 0.9833, "values": {"optimizer.lr": 0.00213}}, "running": [],
}  # fmt: skip
TOLD = "12 of 20 trials; 3 min 20 s left; best accuracy 0.983 of trial 7"


def study(**changes: Any) -> Study:
    return Study.model_validate({"event": "study", **STUDY, **changes})


def test_a_study_is_told_in_a_line_with_what_is_known():
    assert study_text(study()) == TOLD
    assert study_text(study(left_s=None, best=None)) == "12 of 20 trials"
    assert running_words(Running(nr=3), "accuracy") == ["starts"]
    assert running_words(Running(nr=3, epoch=2, epochs=9, value=0.5, steps_per_s=31.4), "log_loss") == [
        "epoch 2/9",
        "log loss 0.5",
        "31 steps/s",
    ]


def test_status_tells_how_far_the_running_search_is_and_not_what_a_killed_one_left(tmp_path):
    project = write_rings(tmp_path)
    live = project.state_dir / "studies" / "abc" / "live.json"
    write_json(live, STUDY)
    os.utime(live, (1e9, 1e9))
    with locked(project.state_dir / LOCK_FILE, "it"):
        write_json(project.state_dir / RUNNING_FILE, {"phase": "optimization", "pid": os.getpid()})
        assert derive(project)[3].reasons == ("it runs now",)
        write_json(live, STUDY)
        assert (derive(project)[3].state, derive(project)[3].reasons) == ("running", (f"it runs now: {TOLD}",))
        live.write_text("{")
        assert running_study(project.state_dir, project.state_dir / RUNNING_FILE) is None
