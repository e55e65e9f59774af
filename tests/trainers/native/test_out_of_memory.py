"""Memory that runs out in a training: the step and its part are named, with the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.optim.optimizer import _global_optimizer_post_hooks

from mltrainer.configs.less_memory import finer, less_memory
from mltrainer.errors import KilledError, MachineError, OutOfMemoryError
from mltrainer.workspace import read_json
from tests.trainers.native.digits_runs import config, make, train
from tests.trainers.native.test_ranks import train_on

HUNGRY = '''
import os
import resource
import signal
from torch.optim.optimizer import register_optimizer_step_post_hook


class Hungry(Digits):
    """Needs more memory than there is: in some part of a step, for more samples at a time than `most`."""

    def __init__(self, place, step, most=0, rank=None, **given):
        super().__init__(**given)
        self.place, self.at, self.most, self.rank, self.step, self.size = place, step, most, rank, 0, 0
        register_optimizer_step_post_hook(lambda *_: self.need("optimizer"))

    def enter(self, step, length):
        self.step = step

    def model(self):
        model = super().model()
        next(model.parameters()).register_hook(lambda _: self.need("backward"))
        self.made = model
        return model

    def forward(self, model, batch):
        self.size = len(batch[0])
        self.need("forward" if model.training else "evaluation")
        return super().forward(model, batch)

    def need(self, place):
        if place == "evaluation" and self.place == place and self.step == self.at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        is_here = self.rank in (None, os.environ.get("RANK"))
        if place == "evaluation" or self.step < self.at or self.size <= self.most or not is_here:
            return
        if self.place == place:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if self.place == "allocator" and place == "forward":
            held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20), -1))
            torch.empty(1 << 30)
        if self.place == "killed" and place == "forward":
            os.kill(os.getpid(), signal.SIGKILL)
'''
ASKED = "Tried to allocate 2.00 GiB"


@pytest.fixture(autouse=True)
def _without_hooks() -> Iterator[None]:
    """Remove the hooks of a training in this process."""
    yield
    _global_optimizer_post_hooks.clear()


def make_hungry(root: Path) -> Path:
    with open(make(root) / "digits_task.py", "a") as file:
        file.write(HUNGRY)
    return root


def hungry(place: str, step: int, **options: Any) -> dict[str, Any]:
    return {"task": {"use": "digits_task:Hungry", "options": {"place": place, "step": step, **options}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("forward", "in step 4, in the forward pass"),
        ("backward", "in step 4, in the backward pass"),
        ("optimizer", "in step 4, in the optimizer's update"),
        ("evaluation", "after step 6, in the evaluation"),
    ],
)
def test_step_and_part_are_named_with_what_was_asked(tmp_path, place, told):
    with pytest.raises(OutOfMemoryError) as caught:
        train(make_hungry(tmp_path), **hungry(place, 6 if place == "evaluation" else 4))
    assert caught.value.exit_code == 7
    assert caught.value.message == f"out of memory {told}: CUDA out of memory. {ASKED}"
    assert ("--set batch_size=4 --set accumulate=4" in caught.value.hint) == (place != "evaluation")
    assert told in read_json(tmp_path / ".mltrainer/runs/run/error.json")["error"]


@pytest.mark.slow
def test_an_allocation_beyond_the_limit_of_the_process_ends_it_with_the_command(tmp_path):
    with pytest.raises(MachineError) as caught:
        train_on(make_hungry(tmp_path), 1, **hungry("allocator", 3))
    assert caught.value.exit_code == 7
    assert "out of memory in step 3, in the forward pass: " in caught.value.message
    assert "4294967296 bytes" in caught.value.message
    assert caught.value.hint.startswith("mltrainer phase run planning --set batch_size=1 --set accumulate=20 (")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_training_is_told_what_to_type_where_memory_ran_out(tmp_path, processes):
    with pytest.raises(KilledError) as caught:
        train_on(make_hungry(tmp_path), processes, batch_size=6, **hungry("killed", 3))
    assert caught.value.exit_code == 7
    assert "signal 9 (SIGKILL)" in caught.value.message
    assert "mltrainer phase run planning --set batch_size=3 --set accumulate=8" in caught.value.hint


@pytest.mark.parametrize(
    ("batch_size", "accumulate", "found"), [(8, 2, (4, 4)), (9, 1, (3, 3)), (7, 2, (1, 14)), (2, 1, (1, 2)), (1, 4, None)]
)
def test_the_next_finer_division_keeps_the_samples_of_a_step(batch_size, accumulate, found):
    assert finer(batch_size, accumulate) == found


@pytest.mark.parametrize(
    ("phase", "purpose", "told"),
    [
        ("baseline", "train", "mltrainer phase run baseline --set batch_size=4 --set accumulate=4 ("),
        ("optimization", "train", "mltrainer phase run planning --set batch_size=4 --set accumulate=4 ("),
        (None, "explore", "batch_size: 4 and accumulate: 4 ("),
        ("baseline", "reproduction", "stop other programs"),
    ],
)
def test_the_command_is_the_phases(phase, purpose, told):
    assert less_memory(config({}), phase, purpose).startswith(told)
