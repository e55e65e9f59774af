"""Schedules follow their closed forms, are fitted to the steps of the run, and never leave their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch.optim import Optimizer, lr_scheduler

from mltrainer.configs.loading import assign, parse_assignment
from mltrainer.configs.project import Metric
from mltrainer.configs.schedules import Part, Plateau, Schedule, learning_rate, preview, unreached
from mltrainer.configs.templates import overlay
from mltrainer.records.run import Evaluation
from mltrainer.trainers.native.stopping import plateaus

PARTS = [
    {"epochs": 2, "schedule": {"name": "linear", "final": 0.5}},
    {"steps": 30, "factor": 0.5, "schedule": {"name": "step", "every_n_epochs": 1, "gamma": 0.5}},
    {"schedule": {"name": "cosine", "final": 0.1}},
]
NAMES = (
    "constant",
    "linear",
    "cosine",
    "cosine_restarts",
    "one_cycle",
    "polynomial",
    "exponential",
    "step",
    "cyclical",
    "plateau",
    "sequence",
)


def schedule(name: str, **options: object) -> Schedule:
    return TypeAdapter(Schedule).validate_python({"name": name, **options})


def cosine(progress: float) -> float:
    return 0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2


# 100 steps of 10 epochs, base rate 2
CLOSED_FORMS = {
    "constant": (schedule("constant"), {1: 2.0, 100: 2.0}),
    "linear": (schedule("linear", final=0.1), {50: 2 * 0.55, 100: 0.2}),
    "cosine": (schedule("cosine", final=0.1), {50: 2 * (0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2), 100: 0.2}),
    "cosine with restarts": (
        schedule("cosine_restarts", first_epochs=2, growth=2),
        {1: 2.0, 11: 1.0, 20: 1 + math.cos(math.pi * 19 / 20), 21: 2.0, 41: 1.0, 61: 2.0},
    ),
    "one cycle": (schedule("one_cycle", rise=0.5, start=0.1, final=0.0), {1: 0.2, 100: 0.0}),
    "polynomial": (schedule("polynomial", power=3, final=0.5), {50: 2 * (0.5 + 0.5 * 0.125), 100: 1.0}),
    "exponential": (schedule("exponential", gamma=0.5), {10: 2.0, 11: 1.0, 21: 0.5, 100: 2 * 0.5**9}),
    "step": (schedule("step", every_n_epochs=4, gamma=0.1), {40: 2.0, 41: 0.2, 81: 0.02}),
    "cyclical": (schedule("cyclical", period_epochs=4, low=0.5), {1: 1.0, 11: 1.5, 21: 2.0, 31: 1.5, 41: 1.0}),
    "linear warm-up": (schedule("constant", warmup_epochs=2), {1: 0.1, 10: 1.0, 20: 2.0, 21: 2.0}),
    "cosine warm-up": (schedule("constant", warmup_epochs=2, warmup="cosine"), {10: 1.0, 20: 2.0}),
    "warm-up in steps": (schedule("linear", warmup_steps=50, final=0.5), {25: 1.0, 50: 2.0, 51: 2 * 0.99, 100: 1.0}),
    "sequence": (
        schedule("sequence", parts=PARTS),
        {1: 2 * 0.975, 20: 1.0, 21: 1.0, 30: 1.0, 31: 0.5, 50: 0.25, 51: 2 * cosine(1 / 50), 75: 2 * cosine(0.5), 100: 0.2},
    ),
    "sequence after a warm-up": (
        schedule("sequence", parts=PARTS, warmup_steps=10),
        {10: 2.0, 11: 2 * 0.975, 30: 1.0, 31: 1.0, 61: 2 * cosine(1 / 40), 80: 2 * cosine(0.5), 100: 0.2},
    ),
    "what the warm-up leaves": (schedule("linear", warmup_epochs=5), {50: 2.0, 75: 1.0, 100: 0.0}),
}


NOT_CLOSED = {"plateau", "own"}  # which follow the run's evaluations, and the user's own code


def test_each_schedule_has_a_closed_form_here():
    names = {kind.model_fields["name"].default for kind in get_args(get_args(Schedule)[0])}
    missing = names - NOT_CLOSED - {config.name for config, _ in CLOSED_FORMS.values()}
    assert not missing, f"add a row to CLOSED_FORMS: rates of {sorted(missing)} at some steps, by the formula"


def test_each_schedule_is_in_the_table_of_keys_and_may_be_a_part():
    names = {kind.model_fields["name"].default for kind in get_args(get_args(Schedule)[0])}
    table = (Path(__file__).parents[2] / "configs/README.md").read_text("utf-8")
    missing = {name for name in names if f"`{name}`" not in table}
    assert not missing, f"add {sorted(missing)} to the row of schedule.name in configs/README.md"
    parts = {kind.model_fields["name"].default for kind in get_args(Part.model_fields["schedule"].annotation)}
    missing = names - parts - NOT_CLOSED - {"sequence"}
    assert not missing, f"add the class of {sorted(missing)} to `schedule` of Part in mltrainer/configs/schedules.py"


@pytest.mark.parametrize("case", CLOSED_FORMS)
def test_a_schedule_follows_its_closed_form(case):
    config, expected = CLOSED_FORMS[case]
    rate = learning_rate(config, 2.0, steps=100, steps_per_epoch=10)
    assert {step: rate(step) for step in expected} == pytest.approx(expected, abs=1e-12)


def test_one_cycle_peaks_once_at_the_base_rate():
    rate = learning_rate(schedule("one_cycle", rise=0.25), 1.0, steps=100, steps_per_epoch=10)
    values = [rate(step) for step in range(1, 101)]
    assert values[24] == max(values) == 1.0
    assert values[:25] == sorted(values[:25])
    assert values[24:] == sorted(values[24:], reverse=True)


# Our options, and PyTorch's scheduler of the same rates where a step is one of its steps; 12 epochs of 5 steps.
PYTORCHS: dict[str, tuple[Schedule, Callable[[Optimizer], lr_scheduler.LRScheduler]]] = {
    "one cycle": (schedule("one_cycle"), lambda o: lr_scheduler.OneCycleLR(o, 2.0, total_steps=60)),
    "another cycle": (
        schedule("one_cycle", rise=0.17, start=0.1, final=0.002),
        lambda o: lr_scheduler.OneCycleLR(o, 2.0, total_steps=60, pct_start=0.17, div_factor=10, final_div_factor=50),
    ),
    "a peak before the first step": (
        schedule("one_cycle", rise=0.01),
        lambda o: lr_scheduler.OneCycleLR(o, 2.0, total_steps=60, pct_start=0.01),
    ),
    "restarts": (
        schedule("cosine_restarts", first_epochs=2, growth=2, final=0.1),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 10, 2, eta_min=0.2),
    ),
    "triangles": (
        schedule("cyclical", period_epochs=4, low=0.25),
        lambda o: lr_scheduler.CyclicLR(o, 0.5, 2.0, step_size_up=10, cycle_momentum=False),
    ),
    "exponential": (schedule("exponential", gamma=0.8), lambda o: lr_scheduler.StepLR(o, 5, 0.8)),
    "step": (schedule("step", every_n_epochs=3, gamma=0.2), lambda o: lr_scheduler.StepLR(o, 15, 0.2)),
}


@pytest.mark.parametrize("case", PYTORCHS)
def test_a_schedule_has_the_rates_of_pytorchs(case):
    ours, make = PYTORCHS[case]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler, rates = make(optimizer), []
    for _ in range(60):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) < 60:
            scheduler.step()
    rate = learning_rate(ours, 2.0, steps=60, steps_per_epoch=5)
    assert [rate(step) for step in range(1, 61)] == pytest.approx(rates, abs=1e-12)


def test_a_cycle_of_one_step_and_one_that_peaks_at_its_first_step_have_a_rate():
    assert learning_rate(schedule("one_cycle"), 1.0, 1, 1)(1) == pytest.approx(4e-6)
    assert learning_rate(schedule("one_cycle", rise=0.25), 1.0, 4, 1)(1) == 1.0


@given(st.sampled_from(NAMES), st.integers(1, 60), st.integers(1, 9), st.floats(0, 12))
def test_every_rate_lies_between_zero_and_the_base_rate(name, steps, per_epoch, warmup):
    options = {"parts": PARTS} if name == "sequence" else {}
    rate = learning_rate(schedule(name, warmup_epochs=warmup, **options), 0.1, steps, per_epoch)
    assert all(0 <= rate(step) <= 0.1 * (1 + 1e-12) for step in range(1, steps + 1))


@pytest.mark.parametrize(("first_epochs", "growth", "restarts"), [(0.55, 1, [56, 111, 166]), (1.1, 1, [111, 221])])
def test_a_cycle_of_a_fraction_of_an_epoch_restarts_at_its_step(first_epochs, growth, restarts):
    cycles = schedule("cosine_restarts", first_epochs=first_epochs, growth=growth)
    rate = learning_rate(cycles, 1.0, steps=300, steps_per_epoch=100)
    assert [rate(step) for step in restarts] == pytest.approx([1.0] * len(restarts))


def part(name: str = "constant", **options: object) -> dict[str, object]:
    return {"schedule": {"name": name}, **options}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least 1"),
        ([part(), part()], "part 1 needs epochs or steps"),
        ([part(epochs=1), part(epochs=1)], "the last part takes what is left"),
        ([part(epochs=1, steps=1), part()], "either epochs or steps"),
        ([part(epochs=0), part()], "greater than 0"),
        ([part("plateau", epochs=1), part()], "'plateau' found using 'name' does not match"),
        ([part("sequence", epochs=1), part()], "'sequence' found using 'name' does not match"),
        ([{"epochs": 1, "schedule": {"name": "linear", "warmup_epochs": 1}}, part()], "no warm-up of its own"),
    ],
)
def test_a_sequence_that_makes_no_sense_is_refused(parts, message):
    with pytest.raises(ValidationError, match=message):
        schedule("sequence", parts=parts)


def test_a_warm_up_is_given_in_epochs_or_in_steps():
    with pytest.raises(ValidationError, match="either warmup_epochs or warmup_steps"):
        schedule("linear", warmup_epochs=1, warmup_steps=5)
    warm = {"schedule": {"name": "linear", "warmup_epochs": 1, "final": 0.1}}
    changed = assign(warm, [("schedule.warmup_steps", 50)])
    assert changed == {"schedule": {"name": "linear", "warmup_steps": 50, "final": 0.1}}
    assert overlay(changed, warm) == warm


def test_a_sequence_is_set_on_the_command_line():
    given = ["schedule.parts=[{epochs: 2, schedule: {name: linear}}, {schedule: {name: cosine}}]", "schedule.name=sequence"]
    changed = assign({"schedule": {"name": "cosine", "final": 0.1}}, map(parse_assignment, given))
    rate = learning_rate(schedule(**changed["schedule"]), 1.0, steps=100, steps_per_epoch=10)
    assert [rate(10), rate(20), rate(60)] == pytest.approx([0.5, 0.0, 0.5])


@pytest.mark.parametrize(("steps", "reaches"), [(51, True), (50, False)])
def test_a_run_that_ends_before_the_last_part_is_known(steps, reaches):
    assert (unreached(schedule("sequence", parts=PARTS), steps, 10) is None) is reaches


def history(*values: float) -> list[Evaluation]:
    return [Evaluation.at(epoch, epoch, {"accuracy": value}) for epoch, value in enumerate(values, 1)]


@pytest.mark.parametrize(
    ("values", "reductions"),
    [
        ((), 0),
        ((0.1, 0.2, 0.3), 0),
        ((0.3, 0.2, 0.1), 1),
        ((0.3, 0.2, 0.1, 0.2, 0.2), 2),
        ((0.3, 0.2, 0.4, 0.2), 0),
        ((0.3, math.nan, math.nan), 1),
    ],
)
def test_a_plateau_is_counted_each_time_patience_is_over(values, reductions):
    found = plateaus(history(*values), Metric(name="accuracy", mode="max"), patience=2, min_delta=0.0)
    assert found == reductions


def test_reductions_stop_at_the_smallest_share():
    plateau = Plateau(factor=0.1, final=0.05)
    assert [plateau.reduced(count) for count in range(3)] == pytest.approx([1.0, 0.1, 0.05])


def test_a_preview_runs_from_the_first_step_to_the_last():
    points = preview(schedule("linear"), 1.0, steps=1000, steps_per_epoch=100, points=11)
    assert (points[0], points[-1], len(points)) == ([0.01, 0.999], [10.0, 0.0], 11)
    assert preview(schedule("constant"), 0.5, steps=1, steps_per_epoch=1) == [[1.0, 0.5]]


def test_the_last_part_of_a_sequence_works_with_its_share_too():
    parts = [{"schedule": {"name": "constant"}, "steps": 4, "factor": 0.5}, {"schedule": {"name": "constant"}, "factor": 0.25}]
    found = TypeAdapter(Schedule).validate_python({"name": "sequence", "parts": parts})
    rate = learning_rate(found, 8.0, 6, 2)
    assert [rate(step) for step in range(1, 7)] == [4.0, 4.0, 4.0, 4.0, 2.0, 2.0]
