"""Models in stages, one for each process: the bits of one process, and what cannot be cut is refused by name."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.trainers.native.parallel.pipeline.cuts import stages_of
from mltrainer.trainers.native.parallel.pipeline.pipeline import Pipeline, in_turn
from mltrainer.trainers.native.ranks import Ranks
from tests.refusals import refused
from tests.trainers.native.digits_runs import CONFIG, make, train
from tests.trainers.native.test_partition import checkpoints_of, states_of
from tests.trainers.native.test_ranks import at_step, bits, killed, ranks_of, train_on

LAUNCH = {"parallel": "pipeline"}


def of(model: str, **changes: Any) -> dict[str, Any]:
    """Return the settings of a training of a model; without signals, whose first steps are computed whole."""
    task = {"use": "digits_task:Digits", "options": {"model": model}}
    return {"task": task, "batch_size": 6, "accumulate": 3, "epochs": 2, "signals": False, **changes}


def require_same(tmp_path: Path, processes: int, given: dict[str, Any]) -> None:
    one, several = make(tmp_path / "one"), make(tmp_path / "several")
    assert bits(train_on(several, processes, launch=LAUNCH, **given), several) == bits(train(one, **given), one)
    assert states_of(several) == states_of(one)


@pytest.mark.slow
def test_two_stages_have_the_bits_of_one_process(tmp_path):
    require_same(tmp_path, 2, of("chained"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "given"),
    [
        (4, of("chained", signals=True, accumulate=4)),
        (4, of("wide", batch_size=7, optimizer={"name": "schedule_free", "lr": 0.01})),
        (2, of("changed in place", batch_size=7)),
        (2, of("handed")),
        (2, of("large", accumulate=5, precision="bf16", gradient_checkpointing=["layers.1"])),
    ],
    ids=[
        "signals, tied weights",
        "batch norm, a stage without parameters",
        "changed in place",
        "dataclasses",
        "bf16, recomputed",
    ],
)
@pytest.mark.long
def test_the_number_of_stages_does_not_matter(tmp_path, processes, given):
    require_same(tmp_path, processes, given)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("processes", "given"),
    [
        (2, of("pictures", batch_size=7, channels_last=True, averaging={"name": "ema", "decay": 0.9})),
        (4, of("cnn", batch_size=7, clip={"adaptive": 0.01})),
        (2, of("large", loader={"workers": 2}, batch_size=24, accumulate=2, evaluate={"every_n_steps": 2})),
        (2, of("transformer", task={"use": "digits_task:Doubled", "options": {"model": "transformer"}})),
    ],
    ids=["channels last, averaged", "fewer shards than stages", "loader processes, steps of one shard", "another type of loss"],
)
def test_no_setting_makes_stages_matter(tmp_path, processes, given):
    require_same(tmp_path, processes, given)


@pytest.mark.slow
@pytest.mark.long
def test_a_training_in_stages_goes_on_with_another_number_and_another_way(tmp_path):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    more = of("chained", epochs=30, accumulate=4, early_stopping=None, checkpoint={"every_n_steps": 10, "keep": 2})
    with pytest.raises(MltrainerError, match="process 1 of 4 was ended by signal 9"):
        train_on(root, 4, at_step(10, lambda: killed(root, 1, signal.SIGKILL)), launch=LAUNCH, **more)
    with pytest.raises(StoppedError):
        train_on(root, 2, at_step(20, lambda: signal.raise_signal(signal.SIGINT)), launch={"parallel": "fsdp"}, **more)
    with pytest.raises(StoppedError):
        train_on(root, 2, at_step(30, lambda: signal.raise_signal(signal.SIGINT)), launch=LAUNCH, **more)
    result = train_on(root, 1, launch=LAUNCH, **more)
    assert bits(result, root) == bits(train(one, **more), one)
    assert states_of(root) == states_of(one)


@pytest.mark.slow
def test_each_process_writes_the_moments_of_its_own_stage(tmp_path):
    root = make(tmp_path)
    train_on(root, 2, launch=LAUNCH, **of("chained"))
    sizes = {path.name: path.stat().st_size for path in checkpoints_of(root)[-1].iterdir()}
    two_moments = 2 * 4 * 264 * 264
    assert sizes["rows-0000.safetensors"] == pytest.approx(2 * two_moments, rel=0.01)
    assert sizes["rows-0001.safetensors"] == pytest.approx(3 * two_moments, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"options": {"model": "around"}}, "computes something else: the gradient of codes.weight"),
        ({"options": {"model": "gated around"}}, "computes something else: the gradient of codes.weight"),
        ({"options": {"model": "left"}}, "computes something else: the gradient of entry.weight"),
        ({"options": {"model": "numbers"}}, r"blocks\.0 hands on other values than tensors"),
        ({"options": {"model": "catching"}}, r"goes on where the stage that ends before blocks\.2 raises its end"),
        ({"use": "digits_task:GoingAround"}, "computes something else: the gradient of codes.weight"),
        ({"use": "digits_task:GoingAroundAtLast"}, "computes something else: the gradient of codes.weight"),
        ({"options": {"model": "penalized"}}, "in stages the model cannot be differentiated"),
        ({"options": {"model": "odd"}}, r"comes to blocks\.0 where the end was expected"),
        ({"options": {"model": "dropping"}}, r"comes to layers\.1 where layers\.0 was expected"),
        ({"options": {"model": "borrowing"}}, "with launch.parallel: pipeline a process computes its own stage alone"),
        ({"options": {"model": "norm before"}}, "norm keeps running statistics and is outside of blocks"),
    ],
    ids=[
        "around",
        "around a gate",
        "left behind",
        "a number",
        "caught",
        "around later",
        "around at last",
        "penalty",
        "twice",
        "left out",
        "borrowed",
        "norm before",
    ],
)
def test_what_cannot_be_cut_is_refused_by_name_and_no_process_is_left(tmp_path, task, message):
    root = make(tmp_path)
    with pytest.raises(InputError, match=message):
        train_on(root, 2, launch=LAUNCH, **of("", task={"use": "digits_task:Digits", **task}, epochs=4))
    assert not ranks_of(root)


# --- stages ---------------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.blocks[3].weight = self.blocks[0].weight


def test_stages_have_nearly_equal_numbers_of_parameters():
    found = stages_of(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8), nn.Linear(8, 64), nn.Linear(64, 8)), 2)
    assert [*found.of(0)] == [0, 1, 2]
    assert found.owners["2.bias"] == 0
    assert found.owners["3.weight"] == 1


def test_a_parameter_of_two_stages_belongs_to_none():
    found = stages_of(Tied(), 2)
    assert found.container == "blocks"
    assert "blocks.0.weight" not in found.owners
    assert (found.owners["blocks.0.bias"], found.owners["blocks.3.bias"]) == (0, 1)


def test_the_container_is_chosen_that_leaves_each_process_least():
    inner = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)])
    assert stages_of(nn.Sequential(nn.Linear(4, 32), inner, nn.Linear(32, 4)), 2).container == "1"


def test_a_container_is_chosen_outside_of_which_no_norm_keeps_statistics():
    body = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)])
    assert stages_of(nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), body), 2).container == ""


def test_a_norm_that_two_stages_use_is_refused():
    norm = nn.BatchNorm1d(8)
    blocks = [nn.Sequential(nn.Linear(8, 8), norm), nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), norm)]
    with pytest.raises(InputError, match=r"0\.1 keeps running statistics and is outside of the model, or in several"):
        stages_of(nn.Sequential(*blocks), 2)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.LSTM(4, 4), "there is none"),
        (nn.Sequential(nn.Linear(4, 4)), "there is the model with 1"),
        (nn.ModuleList([nn.ModuleDict({"a": nn.Linear(4, 4)}), nn.Linear(4, 4)]), "there is the model with 2"),
        (nn.Sequential(*[nn.Linear(4, 4)] * 4), "there is the model with 4"),
    ],
    ids=["no container", "too few", "never called", "one entry several times"],
)
def test_a_model_without_stages_is_refused_with_what_there_is(model, message):
    with refused(message, hint="fsdp"):
        stages_of(model, 2)


@pytest.mark.parametrize(("count", "ahead", "most"), [(4, 1, 2), (4, 3, 4), (1, 3, 1), (8, 0, 1)])
def test_every_micro_batch_goes_forward_before_it_goes_back_and_few_are_held(count, ahead, most):
    held: list[int] = []
    largest, gone = 0, []
    for forward, back in in_turn(count, ahead):
        if forward is not None:
            held.append(forward)
        largest = max(largest, len(held))
        if back is not None:
            held.remove(back)
            gone.append(back)
    assert gone == [*range(count)]
    assert (held, largest) == ([], most)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compile": True}, "compile: true, whose code holds whole parameters"),
        ({"device": "cuda", "precision": "auto"}, "precision: auto, whose loss scale"),
        ({"optimizer": {"name": "sgd", "sam": {}}}, "optimizer.sam, which looks at all"),
    ],
)
def test_what_does_not_go_with_stages_is_refused_by_its_key(changes, message):
    given = {**CONFIG, **of("chained"), **changes, "launch": {**LAUNCH, "processes": 2}}
    with pytest.raises(ValidationError, match=message):
        TrainingConfig.model_validate(given)


def test_gradients_keep_their_layout_on_the_way():
    from mltrainer.trainers.native.parallel.pipeline.handover import _memory, _span

    whole = torch.arange(24.0).view(2, 3, 4)
    for tensor in (whole, whole.transpose(0, 2), whole[:, 1], torch.ones(()).expand(5, 6), whole[:0]):
        room = _memory(tensor).clone().view(tensor.dtype)
        assert room.numel() == _span(tensor.shape, tensor.stride())
        assert torch.equal(room.as_strided(tensor.shape, tensor.stride()), tensor)


def test_no_parameter_is_zero_while_stages_are_proven():
    model, ranks = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), Ranks()
    ranks.size = 2
    nn.init.zeros_(model[1].weight)
    pipeline = Pipeline(model, ranks)
    with pipeline._without_zeros():
        assert model[1].weight.all()
    assert not model[1].weight.any()
