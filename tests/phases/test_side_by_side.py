"""What is imported beside a training, and what would slow that down."""

from __future__ import annotations

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.phases.side_by_side import SPARE_MB, has_room
from tests.search.test_program import config


@pytest.mark.parametrize(
    ("changes", "workers", "cores", "spare_mb", "expected"),
    [
        ({}, 0, 2, SPARE_MB, True),
        ({}, 0, 1, SPARE_MB, False),
        ({"threads": 2}, 0, 2, SPARE_MB, False),
        ({"threads": 2}, 0, 3, SPARE_MB, True),
        ({}, 1, 2, SPARE_MB, False),
        ({}, 2, 4, SPARE_MB, True),
        ({}, 0, 2, SPARE_MB - 1, False),
        ({"device": "cuda"}, 0, 16, SPARE_MB, False),
    ],
)
def test_a_process_beside_a_training_needs_a_core_and_memory_that_are_free(changes, workers, cores, spare_mb, expected):
    trained = TrainingConfig.model_validate(config(**changes, loader={"workers": workers}))
    assert has_room(trained, cores, spare_mb) is expected
