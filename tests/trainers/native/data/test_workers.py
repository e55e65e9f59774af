"""How many processes load the samples: the fewest that keep the steps fed, as measured on the samples themselves."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from mltrainer.configs.project import TrainingConfig
from mltrainer.records.planning import Loader, LoaderRow
from mltrainer.tasks.opening import Samples
from mltrainer.trainers.native.data import workers
from mltrainer.trainers.native.data.workers import Limits, choose, counts, expected_wait, workers_needed
from mltrainer.trainers.native.recording import Timings
from tests.trainers.native.digits_runs import CONFIG

LIMITS = Limits(seconds=0.2, largest_wait=0.2, least_s=0.1)


class Slow(Dataset[Any]):
    """Each sample takes two milliseconds, in any process; some cannot be read by another one."""

    def __init__(self, here_only: bool = False) -> None:
        self.here_only = here_only

    def __len__(self) -> int:
        return 200

    def __getitem__(self, place: int) -> Any:
        if self.here_only and get_worker_info() is not None:
            raise RuntimeError("opened by another process")
        time.sleep(0.002)
        return torch.zeros(3), place


def measured(step_s: float, limits: Limits = LIMITS, **options: Any) -> Loader:
    config = TrainingConfig.model_validate(CONFIG)
    return workers_needed(Samples(np.arange(200), None, Slow(**options)), config, step_s, limits)


def test_a_slow_step_needs_no_processes():
    found = measured(step_s=1.0)
    assert (found.workers, len(found.rows), found.needed_per_s) == (0, 1, 16.0)


@pytest.mark.slow
def test_as_many_processes_as_feed_the_steps(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})  # they sleep, so any machine runs them side by side
    found = [measured(step_s=0.02, limits=dataclasses.replace(LIMITS, seconds=0.5))]  # many more than are read ahead at once
    while found[-1].workers < 2 and len(found) < 3:  # a busy machine may give two processes no more than one
        found.append(measured(step_s=0.02, limits=dataclasses.replace(LIMITS, seconds=0.5)))
    rates = [row.samples_per_s for row in found[-1].rows]
    assert found[-1].workers == found[-1].rows[-1].workers == 2
    assert rates[2] > 1.5 * rates[0]


def test_reading_that_takes_no_time_is_not_worth_processes():
    found = measured(step_s=0.001, limits=Limits(0.1, 0.2, least_s=60))
    assert (found.workers, len(found.rows)) == (0, 1)
    assert 1 < found.reading_s < 60


def test_samples_that_no_other_process_can_read_are_read_here():
    found = measured(step_s=0.001, here_only=True)
    assert found.workers == 0
    assert "RuntimeError: opened by another process" in str(found.rows[1].error)


def test_samples_in_memory_are_not_measured():
    held = Samples(np.arange(3), (torch.zeros(3, 2), torch.zeros(3)))
    assert workers_needed(held, TrainingConfig.model_validate(CONFIG), 0.1, LIMITS).workers == 0


def test_a_batch_that_takes_long_is_measured_in_smaller_ones():
    config = TrainingConfig.model_validate({**CONFIG, "batch_size": 10_000})
    assert 1 <= workers._batch_size(Samples(np.arange(200), None, Slow()), config, 0.2) <= 10


@pytest.mark.parametrize(("cores", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (200, [1, 2, 4, 8, 16, 32, 64])])
def test_never_more_processes_than_cores(cores, expected):
    assert counts(cores) == expected


def test_the_expected_wait():
    assert expected_wait(0, 100, 100) == 0.5
    assert [expected_wait(1, rate, 100) for rate in (50, 100, 200)] == [0.5, 0, 0]


@pytest.mark.parametrize(
    ("processes", "steps", "pace"),
    [
        (0, [3, 1, 1, 2, 1], 1),
        (4, [5, 0, 0, 0, 4, 0, 0, 0], 1),  # of the second burst only the beginning is there
        (3, [5, 0, 0, 3], 1),
        (8, [5, 2, 2], 2),
        (2, [5], 5),
        (2, [], 0),
    ],
)
def test_the_pace_of_steps_whose_samples_come_in_bursts(processes, steps, pace):
    timings = Timings()
    timings.step_s.extend(steps)
    assert timings.pace_us(processes) == pace * 1e6


def test_a_wait_for_the_device_belongs_to_the_steps_that_it_computed():
    timings = Timings()
    timings.step_s.extend([1.0, 1.0, 1.0])
    timings.share_out(4.0, 2)
    assert [*timings.step_s] == [1.0, 3.0, 3.0]


def test_where_nothing_feeds_the_steps_the_quickest_is_taken():
    rows = [LoaderRow(workers=n, wait=wait) for n, wait in ((0, 0.9), (1, 0.5), (2, 0.6))]
    assert choose([*rows, LoaderRow(workers=4, error="died")], 0.1) == 1
    assert choose([*rows, LoaderRow(workers=4, wait=0.05), LoaderRow(workers=8, wait=0.0)], 0.1) == 4
