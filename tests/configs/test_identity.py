"""What a key of a training config decides: a run's bits and so its name, what is kept of it, or nothing."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import Field

from mltrainer.configs import models, optimizers, schedules
from mltrainer.configs.loading import Strict, without_defaults
from mltrainer.configs.project import TrainingConfig, bits_config, config_digest
from mltrainer.configs.templates import TRAINING_KEYS, baseline_template
from tests.gates.evidence import judged, kept

BASE: dict[str, Any] = {
    "name": "digits",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}


class Newer(TrainingConfig):
    """The config of a later version, which has one key more."""

    polish: int = Field(3, description="rounds of polishing")


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**BASE, **changes})


SAME_RUN: dict[str, dict[str, Any]] = {
    "its name": {"name": "other"},
    "its criterion": {"acceptance": {"accuracy": "> 0.5"}},
    "its answers' doubt": {"conformal": {"coverage": 0.9, "score": "aps"}},
    "its budget": {"budget": {"minutes": 1.0}},
    "its loader": {"loader": {"workers": 3}},
    "what is kept": {"checkpoint": {"keep": 7, "every_n_epochs": 2, "every_n_steps": 50, "every_minutes": 7.5}},
    "where it is shown": {"tracking": ["tensorboard"]},
    "who watches": {"callbacks": [{"use": "a.b:C", "watch": True}]},
}
OTHER_RUN: dict[str, dict[str, Any]] = {
    "the seed": {"seed": 43},
    "the samples": {"split": {"seed": 1}},
    "who takes part": {"callbacks": ["a.b:C"]},
    "the optimizer": {"optimizer": {"name": "sgd", "lr": 0.1}},
    "when it is measured": {"evaluate": {"every_n_steps": 3}},
}


@pytest.mark.parametrize("what", SAME_RUN)
def test_what_does_not_decide_the_bits_renames_no_run(what):
    assert config_digest(config(**SAME_RUN[what])) == config_digest(config())


@pytest.mark.parametrize("what", OTHER_RUN)
def test_what_decides_the_bits_gives_a_run_another_name(what):
    assert config_digest(config(**OTHER_RUN[what])) != config_digest(config())


@pytest.mark.parametrize("key", TRAINING_KEYS)
def test_a_key_that_is_written_with_its_default_names_the_run_as_one_that_is_left_out(key):
    assert config_digest(config(**{key: config().model_dump()[key]})) == config_digest(config())


@pytest.mark.parametrize("module", [models, optimizers, schedules])
def test_members_of_a_union_are_told_apart_at_their_defaults(module):
    named = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Strict) and _is_tagged(one)]
    digested = [without_defaults(one.model_construct()) for one in named]
    assert len(named) > 8
    assert [one["name"] for one in digested] == [get_args(one.model_fields["name"].annotation)[0] for one in named]


def _is_tagged(model: type[Strict]) -> bool:
    fields = model.model_fields
    return (
        "name" in fields
        and not any(field.is_required() for field in fields.values())
        and get_origin(fields["name"].annotation) is Literal
    )


def test_a_key_that_is_added_renames_no_run():
    newer = Newer.model_validate(BASE)
    assert config_digest(newer) == config_digest(config())
    assert config_digest(newer.model_copy(update={"polish": 4})) != config_digest(config())


def test_a_key_that_is_added_stales_no_gate(monkeypatch):
    before = judged("config_valid", kept("planning"), {})
    monkeypatch.setattr("mltrainer.gates.checks.planning.TrainingConfig", Newer)
    assert judged("config_valid", kept("planning"), {}) == before
    assert before.verdict == "pass"


def test_a_template_that_lacks_a_key_has_its_default(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/baseline_template.yaml").write_text("batch_size: 16\n")
    assert baseline_template(tmp_path) == {**baseline_template(None), "batch_size": 16}


def test_differences_are_shown_with_values_that_a_digest_leaves_out():
    assert bits_config(config())["epochs"] == 20


def test_the_shipped_baseline_template_has_every_key_with_the_models_default():
    filled, plain = TrainingConfig.model_validate({**BASE, **baseline_template(None)}), config()
    assert [key for key in TRAINING_KEYS if getattr(filled, key) != getattr(plain, key)] == []
    assert set(baseline_template(None)) == set(TRAINING_KEYS)
