"""The baseline of a finished project."""

from __future__ import annotations

from mltrainer import handbook
from mltrainer.companions.monitor.run import WatchedRun
from mltrainer.diagnostics.rules import RULES
from mltrainer.follow.log import note_alert
from mltrainer.workspace import Project
from tests.projects import evidence_of

FIRES = {
    "bad_initialization": [("times: 2", "times: 0.5")],
    "dead_units": [("share_else: 0.8", "share_else: 0.05"), ("solved: 0.95", "solved: 2")],
}


def test_it_stands_beside_plain_models_on_its_own_rows_with_the_test_split_sealed(digits_once):
    project = Project(digits_once)
    splits = evidence_of(project, "planning")["data"]["splits"]
    evidence = evidence_of(project, "baseline")
    found = evidence["references"]
    assert found["reason"] is None
    assert (found["train_samples"], found["samples"]) == (splits["train"]["samples"], splits["validation"]["samples"])
    assert found["network"]["metrics"]["accuracy"] == evidence["run"]["metrics"]["accuracy"]
    assert [row["name"] for row in found["rows"]] == ["constant", "linear", "neighbours"]
    assert found["rows"][0]["verdict"] == "ahead"
    assert all(row["interval"][0] <= row["metrics"]["accuracy"] <= row["interval"][1] for row in found["rows"])
    report = (project.phase_dir("baseline") / "baseline_results.md").read_text()
    assert "5 nearest neighbours" in report


def test_the_final_model_is_compared_with_the_same_fits(digits_once):
    project = Project(digits_once)
    both = [evidence_of(project, phase)["references"] for phase in ("baseline", "finalization")]
    fits = [[(row["name"], row["seconds"], row["metrics"]) for row in found["rows"]] for found in both]
    assert fits[0] == fits[1]
    assert "5 nearest neighbours" in (project.phase_dir("finalization") / "final_report.md").read_text()


def test_report_monitor_and_diagnose_say_the_same_of_a_run(cli, digits):
    for name, changes in FIRES.items():
        page = handbook.copy_page(f"diagnostics/{name}.md", digits.root)
        for shipped, own in changes:
            page.write_text(page.read_text().replace(shipped, own, 1))
    cli("phase", "run", "baseline", "--project", digits.root, code=0)
    found = cli("diagnose", "baseline", "--json", "--project", digits.root).json["diagnostics"]
    said = {row["id"]: row["reason"] for row in found if row["state"] == "fired"}
    assert set(said) == set(FIRES)
    report = (digits.phase_dir("baseline") / "baseline_results.md").read_text()
    assert {name for name in said if f"- `{name}` fired: {said[name]} " in report} == set(said)
    run = WatchedRun(digits, evidence_of(digits, "baseline")["run"]["id"])
    note_alert(run.folder, {"event": "alert", "diagnostic": "loss_spike", "reason": "Told in mid-run, and not so of the whole."})
    run.look()
    assert {row.id: row.reason for row in run.facts().findings} == said


def test_its_report_says_how_many_diagnostics_looked_where_none_fired(digits_once):
    report = (Project(digits_once).phase_dir("baseline") / "baseline_results.md").read_text()
    assert f" None of {len(RULES)} diagnostics fired." in report


def test_the_memory_of_each_evaluation_is_recorded_and_judged(digits_once):
    evidence = evidence_of(digits_once, "baseline")
    assert min(row["memory_mb"] for row in evidence["run"]["history"]) > 50
    assert len([row for row in evidence["run"]["history"] if "signals" in row]) == 4  # at these the model is observed
    (found,) = (row for row in evidence["diagnostics"] if row["id"] == "memory_growth")
    assert found["state"] == "clear"
