"""One training, one set of bits: whatever should not matter does not, and what resuming needs is really needed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from mltrainer.errors import MltrainerError
from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.data import reading
from mltrainer.trainers.native.objective import buffers_kept
from mltrainer.trainers.native.shards import shard_key
from mltrainer.trainers.native.stages import Rewind, Trainer
from tests.trainers.native.digits_runs import STEPS, job, make, part_of, same, train

MODELS = ("mlp", "cnn", "lstm", "transformer")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(make(tmp_path_factory.mktemp("reference")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_the_number_of_loader_processes_does_not_matter(tmp_path, reference, workers):
    assert same(train(make(tmp_path), workers=(workers,)), reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"evaluate": {"every_n_steps": 3}},
        {"task": {"use": "digits_task:Digits", "options": {"greedy": True}}},
        {"checkpoint": {"every_n_epochs": 3, "save_best": False, "save_last": True, "keep": 0}},
    ],
    ids=["validation every 3 steps", "a validation that draws random numbers", "checkpoints rarely"],
)
def test_watching_and_saving_do_not_matter(tmp_path, reference, changes):
    assert train(make(tmp_path), **changes)["weights_sha256"] == reference["weights_sha256"]


@pytest.mark.slow
def test_evaluating_does_not_matter_to_a_model_that_counts_its_batches(tmp_path):
    options = {"use": "digits_task:Digits", "options": {"model": "counting"}}
    seldom, often = (
        train(make(tmp_path / str(every)), task=options, evaluate={"every_n_steps": every}, early_stopping=None)
        for every in (9, 2)
    )
    assert often["weights_sha256"] == seldom["weights_sha256"]


def test_a_buffer_that_evaluation_made_is_gone_after_it():
    model = nn.Linear(2, 2)
    model.register_buffer("seen", None)
    with buffers_kept(model):
        model.seen = torch.ones(2)
    assert model.seen is None


@pytest.mark.slow
def test_random_draws_before_training_do_not_matter(tmp_path, reference):
    random.random(), np.random.rand(3), torch.rand(5)
    assert same(train(make(tmp_path)), reference)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stops=st.lists(st.integers(1, STEPS - 1), max_size=2, unique=True).map(sorted),
    workers=st.lists(st.sampled_from([0, 1]), min_size=1, max_size=3),
    greedy=st.booleans(),
)
def test_no_combination_of_them_matters(tmp_path_factory, reference, stops, workers, greedy):
    task = {"use": "digits_task:Digits", "options": {"greedy": greedy}}
    found = train(make(tmp_path_factory.mktemp("run")), tuple(stops), tuple(workers), task=task)
    assert same(found, reference)
    assert [row["step"] for row in found["interruptions"]] == stops


@pytest.mark.slow
def test_killed_at_any_moment_a_run_ends_in_the_same_bits(tmp_path):
    draw = random.Random(1)
    points = [("step", n) for n in draw.sample(range(1, STEPS), 15)] + [("file", n) for n in draw.sample(range(1, 16), 11)]
    program = (
        "import json, sys; from pathlib import Path; import torch; torch.set_num_threads(1)\n"
        "from tests.trainers.native.digits_runs import kill_points\n"
        "print(json.dumps(kill_points(Path(sys.argv[1]), [tuple(point) for point in json.loads(sys.argv[2])])))"
    )
    command = [sys.executable, "-c", program, str(tmp_path), json.dumps(points)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=300)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.slow
def test_other_kinds_of_models_repeat_and_resume_too(tmp_path, model):
    task = {"use": "digits_task:Digits", "options": {"model": model}}
    whole = train(make(tmp_path / "whole"), task=task, epochs=2)
    assert same(train(make(tmp_path / "again"), task=task, epochs=2), whole)
    assert same(train(make(tmp_path / "halves"), (7,), task=task, epochs=2), whole)


# --- what resuming needs: without any one of them, the comparison above must fail ---------------------


def _drop(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda tree: tree.update({name: value})


def _without(part: str) -> Callable[[dict[str, Any]], None]:
    """Leave tensors whose name holds a word at zero."""
    return lambda tree: [tensor.zero_() for name, tensor in tree["model"].items() if part in name] and None


def _forget_moments(tree: dict[str, Any]) -> None:
    for state in tree["optimizer"]["state"].values():
        state["exp_avg"].zero_()


def _forget_count(tree: dict[str, Any]) -> None:
    for state in tree["optimizer"]["state"].values():
        state["step"].zero_()


STATE: dict[str, Callable[[dict[str, Any]], None]] = {
    "weights": _without("5.weight"),
    "batch norm's buffers": _without("running_mean"),
    "optimizer's moments": _forget_moments,
    "optimizer's count": _forget_count,
    "step": lambda tree: tree.update(step=tree["step"] - 1),
    "history": _drop("history", []),
    "first loss": _drop("first_loss", 0.0),
    "interval": lambda tree: tree["interval"].update(loss_sum=0.0, steps=0, kept=torch.zeros(0, 0)),
    "head of the chain": _drop("chain", {"entries": 0, "value": "0" * 32}),
}


@pytest.mark.slow
@pytest.mark.parametrize("item", STATE)
def test_each_item_of_state_is_needed(tmp_path, reference, monkeypatch, item):
    whole = Trainer.rewind

    def rewind(trainer: Trainer, tree: dict[str, Any], reason: Rewind) -> None:
        STATE[item](tree)
        whole(trainer, tree, reason)

    monkeypatch.setattr(Trainer, "rewind", rewind)
    try:
        found = train(make(tmp_path), (8,))
    except (MltrainerError, RuntimeError, ValueError, IndexError):
        return  # it could not even go on
    assert not same(found, reference)


def own_order() -> Callable[..., np.ndarray]:
    generator = np.random.default_rng(7)
    return lambda _seed, _epoch, count: generator.permutation(count)


@pytest.mark.slow
def test_an_order_from_a_generator_that_goes_on_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "epoch_order", own_order())
    whole = train(make(tmp_path / "whole"))
    for stop in (8, None):  # each part is a process of its own, with a generator that begins anew
        monkeypatch.setattr(seeds, "epoch_order", own_order())
        found = part_of(make(tmp_path / "halves"), job({}), lambda step, stop=stop: step == stop)  # type: ignore[misc]
    assert not same(found, whole)


STEP_KEYS = {shard_key(42, step, shard) for step in range(STEPS + 1) for shard in (0, 1)}
SEED_EVERYTHING = seeds.seed_everything
UNSEEDED = {
    "sample": (reading._Addressed, "__getitem__", lambda self, address: self.samples.dataset[address[1]]),
    "step": (seeds, "seed_everything", lambda value: None if value in STEP_KEYS else SEED_EVERYTHING(value)),
}


@pytest.mark.slow
@pytest.mark.parametrize("stream", UNSEEDED)
def test_a_stream_that_is_not_addressed_is_found_out(tmp_path, monkeypatch, stream):
    monkeypatch.setattr(*UNSEEDED[stream])
    here, elsewhere = (train(make(tmp_path / name), workers=(workers,)) for name, workers in (("here", 0), ("elsewhere", 1)))
    assert not same(here, elsewhere)
