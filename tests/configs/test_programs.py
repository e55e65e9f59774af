"""A program as a task: its command with what stands in its places, and what such a project may say."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from mltrainer.configs.programs import words_of
from mltrainer.configs.project import TrainingConfig, config_digest

PROGRAM = {"script": "python train.py", "metrics": "metrics.json"}
VALUES: dict[str, Any] = {"name": "x", "metric": {"name": "accuracy", "mode": "max"}}


def config(task: dict[str, Any], **more: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**VALUES, "task": task, **more})


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("python train.py", {"lr": 0.1, "amp": True, "fast": False}, ["python", "train.py", "--lr", "0.1", "--amp"]),
        ("python t.py optimizer.lr={lr}", {"lr": 0.1, "n": 3}, ["python", "t.py", "optimizer.lr=0.1", "--n", "3"]),
        ("python t.py --seed {seed} 'a b'", {}, ["python", "t.py", "--seed", "7", "a b"]),
        ("python t.py '{name}'", {"name": "x y; rm"}, ["python", "t.py", "x y; rm"]),
    ],
)
def test_arguments_stand_in_their_places_or_behind(text, arguments, words):
    assert list(words_of(text, arguments, 7)) == words


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({**PROGRAM, "use": "a:B"}, "give one of kind"),
        ({**PROGRAM, "script": "python train.py {lr}"}, "{lr} is no placeholder: seed can be filled in"),
        ({**PROGRAM, "script": "python 'train.py"}, "is no command: No closing quotation"),
        ({**PROGRAM, "script": "  "}, "it has no word"),
        ({**PROGRAM, "outputs": ["../model.pt"]}, "must be in the program's folder"),
        ({**PROGRAM, "outputs": ["./README.md"]}, "is delivered beside the outputs"),
        ({**PROGRAM, "metrics": "/tmp/metrics.json"}, "must be in the program's folder"),
        ({"use": "a:B", "outputs": ["model.pt"], "resume": "x"}, "outputs and resume belong to a program"),
    ],
)
def test_what_is_no_program_is_refused(task, told):
    with pytest.raises(ValidationError, match=told.replace("{", r"\{")):
        config(task)


@pytest.mark.parametrize(
    "values", [{"epochs": 3}, {"optimizer": {"name": "sgd", "lr": 0.1}}, {"model": {"name": "mlp"}}, {"split": {"test": 0.2}}]
)
def test_what_only_the_program_decides_is_no_key_of_its_config(values):
    with pytest.raises(ValidationError, match=f"{next(iter(values))} is decided by the program"):
        config(PROGRAM, **values)


def test_each_part_of_a_program_names_its_run():
    plain = config_digest(config(PROGRAM))
    others = [{"arguments": {"lr": 0.2}}, {"outputs": ["m.pt"]}, {"reads": ["data"]}, {"script": "python other.py"}]
    assert len({plain, *(config_digest(config({**PROGRAM, **other})) for other in others)}) == 5


def test_whether_a_program_takes_the_seed_is_seen_in_its_command():
    assert config({**PROGRAM, "script": "python train.py --seed {seed}"}).task.is_seeded
    assert not config(PROGRAM).task.is_seeded
