"""What the policy does not keep goes, but never what a record, a fork or an export names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mltrainer.workspace import write_json
from tests.trainer.digits_runs import job, make, part_of

LEAST = {
    "checkpoint": {"every_n_epochs": 1, "save_best": True, "save_last": True, "keep": 0},
    "metric": {"name": "loss", "mode": "min"},
}
CHECKPOINTS = ".mltrainer/runs/run/checkpoints"
FIRST, LAST = f"{CHECKPOINTS}/step-00000006", f"{CHECKPOINTS}/step-00000018"


def recorded(root: Path) -> None:
    rows = [{"role": "checkpoint", "path": f"{FIRST}/state.json", "sha256": "0"}]
    write_json(root / "phases/02_baseline/record.json", {"inputs": rows})


def forked(root: Path) -> None:
    shutil.copytree(root / FIRST, root / ".mltrainer/runs/another/start/step-00000006")


def exported(root: Path) -> None:
    write_json(root / ".mltrainer/exports/run/job.json", {"checkpoint": FIRST})


@pytest.mark.parametrize("name", [recorded, forked, exported, lambda _: None], ids=["record", "fork", "export", "nothing"])
def test_a_checkpoint_that_something_names_is_there_when_its_run_has_gone_on(tmp_path: Path, name: Any) -> None:
    root, work = make(tmp_path), job(LEAST)
    part_of(root, work, lambda step: step == 6)
    name(root)
    result = part_of(root, work, lambda _: False)
    named = name.__name__ in ("recorded", "forked", "exported")
    assert (root / FIRST).is_dir() is named
    assert {row["path"] for row in result["checkpoints"]} == {LAST, *([FIRST] if named else [])}
