"""A micro-batch computed twice: no bit of the run changes, and a bit that the device got wrong stops it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import bits_config, config_digest
from mltrainer.errors import InputError, MachineError
from mltrainer.follow.log import differences_found, steps_compared
from mltrainer.records.run import RepeatDifference
from mltrainer.trainers.native.repeats import difference_text
from mltrainer.trainers.native.signals.outputs import StepOutputs
from mltrainer.workspace import append_json_lines
from tests.trainers.native.digits_runs import config, make, same, train
from tests.trainers.native.test_ranks import SETTING, bits, train_on

FAULTY = '''
import os
import pathlib


class Faulty(Digits):
    """Computes one bit of a parameter's gradient wrong in a step, once, or each time in one of the processes."""

    def __init__(self, parameter, step, rank=None, **given):
        super().__init__(**given)
        self.parameter, self.at, self.rank, self.step = parameter, step, rank, 0

    def enter(self, step, length):
        self.step = step

    def model(self):
        model = super().model()
        model.get_parameter(self.parameter).register_hook(self.flipped)
        return model

    def flipped(self, gradient):
        mark = pathlib.Path("flipped")
        is_here = not mark.exists() if self.rank is None else os.environ.get("RANK") == self.rank
        if self.step != self.at or not is_here:
            return gradient
        mark.write_text("")
        wrong = gradient.clone()
        wrong.view(torch.int32).view(-1)[self.at % wrong.numel()] ^= 1 << self.at
        return wrong


class InPlace(Digits):
    """Changes the batch that it is given in place."""

    def forward(self, model, batch):
        images, targets = batch
        images.mul_(2)
        return model(images), targets


class Drawing(Digits):
    """Draws from a generator of its own, which no address puts back."""

    def model(self):
        self.own = torch.Generator().manual_seed(0)
        return super().model()

    def loss(self, outputs, targets):
        return super().loss(outputs, targets) + 0.1 * torch.rand((), generator=self.own)
'''
WAYS: dict[str, dict[str, Any]] = {
    "one micro-batch": {"accumulate": 1},
    "several micro-batches": {},
    "a model that counts its batches": {"task": {"use": "digits_task:Digits", "options": {"model": "counting"}}},
    "a norm of its own": {"task": {"use": "digits_task:Digits", "options": {"model": "own norm"}}},
    "attributes that hold the last pass": {"task": {"use": "digits_task:Digits", "options": {"model": "left"}}},
    "sparse gradients": {
        "task": {"use": "digits_task:Digits", "options": {"model": "odd"}},
        "optimizer": {"name": "sgd", "lr": 0.01},
    },
    "bf16, sam": {"precision": "bf16", "optimizer": {"name": "sgd", "lr": 0.01, "sam": {"rho": 0.05}}},
    "fp16": {"precision": "fp16"},
    "noise after the micro-batches": {"gradients": {"noise": {"eta": 0.01}}},
    "an average, loader processes": {"averaging": {"name": "ema", "decay": 0.9}, "loader": {"workers": 2}, "accumulate": 1},
    "compiled": {"compile": True},
    "recomputed activations": {"gradient_checkpointing": ["0"]},
    "a mean teacher": {"strategies": [{"name": "distillation", "teacher": {"ema": 0.9}}]},
}


def make_faulty(root: Path) -> Path:
    with (make(root) / "digits_task.py").open("a") as file:
        file.write(FAULTY)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_faulty(tmp_path)


def faulty(parameter: str, step: int, **options: Any) -> dict[str, Any]:
    return {"task": {"use": "digits_task:Faulty", "options": {"parameter": parameter, "step": step, **options}}}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("changes", WAYS.values(), ids=WAYS)
def test_computing_twice_changes_no_bit(tmp_path, changes):
    once = train(make(tmp_path / "once"), **changes)
    twice = train(make(tmp_path / "twice"), replay={"every": 2}, **changes)
    assert same(twice, once)
    assert twice["replay"] == {"every": 2, "compared": twice["steps"] // 2, "differed": []}
    assert "replay" not in once


@pytest.mark.slow
def test_observers_see_the_steps_own_passes_alone(tmp_path, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(StepOutputs, "saw", lambda *_: seen.append(1))
    ended = train(make(tmp_path), replay={"every": 1}, accumulate=1, epochs=1)
    assert len(seen) == ended["steps"] == ended["replay"]["compared"]


@pytest.mark.slow
def test_a_pass_that_changes_its_batch_in_place_is_repeated_with_the_batch_as_it_was(folder):
    changes = {"task": {"use": "digits_task:InPlace"}, "epochs": 1}
    once, twice = (train(make_faulty(folder / str(every)), replay=every and {"every": every}, **changes) for every in (None, 2))
    assert twice["replay"]["compared"] == 3
    assert same(twice, once)


def test_computing_twice_renames_no_run():
    once, twice = config({}), config({"replay": {"every": 7}})
    assert config_digest(once) == config_digest(twice)
    assert bits_config(once) == bits_config(twice)


@pytest.mark.slow
def test_a_wrong_bit_stops_the_run_and_the_same_command_goes_on_with_the_right_bits(folder):
    undisturbed = train(make(folder / "undisturbed"), replay={"every": 2})
    changes = {**faulty("1.weight", 10), "replay": {"every": 2}}
    with pytest.raises(MachineError) as caught:
        train(folder, **changes)
    assert caught.value.exit_code == 7
    said = str(caught.value)
    assert "of step 10, computed twice by process 0 on cpu, gave other bits: gradients of 1 of 6 parameters differ" in said
    assert "in module 1 (weight); the losses agree" in said
    assert "The same command goes on from the newest checkpoint" in said
    assert [path.name for path in sorted((folder / ".mltrainer/runs/run/checkpoints").glob("step-*"))] == ["step-00000006"]
    ended = train(folder, **changes)
    assert same(ended, undisturbed)
    (found,) = ended["replay"]["differed"]
    assert (found["step"], found["parameter"], found["processes"]) == (10, "1.weight", [0, 0])
    assert ended["replay"]["compared"] == 5 + 6  # up to step 10, and from step 6 on


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("module", ["encoder.layers.0.self_attn.in_proj_weight", "encoder.layers.1.linear2.bias", "head.weight"])
@pytest.mark.parametrize("step", range(1, 11))
def test_a_bit_that_is_wrong_in_any_step_and_module_is_named(folder, module, step):
    changes = {**faulty(module, step, model="transformer"), "accumulate": 1, "signals": False, "epochs": 1}
    with pytest.raises(MachineError, match=rf"of step {step}, .* in module {module.rpartition('.')[0]} \("):
        train(folder, **changes, replay={"every": 1})


@pytest.mark.slow
def test_a_wrong_bit_in_a_step_that_is_not_sampled_is_not_seen(folder):
    ended = train(folder, **faulty("1.weight", 9), replay={"every": 2}, epochs=2)
    assert (folder / "flipped").exists()
    assert ended["replay"]["differed"] == []


@pytest.mark.slow
def test_an_own_generator_is_refused_by_name(folder):
    with pytest.raises(InputError, match=r"each forward pass changes Drawing\.own"):
        train(folder, task={"use": "digits_task:Drawing"}, replay={"every": 2})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "changes"),
    [
        (2, {}),
        pytest.param(2, {"launch": {"parallel": "zero1"}, "accumulate": 2}, marks=pytest.mark.long),
        pytest.param(4, {"accumulate": 3, "batch_size": 6}, marks=pytest.mark.long),  # shards for three, and for one at last
    ],
    ids=["two", "zero1", "four with shards for three"],
)
def test_processes_repeat_each_others_micro_batches(tmp_path, processes, changes):
    once, twice = make(tmp_path / "once"), make(tmp_path / "twice")
    alone = bits(train(once, **{**SETTING, **changes, "epochs": 1}), once)
    found = train_on(twice, processes, **changes, epochs=1, replay={"every": 1})
    assert bits(found, twice) == alone
    assert found["replay"] == {"every": 1, "compared": found["steps"], "differed": []}


@pytest.mark.slow
@pytest.mark.parametrize("rank", ["0", pytest.param("1", marks=pytest.mark.long)])
def test_with_two_processes_the_one_that_is_wrong_is_among_those_named(folder, rank):
    options = {**faulty("head.weight", 3, model="transformer", rank=rank), "epochs": 1, "replay": {"every": 1}}
    with pytest.raises(MachineError) as caught:
        train_on(folder, 2, **options)
    (found,) = differences_found(folder / ".mltrainer/runs/run")
    assert sorted(found.processes) == [0, 1]
    assert "of step 3, computed twice by process" in str(caught.value)
    assert "in module head (weight)" in str(caught.value)


@pytest.mark.parametrize("kind", ["fsdp", "pipeline"])
def test_what_splits_the_model_is_refused_by_name(kind):
    changes = {"launch": {"processes": 2, "parallel": kind}, "replay": {"every": 5}, "accumulate": 4}
    with pytest.raises(ValueError, match=f"{kind} does not go with replay, by which one process computes a micro-batch again"):
        config(changes)


def test_tensor_parallel_is_refused_by_name():
    with pytest.raises(ValueError, match="tensor_parallel: 2 does not go with replay"):
        config({"tensor_parallel": 2, "replay": {"every": 5}})


def test_a_difference_in_the_loss_alone_is_told():
    found = RepeatDifference(
        step=3, micro_batch=2, parameter=None, parameters=0, loss=True, processes=[1, 0], devices=["cuda:1 (A)", "cuda:0 (A)"]
    )
    assert difference_text(found, 4) == (
        "micro-batch 2 of step 3, computed twice by process 1 on cuda:1 (A) and by process 0 on cuda:0 (A), gave other bits: "
        "no gradient differs; the losses differ"
    )


def test_the_steps_that_all_processes_compared_are_counted(tmp_path):
    began = {"event": "began", "step": 0}
    worked = [{"event": "worked", "seconds": 1.0, "compared": count} for count in (2, 5)]
    append_json_lines(tmp_path / "events.jsonl", [began, *worked, began, worked[0], began, {"event": "worked", "seconds": 1.0}])
    assert steps_compared(tmp_path) == 7
