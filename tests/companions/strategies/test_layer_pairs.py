"""Layers that are to give what a teacher's give: beside a loop that is written by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.companions.strategies.layer_pairs import LayerPairs
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.configs.strategies import LayerPair
from mltrainer.reproducibility import seeds
from mltrainer.tasks.strategy import MicroBatch
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.stepping import Stepper
from tests.companions.strategies.test_distillation import (
    HEAT,
    RATE,
    WEIGHT,
    Rows,
    batches,
    begun,
    chosen,
    save_teacher,
    seeded,
    steps,
)
from tests.refusals import refused
from tests.toys import Wired

SEED, SHARE = 42, 0.3
PAIR = {"student": "1", "teacher": "3"}  # 6 and 40 numbers after each one's ReLU
SAME = nn.Sequential(nn.Identity())


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3))


def paired(**changes: Any) -> TrainingConfig:
    return chosen(strategy={"features": [PAIR], "feature_weight": SHARE, **changes})


def fixed_map(wide: int, narrow: int, place: int = 0) -> Tensor:
    drawn = seeds.generator(SEED, "layer pair", place).standard_normal((wide, narrow)) / narrow**0.5
    return torch.from_numpy(drawn).float()


def apart(student: nn.Module, teacher: nn.Module, x: Tensor, y: Tensor, *names: tuple[str, str], seed: int = SEED) -> float:
    """Return the distance of the layers of two models on two batches."""
    pairs = LayerPairs([LayerPair(student=own, teacher=theirs) for own, theirs in names], "key", seed, student, teacher)
    with torch.no_grad(), pairs.own:
        student(x)
    with torch.no_grad(), pairs.teacher:
        teacher(y)
    return float(pairs.distance(pairs.taken()))


# --- the formula ----------------------------------------------------------------------------------


def test_some_steps_are_those_of_a_loop_written_by_hand(tmp_path):
    teacher, ours, theirs = save_teacher(tmp_path), seeded(Rows().model, 1), seeded(Rows().model, 1)
    stepper = Stepper(Objective(Rows(), ours, paired(), strategies=begun(tmp_path, paired(), Rows(), ours)))
    taken = [stepper.take(number, RATE, step) for number, step in enumerate(steps(batches()), 1)]
    optimizer, narrowing = torch.optim.SGD(theirs.parameters(), RATE), fixed_map(40, 6)
    for (x, y), measured in zip(batches(), taken, strict=True):
        optimizer.zero_grad()
        hidden = theirs[1](theirs[0](x))
        logits = theirs[2](hidden)
        with torch.no_grad():
            wide = teacher[:4](x)
            soft = functional.softmax(teacher[4](wide) / HEAT, dim=1)
        kl = functional.kl_div(functional.log_softmax(logits / HEAT, dim=1), soft, reduction="none").sum(1).mean() * HEAT**2
        distance = kl + SHARE * functional.mse_loss(hidden, wide @ narrowing)
        ((1 - WEIGHT) * functional.cross_entropy(logits, y) + WEIGHT * distance).backward()
        optimizer.step()
        assert float(measured.terms[1]) == distance.item()
    assert weights_sha256(ours.state_dict()) == weights_sha256(theirs.state_dict())


def test_layers_of_one_width_are_compared_as_they_are_and_pairs_add_up():
    student, teacher, x = seeded(small, 1), seeded(small, 2), torch.randn(5, 4)
    expected = (student(x) - teacher(x)).square().mean().item()
    assert apart(student, teacher, x, x, ("0", "0")) == pytest.approx(expected)
    assert apart(student, teacher, x, x, ("0", "0"), ("0", "0")) == pytest.approx(2 * expected)


def test_channels_are_narrowed_pixel_by_pixel_in_whichever_model_has_more():
    wide, narrow = torch.randn(2, 8, 5, 5), torch.randn(2, 3, 5, 5)
    expected = float((torch.einsum("nchw,cd->ndhw", wide, fixed_map(8, 3)) - narrow).square().mean())
    for one, other in ((wide, narrow), (narrow, wide)):
        assert apart(SAME, SAME, one, other, ("0", "0")) == pytest.approx(expected, rel=1e-5)


def test_a_fixed_map_nearly_keeps_lengths_and_another_seed_draws_another():
    wide, nothing = torch.randn(4000, 256), torch.zeros(4000, 64)
    found = apart(SAME, SAME, wide, nothing, ("0", "0")) * 64  # mean squared length after it
    assert found == pytest.approx(float(wide.square().sum(1).mean()), rel=0.05)
    assert apart(SAME, SAME, wide, nothing, ("0", "0"), seed=7) * 64 != found


def test_what_a_later_module_does_in_place_is_no_part_of_a_layer():
    student = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True))
    x = torch.randn(6, 4)
    expected = student[0](x).square().mean().item()
    assert apart(student, SAME, x, torch.zeros(6, 3), ("0", "0")) == pytest.approx(expected)


def test_only_the_forward_pass_of_the_step_counts(tmp_path):
    save_teacher(tmp_path)
    (x, y), found = batches(1)[0], []
    for others in (0, 2):
        model = seeded(Rows().model, 1)
        strategies = begun(tmp_path, paired(), Rows(), model)
        with strategies.watching:
            outputs = model(x)
        for _ in range(others):  # as an attack's
            model(x + 1)
        found.append(strategies.join(torch.zeros(()), MicroBatch((x, y), outputs, y))[0].item())
    assert found[0] == found[1]


# --- what is refused ------------------------------------------------------------------------------


def twice() -> nn.Module:
    parts = {"inner": nn.Linear(4, 4), "rnn": nn.LSTM(4, 4), "unused": nn.Linear(4, 4)}
    return Wired(lambda model, x: model.rnn(model.inner(model.inner(x)))[0], **parts)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("iner", "no module 'iner'; near to it are 'inner'"),
        ("inner", "'inner' is called 2 times in a forward pass"),
        ("unused", "'unused' is called 0 times"),
        ("rnn", "'rnn' gives tuple"),
    ],
)
def test_a_module_that_gives_no_one_tensor_is_refused_by_its_key(name, message):
    x = torch.randn(2, 4)
    with refused(message, where="key.0.student"):
        apart(twice(), SAME, x, x, (name, "0"))
    with refused(message, where="key.0.teacher"):
        apart(SAME, twice(), x, x, ("0", name))


@pytest.mark.parametrize("other", [(2, 3, 4, 4), (3, 8, 5, 5), (2, 8, 25)])
def test_layers_of_other_forms_are_refused_with_both(other):
    with refused(r"gives \[2, 8, 5, 5\], and the teacher's \[", where="key.0"):
        apart(SAME, SAME, torch.randn(2, 8, 5, 5), torch.randn(other), ("0", "0"))


def test_a_layer_that_is_not_there_is_told_before_the_first_step(tmp_path):
    save_teacher(tmp_path)
    settings = paired(features=[{"student": "1", "teacher": "9"}])
    with refused("no module '9'", where="strategies.0.features.0.teacher"):
        begun(tmp_path, settings, Rows(), Rows().model())


def test_without_pairs_a_config_has_the_name_that_it_had():
    digests = {config_digest(chosen(strategy=one)) for one in ({}, {"features": []}, {"feature_weight": 1.0})}
    assert len(digests) == 1
    assert config_digest(paired()) not in digests
