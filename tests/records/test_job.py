"""What a tool is given is checked, as it is in memory and as it comes back from a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mltrainer.records.job import faults_of


def about_rungs(rungs: Any) -> list[str]:
    return [fault for fault in faults_of({"rungs": rungs}) if "rungs" in fault]


def test_the_rungs_of_a_trial_that_is_trained_again_are_read_from_its_file() -> None:
    rungs = [(1, 0.5), (3, 0.75)]
    assert about_rungs(rungs) == []
    assert about_rungs(json.loads(json.dumps(rungs))) == []


@pytest.mark.parametrize("wrong", [[[1]], [["1", 0.5]], [[None, 0.5]], [[1, "nan"]], [[1, 0.5, 2]]])
def test_rungs_of_another_form_are_refused(wrong: Any) -> None:
    assert about_rungs(wrong)
