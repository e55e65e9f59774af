"""Files that a task opens: planning binds them, a run that opens others is told so, and planning again binds those, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.gates.gate import check_gates
from mltrainer.observe.file_rows import unplanned
from mltrainer.phases.context import Context
from mltrainer.phases.inputs import opened_by
from mltrainer.records.common import FileRow
from mltrainer.records.envelope import partial_record
from mltrainer.records.partial import partial
from mltrainer.records.planning import Planning
from mltrainer.records.reading import Record
from mltrainer.records.run import ProbeResult
from mltrainer.runs.contract import contract_of
from mltrainer.workspace import Project, digest
from tests.projects import PROJECT, TASK, evidence_of, write_rings
from tests.results import probe_result

READING = TASK.replace(
    "        return Noisy(self.n)",
    "        self.words = __import__('pathlib').Path('words.txt').read_text()\n        return Noisy(self.n)\n\n"
    "    def enter(self, step, length):\n        if step == 20:\n            __import__('pathlib').Path('late.txt').read_text()",
)


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_a_file_is_bound_by_planning_and_one_that_planning_could_not_see_fails_the_baseline(tmp_path, cli):
    task = {"use": "my_task:Rings", "options": {"n": 80}}
    project = write_rings(tmp_path, READING, task=task, acceptance={})
    for name in ("words.txt", "late.txt"):
        (tmp_path / name).write_text(name)
    settings = ("--set", "epochs=12", "--set", "batch_size=32", "--set", "early_stopping=null")
    said = cli("phase", "run", "planning", *settings, "--project", tmp_path, code=0)
    planned = evidence_of(project, "planning")
    assert [row["path"] for row in planned["opened"]] == ["words.txt"]
    said = cli("phase", "run", "baseline", "--project", tmp_path, code=4, out="inputs_planned")
    assert "unplanned late.txt" in said.out
    said = cli("phase", "run", "planning", "--project", tmp_path, code=0)
    planned = evidence_of(project, "planning")
    assert [row["path"] for row in planned["opened"]] == ["late.txt", "words.txt"]
    (tmp_path / "late.txt").write_text("other")
    [told] = check_gates(project)[0].stale
    assert told.startswith("late.txt (data) changed: sha256 ")
    (tmp_path / "late.txt").unlink()
    gate = check_gates(project)[0]
    assert (gate.stale, gate.notes) == ((), ("late.txt: not here, digest recorded",))


# --- which files ----------------------------------------------------------------------------------


def row(path: str, sha256: str = "1") -> dict[str, Any]:
    return {"path": path, "sha256": sha256, "size": 1}


def rows(found: list[dict[str, Any]]) -> list[FileRow]:
    return [FileRow.model_validate(one) for one in found]


def context(root: Path, earlier: dict[str, Any] | None = None, task: dict[str, Any] | None = None) -> Context:
    last = SimpleNamespace(config={"task": task}) if task else None
    return cast(Context, SimpleNamespace(project=Project(root), last=last, earlier=earlier, note=lambda text: None))


CONFIG = TrainingConfig.model_validate({**PROJECT, "name": "rings"})


def probes(*opened: list[dict[str, Any]] | None) -> list[ProbeResult]:
    return [probe_result(opened=rows) for rows in opened]


def test_what_either_probe_opened_is_bound(tmp_path):
    found = opened_by(context(tmp_path), CONFIG, probes([row("a"), row("b")], [row("b"), row("c")]))
    assert found == (rows([row("a"), row("b"), row("c")]), [])


def test_what_one_probe_changes_for_the_other_is_named_and_not_bound(tmp_path):
    found = opened_by(context(tmp_path), CONFIG, probes([row("a"), row("log", "1")], [row("a"), row("log", "2")]))
    assert found == (rows([row("a")]), ["log"])
    assert unplanned(*found, rows([row("a"), row("log", "3"), row("b")])) == ["b"]


def test_where_a_tool_did_not_look_nothing_is_said(tmp_path):
    assert opened_by(context(tmp_path), CONFIG, probes([row("a")], None)) == (None, None)
    assert unplanned(None, None, rows([row("a")])) is None
    assert unplanned(rows([row("a")]), [], None) is None


@pytest.mark.parametrize(
    ("code", "is_same_task", "is_bound"), [([], True, True), ([row("x.py")], True, False), ([], False, False)]
)
def test_what_a_run_opened_counts_where_task_and_code_are_the_same(tmp_path, monkeypatch, code, is_same_task, is_bound):
    (tmp_path / "late").write_text("x")
    run = {"code_sha256": digest(code), "opened": [row("late"), row("gone")]}
    record = partial_record({"evidence": {"run": run}}, "baseline")
    monkeypatch.setattr("mltrainer.phases.inputs.sound_record", lambda *_: record)
    task = CONFIG.task.model_dump() if is_same_task else {"use": "other:Task"}
    found = opened_by(context(tmp_path, task=task), CONFIG, probes([row("a")], [row("a")]))
    assert [one.path for one in found[0] or []] == (["a", "late"] if is_bound else ["a"])


def test_a_run_is_named_by_what_the_files_hold_and_one_that_opens_none_as_before(monkeypatch):
    monkeypatch.setattr("mltrainer.runs.contract.check_environment", lambda *_: None)
    monkeypatch.setattr("mltrainer.runs.contract.environment_digest", lambda _: "e")

    def named(opened: list[dict[str, Any]] | None) -> dict[str, str]:
        evidence = partial(Planning, {"data": {"sha256": "d"}, **({} if opened is None else {"opened": opened})})
        planned = SimpleNamespace(evidence=evidence, source=SimpleNamespace(sha256="s", files=[]))
        return contract_of(Record({}, "r", typed=cast("Any", planned)), CONFIG, Path())

    before = {"config_sha256", "data_sha256", "code_sha256", "environment_sha256"}
    assert named(None).keys() == named([]).keys() == before
    assert named([row("a", "1"), row("b", "2")]) == named([row("/elsewhere/b", "2"), row("c", "1")])
    assert named([row("a", "1")])["inputs_sha256"] != named([row("a", "2")])["inputs_sha256"]
    assert named([row("/t/phases/02_baseline/record.json")]).keys() == before
