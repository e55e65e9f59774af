"""A project that an earlier release finished keeps its gates under a version with other rules, thresholds and templates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mltrainer
from mltrainer import handbook
from mltrainer.diagnostics import rules
from mltrainer.errors import GateError
from mltrainer.gates import releases
from mltrainer.gates.gate import check_gates, gates_before
from mltrainer.gates.machine import advice, derive
from mltrainer.reports import templates
from mltrainer.workspace import PHASES, Project
from tests.gates.evidence import reseal
from tests.projects import kept

MADE_BY = mltrainer.__version__
EDITS = {
    "phases/02_baseline/workflow.md": ("items:\n", "items:\n  - id: asked_later\n    statement: A later version asks for it.\n"),
    "phases/05_finalization/report.md.j2": ("# ", "# Otherwise: "),
    "diagnostics/overfitting.md": ("thresholds:\n", "thresholds:\n  asked_later: 1\n"),
}


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this a later version: one more item, another template, another threshold, and one rule less."""
    monkeypatch.setattr(releases, "FOLDER", tmp_path / "released")
    releases.write()
    shipped = tmp_path / "handbook"
    for folder in handbook.FOLDERS:
        shutil.copytree(handbook.shipped_folder() / folder, shipped / folder)
    for name, (old, new) in EDITS.items():
        (shipped / name).write_text((shipped / name).read_text().replace(old, new, 1))
    monkeypatch.setattr(handbook, "shipped_folder", lambda: shipped)
    monkeypatch.setattr(rules, "RULES", {name: rule for name, rule in rules.RULES.items() if name != "overfitting"})
    monkeypatch.setattr(mltrainer, "__version__", "0.10.0")
    for cached in (templates.environment, templates.parts, templates.frame):
        cached.cache_clear()
    yield
    for cached in (templates.environment, templates.parts, templates.frame):
        cached.cache_clear()


@pytest.fixture
def finished(tmp_path: Path) -> Callable[[str], Project]:
    return lambda name: kept(f"0.9/{name}", tmp_path / name)


def stale(project: Project) -> str:
    return "\n".join(line for gate in check_gates(project) for line in gate.stale)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("name", ["digits", "rings", "script"])
def test_the_gates_of_a_finished_project_hold_and_say_by_which_rules(name: str, finished: Callable[[str], Project]) -> None:
    gates = check_gates(finished(name))
    assert [(gate.holds, gate.stale) for gate in gates] == [(True, ())] * len(PHASES)
    assert all(any(f"judged by the policy of mltrainer {MADE_BY}" in note for note in gate.notes) for gate in gates)
    assert "asked_later" not in {item.id for item in gates[1].items}


@pytest.mark.usefixtures("later")
def test_a_project_that_is_not_finished_begins_again(finished: Callable[[str], Project]) -> None:
    project = finished("digits")
    shutil.rmtree(project.phase_dir("finalization"))
    assert f"mltrainer {MADE_BY} made it; this is 0.10.0" in stale(project)


@pytest.mark.usefixtures("later")
def test_a_version_that_was_never_released_is_not_believed(finished: Callable[[str], Project]) -> None:
    project = finished("digits")
    next(releases.FOLDER.iterdir()).rename(releases.FOLDER / "0.8.0.json")
    assert f"mltrainer {MADE_BY} made it; this is 0.10.0" in stale(project)


@pytest.mark.usefixtures("later")
def test_a_phase_is_not_run_on_records_of_an_earlier_release(finished: Callable[[str], Project]) -> None:
    with pytest.raises(GateError, match=f"is of another mltrainer: expected 0.10.0, found {MADE_BY}") as caught:
        gates_before(finished("digits"), "finalization")
    assert caught.value.hint == "mltrainer phase run planning"


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("name", ["final_report.md", "final_model/README.md"])
def test_an_edited_report_of_an_earlier_release_is_caught(name: str, finished: Callable[[str], Project]) -> None:
    project = finished("digits")
    path = project.phase_dir("finalization") / name
    path.write_text(path.read_text().replace("accuracy", "ACCURACY", 1))
    assert f"{name} is not the report that gate.json binds" in stale(project)


@pytest.mark.usefixtures("later")
def test_the_next_step_of_a_stale_project_of_an_earlier_release_is_planning(finished: Callable[[str], Project]) -> None:
    project = finished("digits")
    path = project.phase_dir("finalization") / "final_report.md"
    path.write_text("edited")
    assert (
        "git checkout -- phases/05_finalization/final_report.md where it is committed, or mltrainer phase run planning"
        in stale(project)
    )
    step = advice(derive(project))
    assert step is not None
    assert (step.phase, step.command) == ("planning", "mltrainer phase run planning")


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("is_here", [True, False])
def test_a_report_left_out_of_the_gate_record_is_caught(is_here: bool, finished: Callable[[str], Project]) -> None:
    project = finished("digits")
    if not is_here:
        (project.phase_dir("finalization") / "final_report.md").unlink()
    path = project.phase_dir("finalization") / "gate.json"
    content = json.loads(path.read_bytes())
    content["subject"] = [row for row in content["subject"] if not row["name"].endswith("final_report.md")]
    path.write_text(json.dumps(content))
    assert "final_report.md is not the report that gate.json binds" in stale(project)


@pytest.mark.usefixtures("later")
def test_a_weaker_policy_is_not_excused_by_the_name_of_a_release(finished: Callable[[str], Project]) -> None:
    project = finished("digits")

    def weaken(record: dict[str, Any]) -> None:
        record["policy"]["items"] = record["policy"]["items"][:1]

    reseal(project, weaken, "finalization")
    assert "the handbook's checklist of this phase changed" in stale(project)


@pytest.mark.usefixtures("later")
def test_numbers_of_an_earlier_release_still_follow_from_each_other(finished: Callable[[str], Project]) -> None:
    project = finished("digits")

    def better(record: dict[str, Any]) -> None:
        record["evidence"]["acceptance"][0]["value"] = 0.999

    reseal(project, better, "finalization")
    assert "acceptance" in stale(project)


def test_this_version_needs_no_release(finished: Callable[[str], Project]) -> None:
    project = finished("digits")
    assert [gate.holds for gate in check_gates(project)] == [True] * len(PHASES)
