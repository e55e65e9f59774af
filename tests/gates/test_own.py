"""A team's own gate items: what their function says counts, whatever is wrong with it fails them, and they replace nothing."""

from __future__ import annotations

import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.pages import Item, PhasePage, phase_page, policy_changes
from mltrainer.errors import InputError
from mltrainer.gates.check import CHECKS
from mltrainer.gates.gate import check_gates, evaluate
from mltrainer.gates.own import NOT_RUN
from mltrainer.handbook import shipped_folder
from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.gates.evidence import kept, typed

RECORD = kept("baseline", run={"metrics": {"accuracy": 0.9}})
CODE = """
def good_enough(evidence, settings):
    value = (evidence.run or evidence).metrics["accuracy"]
    print("looking at", value)
    if value < settings["at_least"]:
        return {"verdict": "fail", "evidence": {"accuracy": value}, "mend": "bring more data"}
    return {"verdict": "pass", "evidence": {"accuracy": value, "kind": type(evidence).__name__}}
"""
RINGS = Path(__file__).parents[1] / "kept/0.1/rings.tar.gz"
OWN = """items:
  - id: good_enough
    statement: The model is good enough for us.
    waivable: true
    check: "our_gates:good_enough"
    settings: {at_least: 0.5}
"""


def item(**changes: Any) -> Item:
    told = {"id": "good_enough", "statement": "It is.", "check": "our_gates:good_enough", "settings": {"at_least": 0.5}}
    return Item.model_validate({**told, **changes})


def judged(root: Path | None, code: str = CODE, **changes: Any) -> Any:
    """Return the one item of a page, as a gate shows it."""
    if root is not None:
        (root / "our_gates.py").write_text(code)
    page = PhasePage(title="", phase="baseline", tool="training_orchestrator", artifacts=[], items=[item(**changes)])
    return evaluate(typed(RECORD), page, [], root)[0]


def test_what_the_function_says_counts(tmp_path: Path) -> None:
    held = judged(tmp_path)
    assert (held.verdict, held.evidence, held.mend) == ("pass", {"accuracy": 0.9, "kind": "Baseline"}, None)
    assert held.statement == "It is. (this project's own check: our_gates:good_enough)"
    failed = judged(tmp_path, settings={"at_least": 0.95})
    assert (failed.verdict, failed.evidence, failed.mend) == ("fail", {"accuracy": 0.9}, "bring more data")


DEF = "def good_enough(e, s):\n    "
FAULTS = {
    "raises": (DEF + "raise ValueError('no such class')", "ValueError: no such class"),
    "ends the process": ("import os\ndef good_enough(e, s):\n    os._exit(0)", "the process ended before the function returned"),
    "is not there": ("", "has no attribute 'good_enough'"),
    "cannot be imported": ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
    "returns no mapping": (DEF + "return True", "must return a mapping"),
    "returns another verdict": (DEF + "return {'verdict': 'waived'}", "its verdict is 'waived'"),
    "names no rule": (DEF + "return {'verdict': 'not_applicable'}", "names the rule"),
    "returns too much": (
        DEF + "return {'verdict': 'pass', 'evidence': {'a': 'b' * 30000}}",
        "at most 20000",
    ),
    "changes the evidence": (
        DEF + "e.run.metrics = {'accuracy': 1.0}",
        "ValidationError",
    ),
    "returns what is no JSON": (
        DEF + "return {'verdict': 'pass', 'evidence': {'a': object()}}",
        "PydanticSerializationError",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_function_that_is_at_fault_fails_its_item_with_the_reason(tmp_path: Path, fault: str) -> None:
    code, reason = FAULTS[fault]
    found = judged(tmp_path, code)
    assert found.verdict == "fail"
    assert reason in found.evidence["own_check"]
    assert found.mend == "mend our_gates:good_enough, then mltrainer phase run baseline"


def test_a_function_that_takes_too_long_fails_its_item_and_leaves_no_process_behind(tmp_path: Path) -> None:
    code = "import subprocess, time\ndef good_enough(e, s):\n    subprocess.Popen(['sleep', '60'])\n    time.sleep(60)"
    begun = time.monotonic()
    found = judged(tmp_path, code, settings={"seconds": 0.5})
    assert found.evidence == {"own_check": "it took longer than 0.5 s"}
    assert time.monotonic() - begun < 20


def test_a_module_that_is_not_the_projects_own_is_none(tmp_path: Path) -> None:
    found = judged(tmp_path, check="json:loads")
    assert found.evidence == {"own_check": "there is no module 'json' in the project"}


def test_the_shells_secrets_are_not_handed_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "abcdefgh12345678")
    code = "import os\ndef good_enough(e, s):\n    return {'verdict': 'pass', 'evidence': {'names': sorted(os.environ)}}"
    assert "SERVICE_TOKEN" not in judged(tmp_path, code).evidence["names"]


def test_where_own_checks_are_not_run_their_items_do_not_hold() -> None:
    assert judged(None).evidence == {"own_check": NOT_RUN}


def test_an_item_without_a_check_is_told_how_to_name_one(tmp_path: Path) -> None:
    found = judged(tmp_path, check=None)
    assert (found.verdict, found.evidence) == ("fail", {"missing": "no check is named good_enough"})
    assert 'check: "my_project.gates:good_enough"' in found.mend


# --- on a project's page --------------------------------------------------------------------------


@pytest.fixture
def rings(tmp_path: Path) -> Project:
    """A finished project, as a clone has it, with an item of its own in diagnostics."""
    with tarfile.open(RINGS) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "our_gates.py").write_text(CODE)
    write_page(tmp_path, ("items:\n", OWN))
    return Project(tmp_path)


def write_page(root: Path, *changes: tuple[str, str]) -> None:
    name = "phases/03_diagnostics/workflow.md"
    text = (shipped_folder() / name).read_text()
    for before, after in changes:
        text = text.replace(before, after, 1)
    (root / name).write_text(text)


def test_an_own_item_decides_a_gate_is_marked_and_bound_to_its_file(rings: Project, cli: Cli) -> None:
    said = cli("phase", "run", "diagnostics", "--project", rings.root)
    report = (rings.phase_dir("diagnostics") / "diagnostic_report.md").read_text()
    assert "our_gates:good_enough" in report.replace("\\", "")
    gate = check_gates(rings)[2]
    assert (gate.holds, gate.items[0].id, gate.items[0].verdict) == (True, "good_enough", "pass"), said
    assert "our_gates:good_enough" in "".join(policy_changes(phase_page("diagnostics", rings.root)))
    with open(rings.root / "our_gates.py", "a") as file:
        file.write("# edited\n")
    assert "our_gates.py (check) changed" in check_gates(rings)[2].stale[0]


def test_a_shipped_item_cannot_be_given_another_check(rings: Project) -> None:
    write_page(rings.root, ("  - id: fit_assessed\n", '  - id: fit_assessed\n    check: "our_gates:good_enough"\n'))
    with pytest.raises(InputError, match="'fit_assessed' is computed by mltrainer alone"):
        phase_page("diagnostics", rings.root)


def test_no_shipped_page_names_an_own_check() -> None:
    shipped = [item for phase in ("planning", "baseline", "diagnostics") for item in phase_page(phase, None).items]
    assert all(item.check is None and item.id in CHECKS for item in shipped)
