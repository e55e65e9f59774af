"""A teacher that is the moving average of the model that it teaches: beside a loop written by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.companions.strategies.mean_teacher import MeanTeacher
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.errors import InputError
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.stepping import Stepper
from tests.companions.strategies.test_distillation import HEAT, RATE, WEIGHT, Rows, batches, begun, chosen, fit, seeded, steps
from tests.toys import Wired

DECAY = 0.8
OWN = {"name": "distillation", "teacher": {"ema": DECAY}, "temperature": HEAT, "weight": WEIGHT}


class Normed(Rows):
    """Rows whose model has running statistics and a count of batches."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 5))


def averaging(**changes: Any) -> TrainingConfig:
    return chosen(strategy={"teacher": {"ema": DECAY}}, **changes)


def test_some_steps_are_those_of_a_loop_written_by_hand(tmp_path):
    ours, student, teacher = (seeded(Normed().model, 1) for _ in range(3))
    strategies = begun(tmp_path, averaging(), Normed(), ours)
    stepper = Stepper(Objective(Normed(), ours, averaging(), strategies=strategies))
    taken = [stepper.take(number, RATE, step) for number, step in enumerate(steps(batches()), 1)]
    optimizer = torch.optim.SGD(student.parameters(), RATE)
    teacher.eval()
    for nr, ((x, y), measured) in enumerate(zip(batches(), taken, strict=True)):
        optimizer.zero_grad()
        logits = student(x)
        with torch.no_grad():
            soft = functional.softmax(teacher(x) / HEAT, dim=1)
        distance = functional.kl_div(functional.log_softmax(logits / HEAT, dim=1), soft, reduction="none").sum(1).mean() * HEAT**2
        ((1 - WEIGHT) * functional.cross_entropy(logits, y) + WEIGHT * distance).backward()
        optimizer.step()
        kept = min(DECAY, (1 + nr) / (10 + nr))
        with torch.no_grad():
            for name, average in teacher.state_dict().items():
                own = student.state_dict()[name]
                average.copy_(torch.lerp(average, own, 1 - kept) if own.is_floating_point() else own)
        assert float(measured.terms[1]) == distance.item()
    assert weights_sha256(ours.state_dict()) == weights_sha256(student.state_dict())
    told = strategies.teacher()
    assert (told[0], weights_sha256(told[1].state_dict())) == (f"ema: {DECAY}", weights_sha256(teacher.state_dict()))


def test_tied_weights_are_averaged_once():
    def tied() -> Any:
        made = Wired(lambda _, x: x, first=nn.Linear(3, 3, bias=False), last=nn.Linear(3, 3, bias=False))
        made.last.weight = made.first.weight
        return made

    model, begun_with = tied(), torch.zeros(3, 3)
    nn.init.zeros_(model.first.weight)
    teacher = MeanTeacher(model, tied(), 0.999)
    nn.init.ones_(model.first.weight)
    teacher.step()
    assert torch.equal(teacher.average.state_dict()["last.weight"], begun_with + 0.9)


def test_a_state_goes_on_and_without_one_the_average_begins_with_the_model():
    model = nn.Linear(3, 3)
    first, second = (MeanTeacher(model, nn.Linear(3, 3), 0.5) for _ in range(2))
    for teacher, count in ((first, 20), (second, 1)):
        for _ in range(count):
            nn.init.normal_(model.weight)
            teacher.step()
    second.load_state(first.state())
    nn.init.normal_(model.weight)
    first.step()
    second.step()
    assert torch.equal(first.average.weight, second.average.weight)  # type: ignore[arg-type]  # a module's attribute
    second.load_state(None)
    assert torch.equal(second.average.weight, model.weight)  # type: ignore[arg-type]  # a module's attribute
    assert second.state()["count"] == 0


def test_a_step_that_is_not_taken_does_not_enter_the_average(tmp_path):
    ours = seeded(Normed().model, 1)
    strategies = begun(tmp_path, averaging(), Normed(), ours)
    stepper = Stepper(Objective(Normed(), ours, averaging(), strategies=strategies))
    (x, y) = batches(1)[0]
    (step,) = steps([(x * float("nan"), y)])
    assert not stepper.take(1, RATE, step).taken
    assert strategies.state_dict()["distillation"]["count"] == 0


def test_a_built_in_model_learns_from_its_own_average(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    taught = fit(strategies=[OWN], epochs=2, model={"name": "mlp", "hidden": [16], "dropout": 0.5})
    assert taught.state == "finished"
    assert all(row["terms"]["distillation"] > 0 for row in taught.history)


class Same(Rows):
    """Gives the same model each time."""

    def __init__(self) -> None:
        self.made = super().model()

    def model(self) -> nn.Module:
        return self.made


def test_a_model_that_is_never_a_new_one_has_no_average(tmp_path):
    task = Same()
    with pytest.raises(InputError, match=r"model\(\) gave the model that is trained, or a part of it"):
        begun(tmp_path, averaging(), task, task.model())


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ({}, "give weights, of a trained model, or use"),
        ({"ema": 0.9, "weights": "t.pt"}, "give weights, of a trained model, or use"),
        ({"ema": 0.9, "use": "a:b"}, "give weights, of a trained model, or use"),
        ({"ema": 0.9, "model": {"name": "mlp"}}, "model belongs to weights"),
        ({"use": "a:b", "model": {"name": "mlp"}}, "model belongs to weights"),
        ({"use": "a.b"}, "use"),
        ({"ema": 1.0}, "less than 1"),
    ],
)
def test_a_teacher_is_given_in_one_way(teacher, message):
    with pytest.raises(ValueError, match=message):
        chosen(strategy={"teacher": teacher})


def test_a_teacher_of_weights_has_the_name_that_it_had():
    assert config_digest(chosen()) == config_digest(chosen(strategy={"teacher": {"weights": "t.safetensors", "ema": None}}))
    assert config_digest(chosen()) != config_digest(averaging())
