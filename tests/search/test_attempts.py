"""Attempts at a run: which one becomes the run's folder, what is compared, and what a kill in between leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import DifferenceError
from mltrainer.observe.opened_files import OPENED
from mltrainer.records.job import TrainingJob
from mltrainer.search.attempts import Attempt, attempts_at, furthest, new_attempt
from mltrainer.workspace import read_json, write_json
from tests.search.test_program import config

FINISHED = {"state": "finished", "stop_reason": "epochs", "steps": 3, "weights_sha256": "w"}
PRUNED = {**FINISHED, "state": "pruned", "stop_reason": "pruned", "steps": 1}
PLACE = ".mltrainer/runs/one"


def attempt(root: Path, steps: int = 0, result: dict[str, Any] | None = None) -> Attempt:
    """Return an attempt that came so far."""
    values = {"run": "one", "purpose": "train", "folder": PLACE, "config": config(), "contract": {}, "threads": 1}
    made = new_attempt(root, TrainingJob.model_validate(values))
    reach(made.work, steps)
    if result is not None:
        write_json(made.work / "result.json", result)
    return made


def reach(folder: Path, steps: int) -> None:
    for step in range(1, steps + 1):
        (folder / f"checkpoints/step-{step:08d}").mkdir(parents=True, exist_ok=True)


def test_what_came_further_is_kept_whatever_ends_first(tmp_path):
    first, second = attempt(tmp_path), attempt(tmp_path, 1)
    reach(first.work, 2)  # after the second began, which goes on from where the first was
    assert (first.publish(), second.publish()) == (False, False)
    assert furthest(tmp_path / PLACE) == "step-00000002"
    assert attempt(tmp_path, 3).publish() is False
    assert furthest(tmp_path / PLACE) == "step-00000003"
    assert attempts_at(tmp_path) == []


def test_an_attempt_goes_on_from_the_furthest_and_knows_what_was_opened_before(tmp_path):
    attempt(tmp_path, 1)
    second = attempt(tmp_path, 2)
    (second.work / OPENED).mkdir()
    (second.work / OPENED / "files.1").write_text("a line")
    third = attempt(tmp_path)
    assert (third.number, furthest(third.work)) == (3, "step-00000002")
    assert (third.work / OPENED / "files.1").read_text() == "a line"


@pytest.mark.parametrize("steps", [3, 5], ids=["after as many steps", "after more steps"])
def test_another_result_is_a_difference_however_long_it_took(tmp_path, steps):
    assert attempt(tmp_path, 3, FINISHED).publish() is True
    other = attempt(tmp_path, steps, {**FINISHED, "steps": steps, "weights_sha256": "v"})
    with pytest.raises(DifferenceError, match=r"gave another (steps, )?weights_sha256") as caught:
        other.publish()
    assert f"its files are in {other.work.relative_to(tmp_path)}" in str(caught.value)
    assert read_json(tmp_path / PLACE / "result.json") == FINISHED


def test_another_digest_over_chunks_is_a_difference(tmp_path):
    attempt(tmp_path, 3, {**FINISHED, "weights_tree_sha256": "t"}).publish()
    with pytest.raises(DifferenceError, match="gave another weights_tree_sha256"):
        attempt(tmp_path, 3, {**FINISHED, "weights_tree_sha256": "u"}).publish()


def test_an_equal_result_changes_nothing_and_is_not_the_first(tmp_path):
    attempt(tmp_path, 3, FINISHED).publish()
    assert attempt(tmp_path, 3, FINISHED).publish() is False
    assert attempts_at(tmp_path) == []


def test_a_run_that_a_rung_ended_may_go_on_and_is_not_ended_again(tmp_path):
    assert attempt(tmp_path, 1, PRUNED).publish() is True
    assert attempt(tmp_path, 3, FINISHED).publish() is True
    assert attempt(tmp_path, 1, PRUNED).publish() is False
    assert read_json(tmp_path / PLACE / "result.json") == FINISHED


def test_killed_while_it_is_published_an_attempt_is_published_by_the_next_process(tmp_path, monkeypatch):
    attempt(tmp_path, 1).publish()
    made, rename = attempt(tmp_path, 3, FINISHED), Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path == made.work:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as until:
        until.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            made.publish()
    (found,) = attempts_at(tmp_path, "one")
    assert found.publish() is True
    assert furthest(tmp_path / PLACE) == "step-00000003"
    assert read_json(tmp_path / PLACE / "job.json")["folder"] == PLACE


def test_no_attempt_has_the_folder_of_one_before_it(tmp_path):
    first = attempt(tmp_path)
    first.remove()
    second = attempt(tmp_path)
    assert first.number == second.number
    assert first.folder != second.folder
