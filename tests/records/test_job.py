"""A tool's job is checked as it is made and as it comes back from its file, and keeps its entries on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mltrainer.errors import InputError
from mltrainer.records.job import TrainingJob, parsed
from mltrainer.workspace import plain
from tests.projects import PROJECT

GIVEN: dict[str, Any] = {"run": "r", "purpose": "train", "folder": "f", "threads": 1, "contract": {}}
GIVEN |= {"config": {**PROJECT, "name": "rings"}}


def test_a_job_comes_back_from_its_file_with_the_entries_that_it_was_given():
    job = TrainingJob.model_validate({**GIVEN, "rungs": [(1, 0.5), (3, 0.75)], "max_steps": None})
    again = parsed(json.loads(json.dumps(plain(job.written()))), "job.json")
    assert again == job
    assert job.written().keys() == {"schema", *GIVEN, "rungs", "max_steps"}
    assert job.written()["config"] == job.config.model_dump()


def test_an_entry_that_no_tool_could_read_is_refused_by_its_path():
    with pytest.raises(InputError, match=r"it is no job: training.purpose: Input should be"):
        parsed({**GIVEN, "purpose": "play"}, "job.json")


@pytest.mark.parametrize("wrong", [[[1]], [["1", 0.5]], [[None, 0.5]], [[1, "nan"]], [[1, 0.5, 2]]])
def test_rungs_of_another_form_are_refused(wrong):
    with pytest.raises(InputError, match="rungs"):
        parsed({**GIVEN, "rungs": wrong}, "job.json")
