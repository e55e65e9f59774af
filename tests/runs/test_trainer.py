"""A phase's page chooses its tool: a team's own too, with what it can show, and never less than what makes a run believable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.pages import MINIMUM, phase_page, policy_changes, shipped_page, tool_page
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates
from mltrainer.handbook import shipped_folder
from mltrainer.records.reading import read_record
from mltrainer.workspace import Project
from tests.projects import write_rings

MANIFEST = """---
title: Our trainer
tool: our_trainer
entry_point: our_code.trainer
phases: [planning, baseline]
capabilities: [repeat, weights_digest, identity]
environment: {PYTHONHASHSEED: "0"}
inputs: [job.json]
outputs: [result.json]
---

# Our trainer
"""
TRAINER = """
import hashlib, pathlib, random
from mltrainer.tools.own import Data, Evaluation, Trained

def work(job, tell):
    data = pathlib.Path("numbers.txt").read_bytes()
    draw, numbers = random.Random(job["config"]["seed"]), [float(line) for line in data.split()]
    weight, losses, steps = 0.0, [], min(job.get("max_steps") or 20, 20)
    for step in range(steps):
        number = draw.choice(numbers)
        losses.append((number - weight) ** 2)
        weight += 0.1 * (number - weight)
    tell("note", text=f"weight {weight:.3f}")
    return Trained(
        weights_sha256=hashlib.sha256(repr(weight).encode()).hexdigest(),
        data=Data(sha256=hashlib.sha256(data).hexdigest(), files=("numbers.txt",), train=len(numbers), validation=2),
        losses=losses,
        history=[
            Evaluation(step=step, epoch=step / 5, train_loss=1 / step, validation={"accuracy": round(0.8 + step / 1000, 3)})
            for step in sorted({1, max(1, steps // 2), steps})
        ],
        planned_steps=20, planned_epochs=4, batch_size=1, parameters=1,
    )
"""


def write_page(root: Path, phase: str, *changes: tuple[str, str]) -> None:
    path = root / f"phases/{phase}/workflow.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (shipped_folder() / f"phases/{phase}/workflow.md").read_text()
    for before, after in (("tool: training_orchestrator", "tool: our_trainer"), *changes):
        assert before in text
        text = text.replace(before, after, 1)
    path.write_text(text)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose planning and baseline are done by a tool of its own."""
    write_rings(tmp_path, task={"use": "our_code.trainer:work"}, split={"validation": 0.2, "test": 0.0})
    files = {"our_code/trainer.py": TRAINER, "tools/our_trainer/README.md": MANIFEST, "numbers.txt": "1\n2\n3\n4\n5\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for phase in ("01_planning", "02_baseline"):
        write_page(tmp_path, phase)
    return Project(tmp_path)


def not_applicable(project: Project, phase: int) -> dict[str, Any]:
    return {i.id: i.evidence.get("rule") for i in check_gates(project)[phase].items if i.verdict == "not_applicable"}


@pytest.mark.slow
def test_a_tool_of_a_teams_own_carries_a_project_to_its_diagnosis(project, cli):
    said = cli("run", "--until", "diagnostics", "--project", project.root)
    gates = check_gates(project)
    assert [gate.phase for gate in gates if gate.holds][:2] == ["planning", "baseline"], said.err + said.out
    assert not_applicable(project, 0) == {
        "seeds_fixed": "our_trainer, which trained this, cannot show draws",
        "determinism_on": "our_trainer, which trained this, cannot show switches",
        "export_rehearsed": "our_trainer, which trained this, cannot show checkpoints",
    }
    assert not_applicable(project, 1)["checkpoints_verified"] == "our_trainer, which trained this, cannot show checkpoints"
    assert not_applicable(project, 2)["gradients_checked"] == "our_trainer, which trained this, cannot show gradients"
    report = (project.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert "tools/our_trainer/README.md" in report
    assert "cannot show switches" in report
    assert "our_trainer" in "".join(policy_changes(phase_page("baseline", project.root), shipped_page("baseline")))
    baseline = read_record(project, "baseline")
    assert {row["path"] for row in baseline.evidence["run"]["code_files"]} == {"our_code/trainer.py"}
    assert baseline.evidence["run"]["metrics"] == {"accuracy": 0.82}
    again = cli("reproduce", "baseline", "--json", "--project", project.root)
    assert (again.code, again.json["identical"], again.json["steps_compared"]) == (0, True, 20), again.out

    (project.root / "tools/our_trainer/README.md").write_text(MANIFEST.replace("identity]", "identity, draws]"))
    assert "tools/our_trainer/README.md changed what it declares" in check_gates(project)[0].stale[0]


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_a_tool_that_does_not_repeat_is_caught_by_the_item_that_may_not_be_absent(project, cli):
    (project.root / "our_code/trainer.py").write_text(TRAINER.replace('job["config"]["seed"]', "__import__('time').time_ns()"))
    cli("phase", "run", "planning", "--project", project.root, code=4)
    assert "probe_identical" in {item.id for item in check_gates(project)[0].failing}


FAULTS = {
    "returns nothing": ("return Trained(", "return dict(", "batch_size=1", "batch_size=0", "batch_size"),
    "makes too many steps": ('min(job.get("max_steps") or 20, 20)', "20", "", "", "at most 8 steps"),
    "measures no metric": ('"accuracy"', '"other"', "", "", "an evaluation has no accuracy"),
    "raises": ("weight, losses", "raise ValueError('no numbers'); weight, losses", "", "", "ValueError: no numbers"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("fault", FAULTS)
def test_what_such_a_tool_does_wrong_is_told(project, cli, fault):
    before, after, second, instead, told = FAULTS[fault]
    (project.root / "our_code/trainer.py").write_text(TRAINER.replace(before, after).replace(second, instead))
    cli("phase", "run", "planning", "--project", project.root, code=1, err=told)


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_what_a_result_cannot_hold_is_told_to_who_returned_it(project, cli):
    (project.root / "our_code/trainer.py").write_text(TRAINER.replace("parameters=1,", "parameters=1, more={'mood': 1},"))
    said = cli("phase", "run", "planning", "--project", project.root, code=1)
    assert "tool our_trainer, more: it returned no result of a run: mood: Extra inputs are not permitted" in said.err


@pytest.mark.parametrize("lacking", MINIMUM)
def test_what_no_tool_may_lack(project, lacking):
    kept = ", ".join(name for name in MINIMUM if name != lacking)
    page = project.root / "tools/our_trainer/README.md"
    page.write_text(re.sub(r"capabilities: .*", f"capabilities: [{kept}]", MANIFEST))
    with pytest.raises(InputError, match=f"it lacks {lacking}"):
        tool_page("our_trainer", project.root)


def test_a_tool_sets_what_the_tool_that_it_names_sets_below_its_own(project):
    page = project.root / "tools/our_trainer/README.md"
    own = 'environment: {PYTHONHASHSEED: "0"}'
    page.write_text(MANIFEST.replace(own, "environment_of: training_orchestrator\nenvironment: {TZ: Asia/Tokyo, OURS: one}"))
    usual = tool_page("training_orchestrator", None).environment
    assert tool_page("our_trainer", project.root).environment == {**usual, "TZ": "Asia/Tokyo", "OURS": "one"}
    page.write_text(MANIFEST.replace(own, "environment_of: trainer"))
    with pytest.raises(InputError, match="there is no tool 'trainer'") as refused:
        tool_page("our_trainer", project.root)
    assert refused.value.where == "tools/our_trainer/README.md, key environment_of"


def test_a_tool_of_ones_own_is_ones_own_code_and_a_shipped_one_is_mltrainers(project):
    page = project.root / "tools/our_trainer/README.md"
    page.write_text(MANIFEST.replace("our_code.trainer", "mltrainer.tools.trainer"))
    with pytest.raises(InputError, match="is the project's code"):
        tool_page("our_trainer", project.root)
    shipped = shipped_folder() / "tools/training_orchestrator/README.md"
    own = project.root / "tools/training_orchestrator/README.md"
    own.parent.mkdir()
    own.write_text(shipped.read_text().replace("entry_point: mltrainer.tools.trainer", "entry_point: our_code.trainer"))
    with pytest.raises(InputError, match="training_orchestrator is mltrainer"):
        tool_page("training_orchestrator", project.root)


def test_what_an_item_needs_is_not_for_a_project_to_say(project):
    write_page(project.root, "02_baseline", ("  - id: losses_finite\n", "  - id: losses_finite\n    needs: draws\n"))
    with pytest.raises(InputError, match="'losses_finite' needs no capability"):
        phase_page("baseline", project.root)


@pytest.mark.parametrize(("tool", "told"), [("no_tool", "there is no tool 'no_tool'"), ("training_explorer", "serves no phase")])
def test_a_page_that_names_no_tool_of_its_phase_is_refused(project, cli, tool, told):
    write_page(project.root, "01_planning", ("tool: our_trainer", f"tool: {tool}"))
    cli("phase", "run", "planning", "--project", project.root, code=1, err=told)
