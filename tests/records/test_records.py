"""Records are models: what a phase writes fits them, a hole is named by its path."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mltrainer.records import schemas
from mltrainer.records.envelope import EVIDENCE, parsed
from mltrainer.records.reading import SCHEMA, read_record, record_of
from mltrainer.workspace import PHASES, Project, pretty_json, seal
from tests.projects import recorded

Record = dict[str, Any]
KEPT = sorted((Path(__file__).parents[1] / "kept").glob("*/*.tar.gz"))


def records_of(archive: Path) -> list[Record]:
    with tarfile.open(archive) as files:
        members = [files.extractfile(member) for member in files if member.name.endswith("/record.json")]
        return [json.loads(member.read()) for member in members if member]


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, Record]]:
    """The records of finished projects, by project and phase."""
    return {
        f"{archive.parent.name}/{archive.name}": {record["phase"]: record for record in records_of(archive)} for archive in KEPT
    }


@pytest.mark.parametrize("phase", PHASES)
def test_records_of_finished_projects_fit(phase, golden):
    for records in golden.values():
        typed, holes = parsed(records[phase], phase)
        assert holes == []
        assert typed.schema_number == SCHEMA


def test_what_this_version_writes_has_its_schema_number(digits_once):
    for phase in PHASES:
        record = read_record(Project(digits_once), phase)
        assert not record.faults
        assert recorded(digits_once, phase)["schema"] == SCHEMA


HOLES: list[tuple[str, str, list[Any]]] = [
    ("planning", "evidence.probe.runs.1.draws: Field required", ["evidence", "probe", "runs", 1, "draws"]),
    ("planning", "evidence.config: Field required", ["evidence", "config"]),
    ("baseline", "evidence.run.history.0.validation: Field required", ["evidence", "run", "history", 0, "validation"]),
    ("diagnostics", "evidence.assessment.fit: Field required", ["evidence", "assessment", "fit"]),
    ("optimization", "evidence.trials.1.nr: Field required", ["evidence", "trials", 1, "nr"]),
    ("optimization", "evidence.skipped: Field required", ["evidence", "skipped"]),
    ("finalization", "evidence.test.openings.0.run: Field required", ["evidence", "test", "openings", 0, "run"]),
    ("finalization", "source.commit: Field required", ["source", "commit"]),
]


@pytest.mark.parametrize(("phase", "told", "path"), HOLES)
def test_a_hole_is_named_by_its_path(phase, told, path, golden):
    record = json.loads(json.dumps(golden["0.9/houses.tar.gz"][phase]))
    place = record
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    assert parsed(record, phase) == (None, [told])


WRONG: list[tuple[str, Any, str]] = [
    ("minutes", "soon", "evidence.estimate.minutes: Input should be a number"),
    ("minutes", float("inf"), "evidence.estimate.minutes: Input should be a number"),
    ("minutes", True, "evidence.estimate.minutes: Input should be a number"),
    ("hours", 1, "evidence.estimate.hours: Extra inputs are not permitted"),
]


@pytest.mark.parametrize(("field", "value", "told"), WRONG)
def test_a_wrong_value_is_named_by_its_path(field, value, told, golden):
    record = json.loads(json.dumps(golden["0.9/digits.tar.gz"]["planning"]))
    record["evidence"]["estimate"][field] = value
    assert parsed(record, "planning")[1] == [told]


@pytest.mark.parametrize("evidence", [None, [], {}, "x"])
@pytest.mark.parametrize("phase", PHASES)
def test_evidence_of_any_other_form_is_told_and_never_raises(phase, evidence, golden):
    typed, holes = parsed({**golden["0.9/digits.tar.gz"][phase], "evidence": evidence}, phase)
    assert typed is None
    assert all(hole.startswith("evidence") for hole in holes)


def test_a_hole_in_a_sealed_record_makes_its_gate_stale_by_name(tmp_path, golden):
    record = json.loads(json.dumps(golden["0.9/digits.tar.gz"]["planning"]))
    del record["evidence"]["probe"]["runs"][1]["draws"]
    path = tmp_path / "phases/01_planning/record.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(pretty_json(seal(record)))
    found = read_record(Project(tmp_path), "planning")
    assert found.faults == (
        "phases/01_planning/record.json lacks what planning records: evidence.probe.runs.1.draws: Field required",
    )


@pytest.mark.parametrize(("once", "key"), [('"phase": "planning"', "phase"), ('"epochs": 20', "epochs")])
def test_a_key_that_stands_twice_is_named_wherever_it_stands(once, key, golden):
    text = pretty_json(golden["0.9/houses.tar.gz"]["planning"]).decode()
    assert once in text
    found = record_of(text.replace(once, f"{once}, {once}", 1).encode(), "planning", "record.json")
    assert found.faults == (f"record.json was edited: it has the key {key} twice",)


def test_a_record_of_another_phase_is_told(golden):
    found = record_of(pretty_json(golden["0.9/houses.tar.gz"]["planning"]), "baseline", "record.json")
    assert found.faults == ("record.json is the record of phase 'planning', expected 'baseline'",)


def test_numbers_stay_as_they_were_written(golden):
    record = golden["0.9/digits.tar.gz"]["planning"]
    typed, _ = parsed(record, "planning")
    assert repr(typed.evidence.estimate.available_mb) == repr(record["evidence"]["estimate"]["available_mb"])


def models(model: type[BaseModel]) -> list[type[BaseModel]]:
    return [model, *(below for child in model.__subclasses__() for below in models(child))]


def test_every_model_is_frozen_and_refuses_what_it_does_not_know():
    from mltrainer.records.common import Part

    for model in models(Part):
        assert model.model_config["frozen"] is True
        assert model.model_config["extra"] == "forbid"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EVIDENCE, "verdict"])
def test_the_committed_json_schemas_are_those_of_the_models(name):
    path = schemas.FOLDER / f"{name}.json"
    assert path.read_bytes() == pretty_json(schemas.schemas()[f"{name}.json"]), "make schemas"


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_golden_records_fit_the_committed_json_schemas(phase, golden):
    import jsonschema

    schema = json.loads((schemas.FOLDER / f"{phase}.json").read_bytes())
    for records in golden.values():
        jsonschema.validate(records[phase], schema)
