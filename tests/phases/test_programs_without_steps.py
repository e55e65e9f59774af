"""A program without PyTorch through the five phases: what it leaves is compared in place of steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mltrainer.gates.checks import run_check
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.records.envelope import parsed
from mltrainer.records.reading import read_record
from mltrainer.workspace import Project
from tests.conftest import Cli, commit
from tests.projects import evidence_of
from tests.sample_programs import write_program

NOT_SEEN = "not applicable: no step of a PyTorch optimizer was seen"
PLAIN = """import argparse, json, pickle, random, time

began = time.time()
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--points", type=int, default=200)
asked = parser.parse_args()
random.seed(asked.seed)
rows = [[float(cell) for cell in line.split(",")] for line in open("train.csv")]
weights = max(
    ([random.gauss(0, 1), random.gauss(0, 1)] for _ in range(asked.points)),
    key=lambda w: sum((w[0] * a + w[1] * b > 0) == bool(y) for a, b, y in rows),
)


def accuracy(rows):
    return sum((weights[0] * a + weights[1] * b > 0) == bool(y) for a, b, y in rows) / len(rows)


pickle.dump(weights, open("model.pkl", "wb"))
validation = [[float(cell) for cell in line.split(",")] for line in open("validation.csv")]
found = {"accuracy": accuracy(validation), "train_accuracy": accuracy(rows), "fit_seconds": time.time() - began}
json.dump(found, open("metrics.json", "w"))
"""
TASK: dict[str, Any] = {"arguments": {"points": 50}, "metrics": "metrics.json", "outputs": ["model.pkl"]}
SKLEARN = """import argparse, json, time
import joblib
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--trees", type=int)
parser.add_argument("--seed", type=int)
asked = parser.parse_args()
began = time.time()
x, y = load_breast_cancer(return_X_y=True)
x, other_x, y, other_y = train_test_split(x, y, random_state=0)
model = GradientBoostingClassifier(n_estimators=asked.trees, subsample=0.5, random_state=asked.seed).fit(x, y)
joblib.dump(model, "model.joblib")
found = {"accuracy": model.score(other_x, other_y), "train_accuracy": model.score(x, y), "fit_seconds": time.time() - began}
json.dump(found, open("metrics.json", "w"))
"""


def plain(folder: Path, text: str = PLAIN, **task: Any) -> Project:
    return write_program(folder, text, **{**TASK, **task})


def gate(project: Project, phase: str) -> Gate:
    return next(gate for gate in check_gates(project) if gate.phase == phase)


def item(project: Project, phase: str, name: str) -> Any:
    return next(item for item in gate(project, phase).items if item.id == name)


def planned(project: Project, cli: Cli) -> Any:
    return cli("phase", "run", "planning", "--project", project.root)


@pytest.mark.slow
def test_planning_runs_the_whole_program_and_compares_what_it_leaves(tmp_path, cli):
    project = plain(tmp_path)
    said = planned(project, cli)
    assert said.code == 0, said.err
    assert said.err.count("no step of a PyTorch optimizer was seen: the whole program runs, and what it leaves is compared") == 1
    found = evidence_of(project, "planning")
    left = found["program"]["left"]
    assert sorted(left) == ["metrics.json: accuracy", "metrics.json: train_accuracy", "model.pkl"]
    assert [row["path"] for row in found["data"]["files"]] == ["train.csv", "validation.csv"]
    assert (found["estimate"]["steps"], found["estimate"]["step_time_us"]) == (None, None)
    assert item(project, "planning", "time_within_budget").verdict == "pass"
    measured = item(project, "planning", "probe_identical").evidence
    assert (measured["steps"], measured["compared"]) == (NOT_SEEN, sorted(left))
    report = (project.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert "ran the whole program, of which no step was seen, and what they left agrees bit for bit" in report
    assert not re.search(r"\b0 steps|step 0\b|\bsteps \| 0", report)
    record = read_record(project, "planning")
    for broken in ({}, {**left, "model.pkl": "0" * 64}):
        edited = {**record.data, "evidence": {**found, "program": {**found["program"], "left": broken}}}
        assert run_check("probe_identical", parsed(edited, "planning")[0], {"min_steps": 2}).verdict == "fail"


UNLIKE = {
    # Of two draws the metrics may agree by chance.
    "a draw without a seed": ("random.seed(asked.seed)\n", "", ("metrics.json: ", "model.pkl"), "random.gauss"),
    "a time in a pickle": ("dump(weights,", "dump([began, weights],", "model.pkl, though the values in JSON agree", "time.time"),
}


@pytest.mark.parametrize("why", UNLIKE)
@pytest.mark.slow
@pytest.mark.long
def test_what_differs_ends_at_planning_with_the_file_and_the_line(tmp_path, cli, why):
    before, after, what, call = UNLIKE[why]
    project = plain(tmp_path, PLAIN.replace(before, after))
    said = planned(project, cli)
    assert said.code == 4, said.err
    apart = item(project, "planning", "probe_identical").evidence["first_difference"]
    assert apart["what"].startswith(what)
    assert apart["expected"] != apart["found"]
    assert "step" not in apart
    assert evidence_of(project, "planning")["probe"]["cause"]["calls"][0]["call"] == call
    assert "step 0" not in said.err
    assert "step 0" not in (project.phase_dir("planning") / "reproducibility_manifest.md").read_text()


@pytest.mark.slow
@pytest.mark.long
def test_what_leaves_nothing_is_refused_at_planning_with_the_way_out(tmp_path, cli):
    project = plain(tmp_path, "print('hello')")
    said = planned(project, cli)
    assert (said.code, "it left none of metrics.json, model.pkl" in said.err) == (1, True), said.err
    assert "task.metrics and task.outputs" in said.err
    assert read_record(project, "planning") is None


@pytest.mark.slow
@pytest.mark.long
def test_a_scikit_learn_program_walks_the_five_phases_and_its_arguments_are_searched(tmp_path, cli):
    task = {"arguments": {"trees": 2}, "metrics": "metrics.json", "outputs": ["model.joblib"], "resume": "python train.py"}
    project = write_program(tmp_path, SKLEARN, acceptance=0.93, **task)
    (tmp_path / "configs").mkdir()
    space = {"task.arguments.trees": {"choice": [4, 30]}}
    search = {"strategy": "grid", "trials": 2, "space": space}
    (tmp_path / "configs/tuning_template.yaml").write_text(json.dumps(search))
    commit(tmp_path, new=True)
    cli("run", "--project", tmp_path, code=0)
    gates = check_gates(project)
    assert all(one.holds for one in gates), [(one.phase, one.stale) for one in gates]
    assert evidence_of(project, "finalization")["reproduction"]["outputs"] == {"model.joblib": True}
    assert (project.phase_dir("finalization") / "final_model" / "model.joblib").is_file()
    record = read_record(project, "finalization")
    final = record.evidence
    left = final["run"]["program"]["left"]
    broken = [
        {"run": {**final["run"], "program": {**final["run"]["program"], "left": {}}}},
        {"run": {**final["run"], "program": {**final["run"]["program"], "left": {**left, "metrics.json: accuracy": "1.0"}}}},
        {"reproduction": {**final["reproduction"], "weights_sha256": "0" * 64}},
        {"reproduction": {**final["reproduction"], "outputs": {}}},
    ]
    verdicts = [
        run_check("reproduction_verified", parsed({**record.data, "evidence": {**final, **part}}, "finalization")[0], {}).verdict
        for part in ({}, *broken)
    ]
    assert verdicts == ["pass", "fail", "fail", "fail", "fail"]
    assert item(project, "diagnostics", "gradients_checked").verdict == "not_applicable"
    rows = {row["id"]: row["state"] for row in evidence_of(project, "diagnostics")["diagnostics"]}
    assert (rows["overfitting"], rows["nan_loss"]) in {("clear", "not_applicable"), ("fired", "not_applicable")}
    for path in sorted((tmp_path / "phases").rglob("*.md")):
        assert not re.search(r"\b0 steps|\bstep 0\b|[:|] nan\b|\bNone\b(?! of)", path.read_text()), path
