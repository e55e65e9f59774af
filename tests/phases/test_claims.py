"""A claim through all phases: answered where it was fixed beforehand, called late where it was not, whoever seals the records."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.figures.bound import data_digest
from mltrainer.gates.claims import CLAIM_FILE
from mltrainer.gates.gate import check_gates
from mltrainer.project.engine import render_phase
from mltrainer.reports.render import render
from mltrainer.workspace import PHASES, Project, pretty_json, read_json, seal, sha256_file
from tests.conftest import commit, git, shared, succeed
from tests.projects import as_cloned, evidence_of, recorded, write_light_template

HYPOTHESIS = "A larger learning rate helps"
SEARCH = ("trials=2", "strategy=random", "space={optimizer.lr: {choice: [0.003]}}", "pruning=null", "trial={epochs: 2}")
REPORT = "diagnostic_report.md"
Record = dict[str, Any]


def start(folder: Path, acceptance: str = ">= 0.7") -> None:
    """Make a project whose baseline learns too slowly."""
    succeed("init", folder, "--example", "digits")
    project = Project(folder)
    values = yaml.safe_load(project.file.read_text())
    values |= {"acceptance": {"accuracy": acceptance}, "model": {"name": "mlp", "hidden": [32]}}
    project.file.write_text(yaml.safe_dump(values))
    write_light_template(folder)
    commit(folder)


def plan(folder: Path) -> None:
    settings = ("epochs=3", "early_stopping=null", "optimizer.lr=0.0002")
    succeed("phase", "run", "planning", "--project", folder, *(word for one in settings for word in ("--set", one)))


def search(folder: Path) -> None:
    succeed("run", "--until", "diagnostics", "--project", folder)
    succeed("phase", "run", "optimization", "--project", folder, *(word for one in SEARCH for word in ("--set", one)))


def walk(folder: Path) -> None:
    start(folder)
    succeed("claim", HYPOTHESIS, "--least", "0.05", "--project", folder)
    commit(folder)
    plan(folder)
    search(folder)
    commit(folder)
    succeed("run", "--project", folder)
    commit(folder)


@pytest.fixture(scope="session")
def claimed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project through all phases whose claim holds; not to be changed."""
    return shared(tmp_path_factory, "claimed", walk)


@pytest.fixture
def claimed(claimed_once: Path, tmp_path: Path) -> Project:
    """A copy of it, for a test to break."""
    return Project(Path(shutil.copytree(claimed_once, tmp_path / "claimed", symlinks=True)))


def first_lines(project: Project, phase: str) -> str:
    """Return the part of a phase's report that is seen without scrolling."""
    report = {"planning": "reproducibility_manifest.md", "optimization": "tuning_results.md", "finalization": "final_report.md"}
    return "\n".join((project.phase_dir(phase) / report[phase]).read_text().split("\n")[:8])


# --- fixed beforehand -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_claim_that_holds_is_answered_in_the_first_lines(claimed, cli):
    found = evidence_of(claimed, "optimization")["claim"]
    assert (found["verdict"], found["seeds"], found["why"]) == ("holds", 5, None)
    assert found["difference"] > found["claim"]["least"]
    assert found["rows"][0] > found["claim"]["least"]
    assert HYPOTHESIS in first_lines(claimed, "planning")
    for phase in ("optimization", "finalization"):
        assert f"Claim: **holds**. {HYPOTHESIS} (the search's best config raises accuracy" in first_lines(claimed, phase)
    final = evidence_of(claimed, "finalization")
    delivered = final["run"]["metrics"]["accuracy"] - final["baseline_metrics"]["accuracy"]
    assert final["claim"]["delivered"] == pytest.approx(delivered)
    cli("gate", "check", "--project", claimed.root, code=0, out="all gates hold")
    assert cli("claim", "--project", claimed.root, code=0).out.startswith(f"holds: {HYPOTHESIS}")
    assert cli("claim", "--json", "--project", claimed.root, code=0).json["answer"] == final["claim"]
    clone = as_cloned(claimed.root, claimed.root.parent / "clone")
    cli("gate", "check", "--project", clone.root, code=0, out="all gates hold")


@pytest.mark.slow
@pytest.mark.long
def test_a_claim_that_fails_is_answered_as_plainly_and_has_the_seeds_that_it_states(tmp_path, cli):
    start(tmp_path / "own", acceptance=">= 0.01")
    succeed("claim", HYPOTHESIS, "--least", "0.9", "--seeds", "6", "--project", tmp_path / "own")
    plan(tmp_path / "own")
    search(tmp_path / "own")
    project = Project(tmp_path / "own")
    assert evidence_of(project, "diagnostics")["recommendation"] == "deploy"  # a search follows all the same
    assert f"the claim is about its best config ({HYPOTHESIS})" in (project.phase_dir("diagnostics") / REPORT).read_text()
    found = evidence_of(project, "optimization")["claim"]
    assert (found["verdict"], found["seeds"]) == ("does not hold", 6)
    assert f"Claim: **does not hold**. {HYPOTHESIS}" in first_lines(project, "optimization")
    cli("gate", "check", "--project", project.root, code=0)


@pytest.mark.slow
def test_a_template_of_the_projects_own_cannot_leave_the_answer_out(claimed):
    path = "phases/04_optimization/report.md.j2"
    (claimed.root / path).write_text(f'{{% extends "{path}" %}}{{% block summary %}}All is well.{{% endblock %}}')
    report = render(recorded(claimed, "optimization"), [], [], claimed.root)["tuning_results.md"]
    assert "All is well." in report
    assert "Claim: **holds**." in report


@pytest.mark.slow
def test_each_run_of_a_phase_holds_the_claim_that_it_was_trained_under(claimed):
    expected = read_json(claimed.root / CLAIM_FILE)["seal"]
    assert {evidence_of(claimed, phase)["run"]["claim"] for phase in ("baseline", "finalization")} == {expected}


def test_without_a_claim_no_record_and_no_report_says_a_word_of_one(digits, cli):
    for phase in PHASES:
        assert "claim" not in evidence_of(digits, phase)
        assert "claim" not in evidence_of(digits, phase).get("run", {})
    reports = [path.read_text() for phase in PHASES for path in digits.phase_dir(phase).glob("*.md")]
    assert not [report for report in reports if "Claim:" in report or "**Claim" in report]


# --- late, and honest about it ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_a_claim_after_the_baseline_is_called_late_wherever_it_is_shown(claimed, cli):
    (claimed.root / CLAIM_FILE).unlink()
    said = cli("claim", "Something else", "--least", "0.05", "--project", claimed.root, code=0)
    assert "numbers are known already (accuracy" in said.out
    cli("gate", "check", "planning", "--project", claimed.root, code=4, out="claim.json (claim) changed")
    plan(claimed.root)
    search(claimed.root)
    why = "it was changed after numbers were known (accuracy"
    assert f"**The claim cannot be answered**: {why}" in first_lines(claimed, "planning")
    assert f"hypothesis '{HYPOTHESIS}' -> 'Something else'" in first_lines(claimed, "planning")
    assert "Claim: **undecided**. Something else" in first_lines(claimed, "optimization")
    said = cli("gate", "check", "--json", "--project", claimed.root, code=4).json  # finalization has not run again
    told = {gate["name"]: gate["notes"] for gate in said["phases"]}
    assert all(told[phase][0].startswith(f"the claim cannot be answered: {why}") for phase in ("planning", "optimization"))


@pytest.mark.slow
@pytest.mark.long
def test_a_claim_that_is_removed_after_a_loss_stays_in_the_reports(claimed, cli):
    (claimed.root / CLAIM_FILE).unlink()
    cli("gate", "check", "planning", "--project", claimed.root, code=4, out="claim.json (claim) is missing")
    plan(claimed.root)
    search(claimed.root)
    for phase in ("planning", "optimization"):
        assert "it was removed after numbers were known (accuracy" in first_lines(claimed, phase)
        assert HYPOTHESIS in first_lines(claimed, phase)
    cli("gate", "check", "optimization", "--project", claimed.root, code=0, out="it was removed after numbers were known")


@pytest.mark.slow
@pytest.mark.long
def test_a_claim_that_planning_did_not_bind_stops_the_baseline(tmp_path, cli):
    start(tmp_path / "own")
    plan(tmp_path / "own")
    succeed("claim", HYPOTHESIS, "--least", "0.05", "--project", tmp_path / "own")
    said = cli("phase", "run", "baseline", "--project", tmp_path / "own", code=4)
    assert "claim.json was made, and planning's record does not bind it" in said.err
    assert "mltrainer phase run planning" in said.err


@pytest.mark.slow
@pytest.mark.long
def test_planning_refuses_a_claim_about_another_metric(tmp_path, cli):
    start(tmp_path / "own")
    succeed("claim", HYPOTHESIS, "--least", "0.05", "--project", tmp_path / "own")
    project = Project(tmp_path / "own")
    project.file.write_text(project.file.read_text().replace("name: accuracy", "name: f1_macro"))
    said = cli("phase", "run", "planning", "--project", project.root, code=1)
    assert "claim.json: the claim is about the unknown metric 'accuracy'; expected 'f1_macro'" in said.err


# --- with fresh seals -------------------------------------------------------------------------------


def rewrite(project: Project, change: Callable[[str, Record], None]) -> None:
    """Change all records consistently: with new seals, new digests of their inputs, and reports of our own code."""
    before = None
    for phase in PHASES:
        record = recorded(project, phase)
        change(phase, record["evidence"])
        data, folder = data_digest(phase, record["evidence"]), project.phase_dir(phase)
        rows = [now(project, row) for row in record["inputs"] if row["role"] != "claim" or (project.root / CLAIM_FILE).exists()]
        figures = [{**row, "data_sha256": data or row["data_sha256"]} for row in record["figures"]]
        forged = seal({**record, "inputs": rows, "figures": figures, "previous": before})
        (folder / "record.json").write_bytes(pretty_json(forged))
        render_phase(project, phase)
        before = sha256_file(folder / "record.json")


def now(project: Project, row: Record) -> Record:
    """Return the row of an input with the digest that its file has now."""
    path = project.root / row["path"]
    return {**row, "sha256": sha256_file(path), "size": path.stat().st_size} if path.is_file() else row


def results(project: Project, claim: str | None) -> None:
    """Let the results of all runs say that they were trained under a claim, with new seals."""
    for path in project.runs_dir.glob("*/result.json"):
        content = {key: value for key, value in read_json(path).items() if key != "claim"}
        path.write_bytes(pretty_json(seal({**content, **({"claim": claim} if claim else {})})))


def swapped(project: Project, **changes: Any) -> Record:
    """Write a claim with changes and a new seal, and return it."""
    made = seal({**read_json(project.root / CLAIM_FILE), **changes})
    (project.root / CLAIM_FILE).write_bytes(pretty_json(made))
    return made


def carried(made: Record | None, **answer: Any) -> Callable[[str, Record], None]:
    """Return a change of records by which all of them hold a claim, or none, as if it had always been so."""

    def change(phase: str, evidence: Record) -> None:
        if "claim" in evidence:
            held = {"planning": {"claim": made, "known": []}, "diagnostics": (made or {}).get("hypothesis")}
            evidence["claim"] = held[phase] if phase in held else {**evidence["claim"], "claim": made, **answer}
            evidence.pop("claim") if made is None else None
        if "run" in evidence:
            evidence["run"] = {**evidence["run"], "claim": made["seal"]} if made else without(evidence["run"])

    return change


def without(run: Record) -> Record:
    return {key: value for key, value in run.items() if key != "claim"}


def faults(project: Project) -> str:
    return "\n".join(reason for gate in check_gates(project) for reason in gate.stale)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "answer", "named"),
    [
        ({"mode": "min"}, {"verdict": "does not hold"}, "claim.claim.mode is 'min', expected 'max'"),
        ({"metric": "f1_macro"}, {}, "claim.claim.metric is 'f1_macro', expected 'accuracy'"),
        ({"seeds": 8}, {}, "claim.verdict is 'holds', expected 'undecided'"),
        ({"least": 0.9}, {}, "claim.verdict is 'holds', expected 'does not hold'"),
    ],
)
def test_a_claim_that_was_exchanged_in_all_records_contradicts_them(claimed, changes, answer, named):
    made = swapped(claimed, **changes)
    results(claimed, made["seal"])
    rewrite(claimed, carried(made, **answer))
    shutil.rmtree(claimed.root / ".git")
    assert named in faults(claimed)


@pytest.mark.slow
def test_an_honest_rewrite_changes_nothing(claimed):
    rewrite(claimed, lambda phase, evidence: None)
    assert faults(claimed) == ""


@pytest.mark.slow
def test_a_lower_least_difference_in_all_records_is_found_in_gits_history(claimed):
    made = swapped(claimed, least=0.01)
    results(claimed, made["seal"])
    rewrite(claimed, carried(made))
    assert "the claim was made or changed after numbers were known, which the record denies: accuracy" in faults(claimed)
    shutil.rmtree(claimed.root / ".git")
    assert faults(claimed) == ""  # nothing else holds the old one: what the page on planning says


@pytest.mark.slow
def test_a_claim_that_was_removed_from_all_records_is_found_in_gits_history(claimed):
    (claimed.root / CLAIM_FILE).unlink()
    results(claimed, None)
    rewrite(claimed, carried(None))
    assert f"the claim was removed after numbers were known: '{HYPOTHESIS}' is in git's history and not here" in faults(claimed)


@pytest.mark.slow
def test_a_record_that_denies_that_its_claim_is_late_contradicts_its_baseline(claimed):
    made = swapped(claimed, hypothesis="Something else")
    results_of_before = carried(made)

    def change(phase: str, evidence: Record) -> None:
        run = evidence.get("run")
        results_of_before(phase, evidence)
        if run is not None:
            evidence["run"] = run  # the runs are as they were trained

    rewrite(claimed, change)
    shutil.rmtree(claimed.root / ".git")
    assert "claim.verdict is 'holds', expected 'undecided'" in faults(claimed)


@pytest.mark.slow
def test_a_claim_in_answers_alone_contradicts_a_plan_without_one(claimed):
    def change(phase: str, evidence: Record) -> None:
        if phase == "planning":
            evidence.pop("claim")

    (claimed.root / CLAIM_FILE).unlink()
    rewrite(claimed, change)
    git(claimed.root, "rm", "--cached", "--quiet", CLAIM_FILE)
    shutil.rmtree(claimed.root / ".git")
    assert "claim.why is" in faults(claimed)
