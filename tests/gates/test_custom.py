"""Custom gate items: what their function said when the phase ran counts, is shown as such, and binds what it came from."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer import __version__
from mltrainer.configs.pages import Item, PhasePage, phase_page, policy_changes, shipped_page
from mltrainer.errors import InputError
from mltrainer.executors.sandbox import unavailable
from mltrainer.gates.check import CHECKS
from mltrainer.gates.custom import NOT_RECORDED, judge
from mltrainer.gates.gate import check_gates, evaluate
from mltrainer.handbook import shipped_folder
from mltrainer.project.engine import render_phase
from mltrainer.workspace import Project
from tests.conftest import Cli, Said, succeed
from tests.gates.evidence import kept, reseal, typed
from tests.projects import as_cloned, recorded

RECORD = kept("baseline", run={"metrics": {"accuracy": 0.9}})
CODE = """
def good_enough(evidence, settings):
    value = (evidence.run or evidence).metrics["accuracy"]
    print("looking at", value)
    if value < settings["at_least"]:
        return {"verdict": "fail", "evidence": {"accuracy": value}, "mend": "bring more data"}
    return {"verdict": "pass", "evidence": {"accuracy": value, "kind": type(evidence).__name__}}
"""
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


def judged(root: Path, code: str = CODE, **changes: Any) -> Any:
    """Return the one item of a page as a gate shows it once its phase has run."""
    (root / "our_gates.py").write_text(code)
    page = page_of(**changes)
    row = judge(page, RECORD["evidence"], root, isolated=unavailable() is None)
    return evaluate(typed({**RECORD, "custom_checks": row}), page, [], root)[0]


def page_of(**changes: Any) -> PhasePage:
    return PhasePage(title="", phase="baseline", tool="training_orchestrator", artifacts=[], items=[item(**changes)])


@pytest.mark.slow
def test_what_the_function_says_counts(tmp_path):
    held = judged(tmp_path)
    assert (held.verdict, held.evidence, held.mend) == ("pass", {"accuracy": 0.9, "kind": "Baseline"}, None)
    assert held.statement == "It is. (by the project's own check, our_gates:good_enough, not recomputed here)"
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_function_that_is_at_fault_fails_its_item_with_the_reason(tmp_path, fault):
    code, reason = FAULTS[fault]
    found = judged(tmp_path, code)
    assert found.verdict == "fail"
    assert reason in found.evidence["own_check"]
    assert found.mend == "fix our_gates:good_enough, then mltrainer phase run baseline"


def test_a_function_that_takes_too_long_fails_its_item_and_leaves_no_process_behind(tmp_path):
    code = "import subprocess, time\ndef good_enough(e, s):\n    subprocess.Popen(['sleep', '60'])\n    time.sleep(60)"
    begun = time.monotonic()
    found = judged(tmp_path, code, settings={"seconds": 0.5})
    assert found.evidence == {"own_check": "it took longer than 0.5 s"}
    assert time.monotonic() - begun < 20


def test_a_module_that_is_not_the_projects_own_is_none(tmp_path):
    found = judged(tmp_path, check="json:loads")
    assert found.evidence == {"own_check": "there is no module 'json' in the project"}


@pytest.mark.slow
def test_the_shells_secrets_are_not_handed_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "abcdefgh12345678")
    code = "import os\ndef good_enough(e, s):\n    return {'verdict': 'pass', 'evidence': {'names': sorted(os.environ)}}"
    assert "SERVICE_TOKEN" not in judged(tmp_path, code).evidence["names"]


def test_without_a_recorded_verdict_an_item_does_not_hold(tmp_path):
    (tmp_path / "our_gates.py").write_text(CODE)
    found = evaluate(typed({**RECORD, "mltrainer": __version__}), page_of(), [], tmp_path)[0]
    assert (found.verdict, found.evidence) == ("fail", {"own_check": NOT_RECORDED})


def test_an_item_without_a_check_is_told_how_to_name_one(tmp_path):
    found = judged(tmp_path, check=None)
    assert (found.verdict, found.evidence) == ("fail", {"missing": "no check is named good_enough"})
    assert 'check: "my_project.gates:good_enough"' in found.mend


# --- on a project's page --------------------------------------------------------------------------


@pytest.fixture
def own(digits_once: Path, tmp_path: Path) -> Project:
    """A finished project, as a clone has it, with an item of its own in diagnostics."""
    return with_own_item(digits_once, tmp_path)


def with_own_item(finished: Path, folder: Path) -> Project:
    project = as_cloned(finished, folder)
    (folder / "our_gates.py").write_text(CODE)
    write_page(folder, ("items:\n", OWN))
    return project


@pytest.fixture(scope="module")
def judged_once(digits_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = with_own_item(digits_once, tmp_path_factory.mktemp("judged")).root
    succeed("phase", "run", "diagnostics", "--project", folder)
    return folder


@pytest.fixture
def done(judged_once: Path, tmp_path: Path) -> Project:
    """The same, once diagnostics ran: the verdict is recorded."""
    shutil.copytree(judged_once, tmp_path, dirs_exist_ok=True)
    return Project(tmp_path)


def write_page(root: Path, *changes: tuple[str, str]) -> None:
    name = "phases/03_diagnostics/workflow.md"
    text = (shipped_folder() / name).read_text()
    for before, after in changes:
        text = text.replace(before, after, 1)
    (root / name).write_text(text)


def test_an_own_item_decides_a_gate_is_marked_and_bound_to_its_file(done):
    report = (done.phase_dir("diagnostics") / "diagnostic_report.md").read_text()
    assert "our_gates:good_enough" in report.replace("\\", "")
    gate = check_gates(done)[2]
    assert (gate.holds, gate.items[0].id, gate.items[0].verdict) == (True, "good_enough", "pass")
    assert "our_gates:good_enough" in "".join(policy_changes(phase_page("diagnostics", done.root), shipped_page("diagnostics")))
    with open(done.root / "our_gates.py", "a") as file:
        file.write("# edited\n")
    assert "our_gates.py (code of the check our_gates:good_enough) changed" in check_gates(done)[2].stale[0]


def test_a_shipped_item_cannot_be_given_another_check(own):
    write_page(own.root, ("  - id: fit_assessed\n", '  - id: fit_assessed\n    check: "our_gates:good_enough"\n'))
    with pytest.raises(InputError, match="'fit_assessed' is computed by mltrainer alone"):
        phase_page("diagnostics", own.root)


def test_no_shipped_page_names_an_own_check():
    shipped = [item for phase in ("planning", "baseline", "diagnostics") for item in phase_page(phase, None).items]
    assert all(item.check is None and item.id in CHECKS for item in shipped)


def test_who_looks_at_a_gate_is_told_that_a_verdict_is_not_recomputed_and_how_many_are(done, cli):
    said = cli("gate", "check", "diagnostics", "-v", "--project", done.root)
    assert "by the project's own check, not recomputed here: accuracy " in said.out
    assert said.out.splitlines()[-2:] == ["all gates hold", f"1 verdict is {COUNTED}"]
    items = cli("gate", "check", "diagnostics", "--json", "--project", done.root).json["phases"][0]["items"]
    assert [item["id"] for item in items if not item["recomputed"]] == ["good_enough"]


COUNTED = "by the project's own checks, not recomputed here: mltrainer gate check --custom-checks"


def edit_record(project: Project, change: Callable[[dict[str, Any]], None]) -> str:
    """Change the record as somebody would who seals it again, and return what is stale."""
    reseal(project, change, "diagnostics")
    return "\n".join(check_gates(project)[2].stale)


CHANGED = {
    "other evidence": (
        lambda r: r["evidence"].update(evaluations=999),
        "good_enough was judged by other evidence than the record's",
    ),
    "other settings": (
        lambda r: r["custom_checks"][0].update(settings_sha256="0" * 64),
        "good_enough was judged by other settings than its page's present ones",
    ),
    "another function": (
        lambda r: r["custom_checks"][0].update(check="our_gates:better"),
        "good_enough was judged by our_gates:better, and its page now names our_gates:good_enough",
    ),
    "no code": (lambda r: r["custom_checks"][0].update(code=[]), "good_enough was judged by code that the record does not name"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_verdict_binds_evidence_settings_and_code(done, cli, what):
    change, reason = CHANGED[what]
    assert f"{reason}; next: mltrainer phase run diagnostics" in edit_record(done, change)


@pytest.mark.slow
def test_what_a_check_imports_and_opens_of_the_project_is_bound_with_it(own, cli):
    (own.root / "our_gates.py").write_text(
        "import our_limits\n" + CODE.replace("    value", "    open('limit.txt')\n    value", 1)
    )
    (own.root / "our_limits.py").write_text("")
    (own.root / "limit.txt").write_text("0.5")
    cli("phase", "run", "diagnostics", "--project", own.root)
    record = recorded(own, "diagnostics")
    assert [row["path"] for row in record["custom_checks"][0]["code"]] == ["limit.txt", "our_gates.py", "our_limits.py"]
    (own.root / "limit.txt").write_text("0.6")
    assert "limit.txt (code of the check our_gates:good_enough) changed" in check_gates(own)[2].stale[0]


def test_a_verdict_that_was_taken_out_of_a_record_does_not_hold(done, cli):
    edit_record(done, lambda record: record.pop("custom_checks"))
    assert check_gates(done)[2].items[0].evidence == {"own_check": NOT_RECORDED}


# --- run again ------------------------------------------------------------------------------------


def again(project: Project, cli: Cli, *words: str) -> Said:
    return cli("gate", "check", "diagnostics", "--custom-checks", *words, "--project", project.root)


@pytest.mark.slow
def test_a_check_that_is_run_again_and_says_the_same_is_recomputed(done, cli):
    said = again(done, cli)
    assert (said.code, said.out.splitlines()[-1]) == (0, "all gates hold")
    assert again(done, cli, "--json").json["phases"][0]["items"][0]["recomputed"] is True


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"verdict": "pass"}, {"verdict": "fail", "evidence": {"accuracy": 0.99}}])
def test_a_recorded_verdict_that_its_check_does_not_give_fails(own, cli, change):
    write_page(own.root, ("items:\n", OWN.replace("at_least: 0.5", "at_least: 0.99")))
    cli("phase", "run", "diagnostics", "--project", own.root)
    edit_record(own, lambda record: record["custom_checks"][0].update(change))
    render_phase(own, "diagnostics")
    said = again(own, cli, "--json")
    item = said.json["phases"][0]["items"][0]
    assert (said.code, item["verdict"], item["evidence"]["now"]["verdict"]) == (4, "fail", "fail")
    assert item["evidence"]["recorded"] != item["evidence"]["now"]


def test_where_no_process_can_be_closed_off_and_nobody_can_be_asked_nothing_is_run(done, cli, monkeypatch):
    (done.root / "our_gates.py").write_text("open('ran', 'w')\n" + CODE)
    monkeypatch.setattr("mltrainer.executors.sandbox.unavailable", lambda: "no namespaces")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    said = again(done, cli)
    assert (said.code, (done.root / "ran").exists()) == (7, False)
    assert "diagnostics: good_enough: checks of the project's own cannot be closed off here (no namespaces)" in said.err


@pytest.mark.slow
def test_a_phase_says_that_a_check_runs_as_the_user_where_no_process_can_be_closed_off(own, cli, monkeypatch):
    told = "the project's own check runs as you"
    assert told not in cli("phase", "run", "diagnostics", "--project", own.root).err
    monkeypatch.setattr("mltrainer.project.engine.unavailable", lambda: "no namespaces")
    said = cli("phase", "run", "diagnostics", "--project", own.root)
    assert f"our_gates:good_enough: {told}, with your files and the network" in said.err
    assert "(no namespaces)" in said.err
    assert check_gates(own)[2].items[0].verdict == "pass"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 7)])
def test_where_no_process_can_be_closed_off_a_person_at_the_terminal_is_asked(done, cli, monkeypatch, answer, code):
    monkeypatch.setattr("mltrainer.executors.sandbox.unavailable", lambda: "no namespaces")
    typed_in = io.StringIO(f"{answer}\n")
    monkeypatch.setattr(typed_in, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed_in)
    said = again(done, cli)
    assert (said.code, "Run as you, they can read your files" in said.err) == (code, True)
