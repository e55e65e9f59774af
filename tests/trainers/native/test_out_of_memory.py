"""Memory that runs out in a training: the step and its part are named, with the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from torch.optim.optimizer import _global_optimizer_post_hooks

from mltrainer.configs.less_memory import finer, less_memory
from mltrainer.errors import InputError, KilledError, MachineError, OutOfMemoryError
from mltrainer.follow.splits import write_splits
from mltrainer.records.run import Split
from mltrainer.workspace import read_json
from tests.trainers.native.digits_runs import config, job, make, part_of, same, train
from tests.trainers.native.test_ranks import train_on

HUNGRY = '''
import os
import pathlib
import resource
import signal
import time
from torch.optim.optimizer import register_optimizer_step_post_hook


class Hungry(Digits):
    """Needs more memory than there is: in some part of a step, for more samples at a time than `most`.

    It is killed once, after the checkpoint of step 8.
    """

    def __init__(self, place, step, most=0, rank=None, killed=None, **given):
        super().__init__(**given)
        self.place, self.at, self.most, self.rank, self.step, self.size = place, step, most, rank, 0, 0
        self.killed = killed
        register_optimizer_step_post_hook(lambda *_: self.need("optimizer"))

    def enter(self, step, length):
        self.step = step
        if step == self.killed and self.rank in (None, os.environ.get("RANK")) and not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            # Written in the background; killed before it is there, the run would be stopped twice at one step.
            while not [*pathlib.Path(".mltrainer/runs/run/checkpoints").glob("step-*8")]:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

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


# --- on_out_of_memory: split ------------------------------------------------------------------------

SPLIT: dict[str, Any] = {
    "on_out_of_memory": "split",
    "epochs": 2,
    "batch_size": 8,
    "accumulate": 2,
    "early_stopping": None,
    "signals": False,
}


def by_plan(root: Path, at: int, **changes: Any) -> dict[str, Any]:
    """Train as `SPLIT` up to a step, and from there on with twice the micro-batches, planned so."""
    make_hungry(root)
    write_splits(root / ".mltrainer/runs/run", [Split(step=at, place="planned", accumulate=4)])
    return train(root, **{**SPLIT, **hungry("nowhere", 1), **changes})


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return by_plan(tmp_path_factory.mktemp("planned"), 8)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["forward", "backward", "optimizer"])
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_run_goes_on_from_that_step_with_the_bits_of_one_that_was_planned_so(tmp_path, planned, place, processes):
    rank = None if processes == 1 else "1"
    told: list[str] = []
    changes = {**SPLIT, **hungry(place, 8, most=4, rank=rank), "launch": {"processes": processes}}
    found = train_on(make_hungry(tmp_path), processes, lambda event: told.append(str(event.get("text"))), **changes)
    assert [(row["step"], row["accumulate"]) for row in found["splits"]] == [(8, 4)]
    assert any("with 4 micro-batches a step from step 8 on" in text for text in told)
    assert (found["state"], found["steps"], found["batch_size"], found["accumulate"]) == ("finished", 12, 8, 2)
    assert same(found, planned)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_split_run_whose_process_is_killed_afterwards_goes_on_with_the_same_bits(tmp_path, planned, processes):
    task = hungry("forward", 8, most=4, rank=None if processes == 1 else "1", killed=11)
    changes = {**SPLIT, **task, "checkpoint": {"every_n_steps": 2}, "launch": {"processes": processes}}
    with pytest.raises(KilledError, match=r"signal 9 \(SIGKILL\)"):
        train_on(make_hungry(tmp_path), processes, **changes)
    found = train_on(tmp_path, processes, **changes)
    assert same(found, planned)
    assert [(row["step"], row["accumulate"]) for row in found["splits"]] == [(8, 4)]
    # The first process ended at step 8, the second one was killed: each time a checkpoint of the steps before was there.
    assert [row["cause"] for row in found["interruptions"]] == ["killed", "killed"]
    assert found["interruptions"][0]["step"] < 8 <= found["interruptions"][1]["step"] < 11


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"spikes": {"action": "skip", "window": 4, "factor": 0.1, "most": 1000}, "averaging": {"name": "ema", "decay": 0.9}},
        {"replay": {"every": 1}},
        pytest.param({"compile": True}, marks=pytest.mark.long),
    ],
    ids=["spikes", "replay", "compile"],
)
def test_what_else_looks_at_each_micro_batch_goes_with_it(tmp_path, changes):
    whole, root = by_plan(tmp_path / "planned", 8, **changes), make_hungry(tmp_path / "run")
    with pytest.raises(OutOfMemoryError, match="in step 8"):
        train(root, **{**SPLIT, **hungry("forward", 8, most=4), **changes})
    _global_optimizer_post_hooks.clear()
    found = train(root, **{**SPLIT, **hungry("forward", 8, most=4), **changes})
    assert same(found, whole)
    assert [(row["step"], row["accumulate"]) for row in found["splits"]] == [(8, 4)]
    assert found.get("skipped") == whole.get("skipped")
    assert bool(found.get("skipped")) == ("spikes" in changes)


@pytest.mark.slow
def test_a_split_run_that_is_stopped_and_reproduced_keeps_its_bits(tmp_path, planned):
    whole, root = planned, tmp_path
    changes = {**SPLIT, **hungry("nowhere", 1)}
    make_hungry(root)
    write_splits(root / ".mltrainer/runs/run", [Split(step=8, place="planned", accumulate=4)])
    assert same(train(root, stops=(3, 7, 10), **changes), whole)
    of_run = {"start_of": ".mltrainer/runs/run", "compare": ".mltrainer/runs/run", "splits": whole["splits"]}
    again = {**job(changes), **of_run, "purpose": "reproduction", "folder": ".mltrainer/reproductions/run"}
    found = part_of(root, again, lambda _: False)
    assert (found["first_divergence"], found["chain"], found["splits"]) == (None, whole["chain"], whole["splits"])


@pytest.mark.slow
@pytest.mark.parametrize("damage", [None, b'{"splits": ['])
def test_a_checkpoint_has_the_splits_of_its_steps_whatever_becomes_of_the_file(tmp_path, planned, damage):
    changes, path = {**SPLIT, **hungry("nowhere", 1)}, tmp_path / ".mltrainer/runs/run/splits.json"
    make_hungry(tmp_path)
    write_splits(path.parent, [Split(step=8, place="planned", accumulate=4)])
    part_of(tmp_path, job(changes), lambda step: step == 10)
    path.unlink() if damage is None else path.write_bytes(damage)
    found = train(tmp_path, **changes)
    assert same(found, planned)
    assert [(row["step"], row["accumulate"]) for row in found["splits"]] == [(8, 4)]


@pytest.mark.slow
def test_a_single_sample_that_a_split_leaves_over_is_named_with_the_size_of_its_micro_batches(tmp_path):
    with pytest.raises(InputError, match="85 training samples in batches of 4 leave one for the last of an epoch"):
        by_plan(tmp_path, 2, **hungry("nowhere", 1, n=106))


@pytest.mark.slow
def test_from_that_step_on_the_bits_are_those_of_a_run_that_has_twice_the_micro_batches(tmp_path):
    split = by_plan(tmp_path / "split", 1)
    whole = train(make(tmp_path / "whole"), **{**SPLIT, "batch_size": 4, "accumulate": 4})
    assert same(split, whole)
    assert split["chain"] != train(make(tmp_path / "undivided"), **SPLIT)["chain"]


@pytest.mark.slow
def test_what_still_does_not_fit_is_split_again_and_what_has_no_half_ends(tmp_path):
    found = train_on(make_hungry(tmp_path / "twice"), 1, **{**SPLIT, **hungry("forward", 4, most=2)})
    assert [(row["step"], row["accumulate"]) for row in found["splits"]] == [(4, 4), (4, 8)]
    with pytest.raises(MachineError, match="in step 4, in the forward pass"):
        train_on(make_hungry(tmp_path / "never"), 1, **{**SPLIT, **hungry("forward", 4)})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_size": 7}, "batch_size: 7, which has no half"),
        ({"launch": {"parallel": "fsdp"}}, "launch.parallel: fsdp"),
        ({"tensor_parallel": 2}, "tensor_parallel"),
    ],
)
def test_what_it_does_not_go_with_is_refused(changes, told):
    with pytest.raises(ValidationError, match=f"on_out_of_memory: split does not go with {told}"):
        config({**SPLIT, **changes})
