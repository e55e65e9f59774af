"""A step that is a spike is skipped: no trace of it stays, and the same steps are skipped whatever should not matter."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mltrainer.configs.pages import diagnostic_page
from mltrainer.configs.project import config_digest
from mltrainer.configs.spikes import Spikes
from mltrainer.diagnostics import signals
from mltrainer.diagnostics.loss_spike import find
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility import fingerprint
from mltrainer.runs.launcher import Event, Placement, launch
from mltrainer.trainers.native.spikes import SpikeGuard, limit
from mltrainer.workspace import Project, read_json
from tests.trainers.native.digits_runs import TASK, _forked, agrees, config, job, make, part_of, same, train
from tests.trainers.native.test_stepping import Run, data

SPIKING = '''

class Spiking(Digits):
    """Multiplies the loss of some steps; NaN makes it none."""

    def __init__(self, spikes=(), model="mlp"):
        super().__init__(model)
        self.spikes, self.factor = dict(spikes), 1.0

    def enter(self, step, length):
        self.factor = float(self.spikes.get(step, 1.0))

    def loss(self, outputs, targets):
        return super().loss(outputs, targets) * self.factor
'''
RULE = {"action": "skip", "window": 8}
SPIKED: dict[str, Any] = {
    "task": {"use": "digits_task:Spiking", "options": {"spikes": [[8, 1e4], [11, "nan"]]}},
    "averaging": {"name": "ema", "decay": 0.9},
}
SETTING = {**SPIKED, "spikes": RULE}


def project(root: Path) -> Path:
    make(root)
    (root / "digits_task.py").write_text(TASK + SPIKING)
    return root


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    root = project(tmp_path_factory.mktemp("skipped"))
    return root, train(root, **SETTING)


# --- the rule --------------------------------------------------------------------------------------


def guard(**rule: Any) -> SpikeGuard:
    return SpikeGuard(Spikes(action="skip", **rule), torch.nn.Linear(1, 1))


def judged(found: SpikeGuard, losses: list[float], norms: list[float] | None = None) -> list[int]:
    """Return the steps that are skipped."""
    pairs = zip(losses, norms or [1.0] * len(losses), strict=True)
    return [step for step, (loss, norm) in enumerate(pairs, 1) if found.skips(step, torch.tensor(loss), torch.tensor(norm))]


def test_the_limit_is_the_mean_and_so_many_standard_deviations():
    values = np.random.default_rng(0).normal(2, 0.5, 100).tolist()
    assert limit(values, 6) == pytest.approx(statistics.fmean(values) + 6 * statistics.stdev(values), rel=1e-12)


def test_a_loss_or_a_norm_above_the_limit_is_a_spike_from_half_a_window_on():
    usual = [1.0, 1.1, 0.9, 1.0]
    assert judged(guard(window=8), [*usual, 1.3, 9.0]) == [6]
    assert judged(guard(window=8), [1.0] * 6, [*usual, 1.0, 9.0]) == [6]
    assert judged(guard(window=8, factor=2.0), [*usual, 1.3, 9.0]) == [5, 6]
    assert judged(guard(window=12), [*usual, 1.3, 9.0]) == []


def test_a_number_that_is_not_finite_is_a_spike_from_the_first_step_on():
    found = guard()
    assert judged(found, [math.nan, 1.0, math.inf, 1.0], [1.0, 1.0, 1.0, math.nan]) == [1, 3, 4]
    assert [row["what"] for row in found.skipped] == ["loss", "loss", "gradient"]


def test_a_spike_enters_the_window_as_the_limit_and_one_that_is_not_finite_not_at_all():
    found = guard(window=8)
    usual = [1.0, 1.1, 0.9, 1.0]
    assert judged(found, [*usual, 9.0, math.nan]) == [5, 6]
    assert found.tree()["losses"] == pytest.approx([*usual, 1 + 6 * statistics.stdev(usual)])
    assert found.tree()["norms"] == [1.0] * 5


def test_losses_that_stay_higher_are_soon_usual():
    usual = np.random.default_rng(0).normal(2, 0.1, 128).tolist()
    assert judged(guard(), [*usual, *(value + 1 for value in usual)]) == [129, 130, 131, 132]


def test_equal_losses_have_no_spread_by_which_one_stands_out():
    assert judged(guard(window=8), [0.0] * 6 + [0.1]) == []


# --- a step that is skipped --------------------------------------------------------------------------


class Spiked(Run):
    """A run whose loss is multiplied in some steps."""

    def __init__(self, factors: dict[int, float], **changes: Any) -> None:
        super().__init__(config(changes))
        backward = self.stepper.objective.task.loss

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            return backward(outputs, targets) * factors.get(self.number, 1.0)

        self.stepper.objective.task.loss = loss  # type: ignore[method-assign]
        self.number = 0

    def walk(self, numbers: list[int]) -> list[int]:
        """Take these steps; return those that were taken."""
        steps, taken = data(14, self.stepper.config.accumulate), []
        for self.number in numbers:
            if self.stepper.take(self.number, 0.01, steps[self.number - 1]).taken:
                self.average.update(self.number)
                taken.append(self.number)
        return taken


@pytest.mark.parametrize(
    "way",
    [{}, {"accumulate": 2}, {"averaging": {"name": "ema", "decay": 0.9}}, {"optimizer": {"name": "sgd", "sam": {"rho": 0.05}}}],
    ids=str,
)
def test_the_weights_are_those_of_a_training_that_never_saw_the_step(way):
    factors = {7: 1e4, 10: math.nan}
    usual = [number for number in range(1, 15) if number not in factors]
    found, reference = Spiked(factors, spikes=RULE, **way), Spiked({}, **way)
    assert found.walk([*range(1, 15)]) == usual
    assert reference.walk(usual) == usual
    assert found.digests() == reference.digests()  # buffers of the batch norm too


# --- a run ------------------------------------------------------------------------------------------


def test_a_run_records_the_steps_that_it_skipped(skipped):
    root, result = skipped
    found = result["skipped"]
    assert [(row["step"], row["what"]) for row in found] == [(8, "loss"), (11, "loss")]
    assert found[0]["loss"] > 1e3
    assert found[1]["loss"] == "nan"
    assert (result["state"], result["steps"]) == ("finished", 18)
    rows = result["history"]
    assert [row["skipped"] for row in rows] == pytest.approx([0, 2 / 6, 0])
    assert all(row["train_loss"] < 10 for row in rows)
    lines = fingerprint.read(root / ".mltrainer/runs/run/chain.txt")
    eighth = next(line.split() for line in lines if line.startswith("8 "))
    assert fingerprint.float_of(eighth[2]) == found[0]["loss"]


def test_the_finding_on_spikes_names_what_was_skipped(skipped):
    found = find(signals.Run.of(skipped[1]), **diagnostic_page("loss_spike", None).thresholds)
    assert (found.state, found.evidence["skipped_steps"]) == ("clear", [8, 11])
    assert "Steps that were skipped as spikes: 2." in found.reason


@pytest.mark.slow
def test_a_skipped_step_before_an_evaluation_has_no_update_to_measure(tmp_path):
    spiked = {"use": "digits_task:Spiking", "options": {"spikes": [[12, 1e4]]}}
    rows = train(project(tmp_path), **{**SETTING, "task": spiked})["history"]
    assert [set(row["update_ratios"]) == {None} for row in rows] == [False, True, False]


@pytest.mark.slow
def test_without_the_rule_the_run_ends_at_the_number_that_is_not_finite(tmp_path):
    result = train(project(tmp_path), **SPIKED)
    assert (result["state"], result["nonfinite"]["step"]) == ("failed", 11)
    assert "skipped" not in result


@pytest.mark.slow
def test_one_spike_more_than_the_most_ends_the_run_as_failed(tmp_path):
    result = train(project(tmp_path), **{**SETTING, "spikes": {**RULE, "most": 1}})
    assert (result["state"], result["stop_reason"], result["steps"]) == ("failed", "spikes", 11)
    assert [row["step"] for row in result["skipped"]] == [8, 11]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [7, 8, 9, 11])
def test_a_run_that_is_stopped_around_a_spike_goes_on_with_the_same_bits(tmp_path, skipped, stop):
    result = train(project(tmp_path), stops=(stop,), **SETTING)
    assert same(result, skipped[1])
    assert result["skipped"] == skipped[1]["skipped"]


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_bits(tmp_path, skipped):
    root = project(tmp_path)
    changes = {**SETTING, "checkpoint": {"every_n_steps": 2}}
    for step in (7, 9, 12):
        killed = _forked(lambda step=step: part_of(root, job(changes), lambda now: now == step and os.kill(os.getpid(), 9)))
        assert killed == 9
    assert _forked(lambda: train(root, **changes)) == 0
    assert agrees(root, skipped[1])
    assert read_json(root / ".mltrainer/runs/run/result.json")["skipped"] == skipped[1]["skipped"]


def in_two(root: Path, changes: dict[str, Any], tell: Callable[[Event], None] = lambda _: None) -> dict[str, Any]:
    """Train in two processes; return the result."""
    work = TrainingJob.model_validate(job(changes))
    launch(Project(root), "training_orchestrator", work, tell, placement=Placement(2))
    return dict(read_json(root / ".mltrainer/runs/run/result.json"))


@pytest.mark.slow
def test_two_processes_skip_the_steps_of_one(tmp_path, skipped):
    result = in_two(project(tmp_path), SETTING)
    assert result["processes"] == 2
    assert same(result, skipped[1])
    assert result["skipped"] == skipped[1]["skipped"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("kind", "model"), [("zero1", "wide"), ("fsdp", "large"), ("pipeline", "large")])
def test_processes_that_share_the_parameters_skip_the_steps_of_one(tmp_path, kind, model):
    task = {"use": "digits_task:Spiking", "options": {"spikes": [[8, 1e4], [11, "nan"]], "model": model}}
    changes = {"task": task, "spikes": RULE, "epochs": 2}
    alone = train(project(tmp_path / "alone"), **changes)
    result = in_two(project(tmp_path / "shared"), {**changes, "launch": {"parallel": kind, "processes": 2}})
    assert same(result, alone)
    assert [row["step"] for row in result["skipped"]] == [8, 11]


@pytest.mark.slow
def test_a_run_that_is_trained_again_skips_the_same_steps(tmp_path, skipped):
    again = train(project(tmp_path), **SETTING)
    assert same(again, skipped[1])


def test_a_config_without_the_rule_keeps_its_name():
    assert config_digest(config({})) == config_digest(config({"spikes": None})) != config_digest(config({"spikes": RULE}))


def test_a_loss_scale_does_not_go_with_the_rule():
    with pytest.raises(ValueError, match="spikes does not go with precision: fp16, whose loss scale skips steps"):
        config({"precision": "fp16", "spikes": RULE})
