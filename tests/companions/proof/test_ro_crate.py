"""A project's RO-Crate, by its own validator in an environment of its own, and by the files that are there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.companions.proof.documents.ro_crate import CRATE_FILE, ro_crate
from mltrainer.records.reading import sound_record
from mltrainer.workspace import Project, pretty_json
from tests.projects import evidence_of, kept

VALIDATOR = Path(__file__).parents[3] / "build/crate/bin/python"
FILLED = Answers(license="https://spdx.org/licenses/Apache-2.0", creator="Our team", published="2026-11-29")
# The context that the package rocrate brings, of a later version, answers each request: the validator asks the network for it.
PROGRAM = """
import json, pathlib, sys
import requests, rocrate
from rocrate_validator import models, services
from rocrate_validator.utils.http import HttpRequester

def answered(self, url, *args, **kwargs):
    response = requests.Response()
    response.status_code, response.url = 200, url
    response._content = (pathlib.Path(rocrate.__file__).parent / "data/ro-crate.jsonld").read_bytes()
    response.headers["Content-Type"] = "application/ld+json"
    return response

HttpRequester.get = HttpRequester.fetch_fresh = answered
settings = services.ValidationSettings(
    rocrate_uri=pathlib.Path(sys.argv[1]),
    profile_identifier="process-run-crate-0.5",
    requirement_severity=models.Severity.REQUIRED,
)
print(json.dumps([issue.message for issue in services.validate(settings).get_issues()]))
"""


def crate(project: Project, answers: Answers = FILLED) -> dict[str, Any]:
    record = sound_record(project, "finalization")
    assert record is not None
    return ro_crate(record, answers)


def faults(project: Project, answers: Answers = FILLED) -> list[str]:
    """Return what the validator requires and does not find; files that a clone lacks are made, empty."""
    content = crate(project, answers)
    for entity in content["@graph"]:
        if entity["@type"] == "File":
            (project.root / entity["@id"]).touch()
    (project.root / CRATE_FILE).write_bytes(pretty_json(content))
    done = subprocess.run([VALIDATOR, "-c", PROGRAM, project.root], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not VALIDATOR.exists(), reason="roc-validator is in build/crate: make crate-test")
@pytest.mark.parametrize("name", ["digits", "houses", "script"])
def test_the_validator_finds_a_process_run_crate_once_a_person_has_answered(name, tmp_path):
    project = kept(f"0.9/{name}", tmp_path)
    assert faults(project) == []
    assert any("license" in fault for fault in faults(project, Answers()))


def test_the_training_made_the_model_from_the_data(tmp_path):
    project = kept("0.9/houses", tmp_path)
    graph = {entity["@id"]: entity for entity in crate(project)["@graph"]}
    evidence = evidence_of(project, "finalization")
    training = graph[f"#{evidence['run']['id']}"]
    assert training["object"] == [{"@id": "houses.csv"}]
    assert {row["@id"]: graph[row["@id"]]["sha256"] for row in training["result"]} == {
        row["path"]: row["sha256"] for row in evidence["model_files"]
    }
    named = {row["@id"] for row in graph["./"]["hasPart"]}
    assert named == {entity["@id"] for entity in graph.values() if entity["@type"] == "File"}
