"""The lineage of a file: everything that the records name, in three forms, and nothing that they do not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.companions.registry.graph import RELATIONS, Lineage, Node, as_mermaid, as_text
from mltrainer.companions.registry.origins import _origins
from mltrainer.records.reading import sound_record
from mltrainer.workspace import Project, read_json, write_json
from tests.projects import kept

MODEL = "phases/05_finalization/final_model"


@pytest.fixture(params=["digits", "houses", "rings", "script", "parallel"])
def any_project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return kept(f"0.9/{request.param}", tmp_path)


def traced(cli: Any, *words: Any) -> dict[str, Any]:
    return cli("lineage", *words, "--format", "json", code=0).json


def test_every_kind_of_project_has_the_lineage_that_its_records_name(any_project, cli):
    found = traced(cli, "--project", any_project.root)
    nodes = {node["id"]: node for node in found["nodes"]}
    evidence = sound_record(any_project, "finalization").evidence
    run = nodes[f"run {evidence.run.id}"]
    assert run["phase"] == "finalization"
    used = {edge["target"].partition(" ")[0]: nodes[edge["target"]] for edge in found["edges"] if edge["source"] == run["id"]}
    for kind in ("data", "code", "config", "environment"):
        assert used[kind]["sha256"] == getattr(evidence.run, f"{kind}_sha256")
    assert {f"gate {phase}" for phase in ("planning", "baseline", "diagnostics", "optimization", "finalization")} <= nodes.keys()
    assert nodes["model final_model"]["sha256"] == evidence.delivered_sha256
    assert {edge["relation"] for edge in found["edges"]} <= RELATIONS.keys()
    assert {edge[end] for edge in found["edges"] for end in ("source", "target")} <= nodes.keys()


def test_text_and_drawing_name_each_thing(digits, cli):
    found = traced(cli, "--project", digits.root)
    text = cli("lineage", "--project", digits.root, code=0).out
    drawing = cli("lineage", "--format", "mermaid", "--project", digits.root, code=0).out
    assert text.startswith("model final_model (sha256 ")
    assert drawing.startswith("flowchart LR\n")
    for node in found["nodes"]:
        assert node["id"] in text
        assert node["id"] in drawing
    assert len(re.findall(r"-->\|", drawing)) == len(found["edges"])


def test_a_file_is_found_by_its_digest_under_any_name(digits, tmp_path, cli):
    copy = Path(shutil.copy(digits.root / MODEL / "model.safetensors", tmp_path / "downloaded.bin"))
    assert traced(cli, copy, "--project", digits.root)["focus"] == "model final_model"
    copy.write_bytes(copy.read_bytes()[:-1])
    cli("lineage", copy, "--project", digits.root, code=1, err="no record of this project has a file of sha256")


def test_a_checkpoint_came_from_its_run_alone(digits, cli):
    best = sound_record(digits, "finalization").evidence.run.best_checkpoint
    for what in (best.path, f"{best.path}/state.safetensors"):
        found = traced(cli, digits.root / what, "--project", digits.root)
        assert found["focus"] == f"checkpoint {best.path}"
        assert [edge["relation"] for edge in found["edges"] if edge["source"] == found["focus"]] == ["wasGeneratedBy"]


def test_a_combined_model_came_from_its_used_members():
    members = [SimpleNamespace(path=f"step-{nr}", used=nr != 2) for nr in (1, 2, 3)]
    evidence: Any = SimpleNamespace(delivered_combination=SimpleNamespace(members=members))
    assert [*_origins(evidence)] == ["step-1", "step-3"]


def test_a_fork_came_from_its_parent_and_from_given_weights(digits, cli):
    parent = sound_record(digits, "baseline").evidence.run.id
    job = read_json(digits.runs_dir / parent / "job.json")
    config = {**job["config"], "start": {"weights": "weights/resnet"}}
    write_json(digits.runs_dir / "0123456789ab/job.json", {**job, "run": "0123456789ab", "parent": parent, "config": config})
    text = cli("lineage", "0123456789ab", "--project", digits.root, code=0).out
    assert f"after run {parent} (baseline, " in text
    assert "from weights weights/resnet" in text
    assert "gate finalization" not in text


def test_a_gate_that_does_not_hold_is_called_so(digits, cli):
    (digits.phase_dir("finalization") / "final_report.md").write_text("another")
    assert "judged by gate finalization (does not hold" in cli("lineage", "--project", digits.root, code=0).out


@pytest.mark.slow
def test_a_version_is_traced_without_its_project_and_so_is_a_file_of_it(digits, tmp_path, cli, monkeypatch):
    place = tmp_path / "models"
    cli("registry", "add", "digits", "--registry", place, "--project", digits.root, code=0)
    cli("registry", "promote", "digits:1", "--registry", place, code=0)
    assert "registered as version digits:1" in cli("lineage", "--project", digits.root, code=0).out
    cli("registry", "pull", "digits:1", "--to", tmp_path / "pulled", "--registry", place, code=0)
    shutil.rmtree(digits.root)
    monkeypatch.chdir(tmp_path)
    for what in ("digits@production", tmp_path / "pulled/model.safetensors"):
        found = traced(cli, what, "--registry", place)
        version = next(node for node in found["nodes"] if node["kind"] == "version")
        assert (found["focus"], version["stages"]) == ("version digits:1", ["production"])
        assert version["changes"][0]["checked"][0].startswith("5 gates computed again")
        assert {"data", "code", "config", "environment", "run", "gate", "model"} <= {node["kind"] for node in found["nodes"]}


def test_without_a_delivered_model_it_says_so(tmp_path, cli):
    cli("init", tmp_path / "new", "--example", "digits", code=0)
    cli("lineage", "--project", tmp_path / "new", code=1, err="there is no delivered model yet")


def test_a_name_cannot_leave_its_label_or_its_tree():
    found = Lineage("run a")
    found.link(found.add(Node("run", "a")), "used", found.add(Node("data", 'x"]; click n0 "javascript:alert(1)')))
    found.link("data " + 'x"]; click n0 "javascript:alert(1)', "wasDerivedFrom", "run a")  # a circle ends
    assert as_text(found).count("run a") == 2
    label = as_mermaid(found).splitlines()[2]
    assert re.fullmatch(r'  n1\["[^"\]]*"\]', label)
