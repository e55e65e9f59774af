"""What a run opens stands in its result; other files than planning saw are refused before a step is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import GateError
from mltrainer.observe.file_rows import rows_of_paths
from tests.trainers.native.digits_runs import TASK, job, part_of

READING = (
    TASK
    + """

class Reader:
    def on_start(self, run):
        import pathlib
        self.words = "" if pathlib.Path("read_before").exists() else pathlib.Path("words.txt").read_text()
        self.key = pathlib.Path(".env").read_text()
"""
)


def trained(root: Path, **changes: Any) -> dict[str, Any]:
    root.mkdir(parents=True, exist_ok=True)
    (root / "digits_task.py").write_text(READING)
    (root / ".env").write_text("API_TOKEN=short-secret")  # of which not even a digest is recorded
    work = {**job({"epochs": 1, "callbacks": [{"use": "digits_task:Reader", "watch": True}]}), "max_steps": 1, **changes}
    return part_of(root, work, lambda step: False)


@pytest.mark.slow
def test_what_a_run_opened_is_told_without_its_code(tmp_path):
    (tmp_path / "words.txt").write_text("a b c")
    found = trained(tmp_path)
    assert [(row["path"], row["size"]) for row in found["opened"]] == [("words.txt", 5)]
    assert [row["path"] for row in found["code_files"]] == ["digits_task.py"]
    again = trained(tmp_path / "again" / "..", run="other", folder=".mltrainer/runs/other")  # the same process looks again
    assert again["opened"] == found["opened"]


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_result_was_written_tells_what_it_opened_before(tmp_path, monkeypatch):
    def killed(*_: Any, **__: Any) -> None:
        (tmp_path / "read_before").touch()
        raise KeyboardInterrupt

    (tmp_path / "words.txt").write_text("a b c")
    with monkeypatch.context() as patched:
        patched.setattr("mltrainer.trainers.native.job.write_result", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path)
    found = trained(tmp_path)
    assert found["interruptions"]
    assert [row["path"] for row in found["opened"]] == ["words.txt"]
    assert not [*tmp_path.glob(".mltrainer/runs/*/opened")]


def test_one_of_many_runs_on_what_planning_saw_is_not_observed(tmp_path):
    (tmp_path / "words.txt").write_text("a b c")
    assert trained(tmp_path, phase="optimization")["opened"] is None


@pytest.mark.slow
def test_other_files_than_planning_saw_are_refused_but_for_a_reproduction(tmp_path):
    (tmp_path / "words.txt").write_text("a b c")
    planned = rows_of_paths(["words.txt"], tmp_path)
    assert trained(tmp_path, input_files=planned)["steps"] == 1
    (tmp_path / "words.txt").write_text("a b d")
    with pytest.raises(GateError, match=r"words\.txt: the data differs from planning's record"):
        trained(tmp_path, input_files=planned, run="b", folder=".mltrainer/runs/b")
    found = trained(tmp_path, input_files=planned, purpose="reproduction", run="c", folder=".mltrainer/runs/c")
    assert found["steps"] == 1
    (tmp_path / "words.txt").unlink()
    with pytest.raises(GateError, match="found no file"):
        trained(tmp_path, input_files=planned, run="d", folder=".mltrainer/runs/d")
