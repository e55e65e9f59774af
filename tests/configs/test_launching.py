"""`launch` of a config: what it may say, and that it decides nothing of a run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import mltrainer
from mltrainer.configs.launching import Launching
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.errors import InputError
from mltrainer.records.job import SearchJob
from mltrainer.runs.launcher import AS_CONFIGURED, Placement
from tests.projects import PROJECT
from tests.search.test_program import study


def of(**launch: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**PROJECT, "epochs": 2, "launch": launch})


def test_where_runs_are_trained_renames_none():
    assert config_digest(of(engine="slurm", slurm={"partition": "gpu", "time": 60})) == config_digest(of())


@pytest.mark.parametrize(
    ("slurm", "why"),
    [
        ({"job-name": "mine"}, "set by the search"),
        ({"-n": 2}, "no long name"),
        ({"Partition": "x"}, "no long name"),
        ({"clusters": "other"}, "another cluster"),
    ],
)
def test_an_option_of_sbatch_that_would_lose_a_job_is_refused(slurm, why):
    with pytest.raises(ValidationError, match=why):
        Launching(engine="slurm", slurm=slurm)


@pytest.mark.parametrize("value", [None, True, 1.5, [60]])
def test_a_value_that_is_no_option_s_is_told_once_by_its_key(value):
    with pytest.raises(InputError) as caught:
        validate_values(TrainingConfig, {**PROJECT, "epochs": 2, "launch": {"slurm": {"time": value}}}, "training_config.yaml")
    said = str(caught.value)
    assert "key launch.slurm: time: text or a whole number was expected" in said
    assert "\n" not in said.partition("\n  next")[0]


def test_a_command_places_the_jobs_of_many_runs_alone():
    job = SearchJob.model_validate({**study({}, 1), "workers": 3})
    placed = Placement(engine="slurm", workers=8).applied(job)
    assert isinstance(placed, SearchJob)
    assert (placed.engine, placed.workers, placed.written()["workers"]) == ("slurm", 8, 8)
    assert AS_CONFIGURED.applied(job) is job


@pytest.mark.parametrize("option", [{"launch": "slurm"}, {"workers": 2}])
def test_a_phase_without_trials_takes_no_engine(tmp_path, option):
    (tmp_path / "mltrainer.yaml").write_text("name: x\n")
    with pytest.raises(InputError, match="baseline trains no trials; optimization does"):
        mltrainer.Project(tmp_path).phase("baseline", **option)
