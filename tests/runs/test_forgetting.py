"""The runs that may have made the first steps of a training without some samples."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.records.job import TrainingJob
from mltrainer.runs.forgetting import earlier_runs
from mltrainer.runs.retrain import run_id
from mltrainer.workspace import Project, write_json
from tests.projects import PROJECT

OTHERS = {"data_sha256": "1", "code_sha256": "2", "environment_sha256": "3"}


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**PROJECT, **changes})


def contract(one: TrainingConfig, **others: str) -> dict[str, str]:
    return {"config_sha256": config_digest(one), **OTHERS, **others}


def write_job(project: Project, one: TrainingConfig, purpose: str = "train", **others: str) -> str:
    """Write the job of a run, and return its id."""
    made = contract(one, **others)
    run = run_id(made)
    keys: dict[str, Any] = {"config": one, "contract": made, "phase": "baseline", "threads": one.threads, "purpose": purpose}
    job = TrainingJob(run=run, folder=f".mltrainer/runs/{run}", **keys)
    write_json(project.runs_dir / run / "job.json", job.written())
    return run


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def found(project: Project, one: TrainingConfig) -> list[str]:
    return earlier_runs(project, contract(one, data_sha256="of fewer samples"), one)


def test_runs_that_differ_in_the_forgotten_samples_alone_are_found(project):
    whole, first = write_job(project, config()), write_job(project, config(forget="a.txt"), data_sha256="4")
    assert {*found(project, config(forget="b.txt"))} == {whole, first}
    assert found(project, config(forget="a.txt")) == [whole]
    # What decides no bit may differ.
    assert {*found(project, config(forget="b.txt", checkpoint={"keep": 5}))} == {whole, first}
    assert found(project, config()) == []


@pytest.mark.parametrize(
    ("changes", "others", "purpose"),
    [
        ({"seed": 7}, {}, "train"),
        ({}, {"code_sha256": "5"}, "train"),
        ({}, {"environment_sha256": "5"}, "train"),
        ({}, {"inputs_sha256": "5"}, "train"),
        ({}, {"parent_sha256": "5"}, "train"),
        ({}, {}, "explore"),
    ],
)
def test_runs_that_differ_in_more_are_not(project, changes, others, purpose):
    write_job(project, config(**changes), purpose, **others)
    assert found(project, config(forget="b.txt")) == []


def test_an_edited_job_lends_nothing(project):
    run = write_job(project, config())
    path = project.runs_dir / run / "job.json"
    path.write_text(path.read_text().replace('"seed": 42', '"seed": 43'))
    assert found(project, config(forget="b.txt")) == []
