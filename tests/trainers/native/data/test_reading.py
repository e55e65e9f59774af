"""Samples that workers read: the same bits whatever the loader's settings, workers that stay, and faults told as they are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MachineError
from mltrainer.tasks.opening import Samples
from mltrainer.tools.program import explained
from mltrainer.trainers.native.data.addresses import evaluation_batches, plan_for, training_steps
from tests.trainers.native.digits_runs import CONFIG, make, same, train
from tests.waiting import has_ended, until


class Numbers(Dataset[Any]):
    """Tells the process in which a sample was read; some samples fail."""

    def __init__(self, fail: Any = None) -> None:
        self.fail = fail

    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> Any:
        if self.fail is not None and place == 5:
            return self.fail()
        return torch.tensor([place, os.getpid()]), place


def samples(fail: Any = None) -> Samples:
    return Samples(np.arange(40), None, Numbers(fail), root=Path(__file__).parent)


def config(**loader: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**CONFIG, "epochs": 3, "loader": loader})


def processes(batches: list[tuple[torch.Tensor, ...]]) -> set[int]:
    return {int(pid) for batch in batches for pid in batch[0][:, 1]}


@pytest.mark.slow
def test_no_setting_of_the_loader_changes_a_bit(tmp_path):
    plain = train(make(tmp_path / "plain"), loader={"workers": 0}, epochs=2)
    other = {"workers": 2, "prefetch": 7, "pin_memory": False}
    assert same(train(make(tmp_path / "other"), loader=other, epochs=2), plain)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Sums(Dataset[Any]):
    """Sums whose last bits depend on how many threads share the work."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> Any:
        return torch.randn(1_000_000).sum(), torch.get_num_threads()


def test_operations_of_a_data_set_have_the_same_threads_in_every_process(two_threads):
    held = [
        list(evaluation_batches(Samples(np.arange(8), None, Sums()), np.arange(8), config(workers=number), "validation"))
        for number in (0, 1)
    ]
    assert [part.tolist() for part in held[0][0]] == [part.tolist() for part in held[1][0]]
    assert torch.get_num_threads() == 2


def test_training_keeps_its_workers_over_all_epochs():
    chosen = config(workers=2)
    plan = plan_for(chosen, samples())
    steps = list(training_steps(samples(), plan, chosen, 0))
    epochs = [steps[low : low + plan.steps_per_epoch] for low in range(0, plan.steps, plan.steps_per_epoch)]
    seen = [processes([batch for step in epoch for batch in step.micro_batches]) for epoch in epochs]
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 2
    assert os.getpid() not in seen[0]


def test_evaluations_keep_their_workers_and_read_what_is_asked_for():
    held = samples()
    read = [list(evaluation_batches(held, np.arange(count), config(workers=2), "validation")) for count in (3, 40, 40)]
    assert [[int(n) for batch in part for n in batch[1]] for part in read] == [[*range(3)], [*range(40)], [*range(40)]]
    assert processes(read[0]) == processes(read[2])
    workers = processes(read[0])
    held.loaders.clear()
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def broken() -> Any:
    raise KeyError("label")


def unequal() -> Any:
    return torch.zeros(3), 0


def unreadable() -> Any:
    raise OSError(28, "No space left on device", "/data/5")


def dead() -> Any:
    os._exit(3)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("fail", "kind", "message"),
    [
        (broken, InputError, "sample 5 of your data set: KeyError: 'label'"),
        (unequal, InputError, "do not make one batch"),
        (unreadable, MachineError, "No space left on device"),
    ],
)
def test_a_fault_of_the_data_set_is_told_the_same_from_a_worker(workers, fail, kind, message):
    held = samples(fail)
    with pytest.raises(kind, match=message) as caught:
        list(evaluation_batches(held, np.arange(40), config(workers=workers), "validation"))
    assert ("test_reading.py:" in str(caught.value)) == (fail is broken)
    del caught  # it holds the loader, whose worker would be waited for
    held.loaders.clear()


def hanging() -> Any:
    print(os.getpid(), flush=True)
    time.sleep(60)


def read_for_ever() -> None:
    list(evaluation_batches(samples(hanging), np.arange(40), config(workers=1), "validation"))


@pytest.mark.slow
def test_a_worker_that_hangs_ends_with_the_process_that_it_reads_for():
    code = "from tests.trainers.native.data.test_reading import read_for_ever; read_for_ever()"
    root = Path(__file__).parents[4]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root) as process:
        worker = int(process.stdout.readline())
        process.kill()
    until(lambda: has_ended(worker))


def test_a_worker_that_dies_is_named(tmp_path):
    batches = evaluation_batches(samples(dead), np.arange(40), config(workers=1), "validation")
    with pytest.raises(RuntimeError) as caught:
        list(batches)
    found = explained(caught.value, tmp_path, tmp_path)
    assert isinstance(found, InputError)
    assert "a process that loads your samples ended" in str(found)
    assert "loader.workers=0" in str(found.hint)
