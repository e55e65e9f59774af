"""What a key of a training config decides: a run's bits and so its name, what is kept of it, or nothing."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, create_model

from mltrainer.configs.loading import Decides, Later, Strict, told
from mltrainer.configs.project import (
    KEPT_AS,
    TrainingConfig,
    bits_config,
    config_digest,
    decided_by,
    is_complete,
    is_named_by,
)
from mltrainer.configs.templates import TRAINING_KEYS, all_of, baseline_template
from mltrainer.workspace import digest
from tests.gates.evidence import judged

KEPT = Path(__file__).parents[1] / "kept/0.9"
NAMES = ("digits", "houses")
LATER = {  # keys that came after version 0.1, each with a default that means "as before"
    "conformal",
    "strategies",
    "augment",
    "class_weights",
    "image",
    "label_smoothing",
    "launch",
    "signals",
    "start",
    "tensor_parallel",
    "text",
    "ties",
    "tokens",
    "tracking",
    "watch",
}
BASE: dict[str, Any] = {
    "name": "digits",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}


class Newer(TrainingConfig):
    """The config of a later version, which has one key more."""

    polish: Annotated[int, Later("9.9")] = Field(3, description="rounds of polishing")


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**BASE, **changes})


def planned(project: str) -> dict[str, Any]:
    with tarfile.open(KEPT / f"{project}.tar.gz") as files:
        member = next(member for member in files if member.name.endswith("01_planning/record.json"))
        found = files.extractfile(member)
        assert found is not None
        return dict(json.loads(found.read()))


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
def test_what_does_not_decide_the_bits_renames_no_run(what: str) -> None:
    assert config_digest(config(**SAME_RUN[what])) == config_digest(config())


@pytest.mark.parametrize("what", OTHER_RUN)
def test_what_decides_the_bits_gives_a_run_another_name(what: str) -> None:
    assert config_digest(config(**OTHER_RUN[what])) != config_digest(config())


@pytest.mark.parametrize("project", NAMES)
def test_the_digest_of_a_plan_is_that_of_its_config(project: str) -> None:
    evidence = planned(project)["evidence"]
    assert config_digest(TrainingConfig.model_validate(evidence["config"])) == evidence["config_sha256"]


def test_a_digest_of_version_0_1_is_verified_by_its_own_rule() -> None:
    other = config(checkpoint={"keep": 7}, callbacks=["a.b:C"])
    dumped = told(other)  # without the keys that version 0.1 did not have
    then = digest({key: value for key, value in dumped.items() if key not in ("name", "id", "acceptance", "budget", "loader")})
    assert then != config_digest(other)
    assert is_named_by(other, then)
    assert not is_named_by(config(seed=43), then)


@pytest.mark.parametrize("project", NAMES)
def test_a_key_that_is_added_renames_no_run(project: str) -> None:
    evidence = planned(project)["evidence"]
    newer = Newer.model_validate(evidence["config"])
    assert config_digest(newer) == evidence["config_sha256"]
    assert config_digest(newer.model_copy(update={"polish": 4})) != evidence["config_sha256"]


@pytest.mark.parametrize("project", NAMES)
def test_a_key_that_is_added_stales_no_gate(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = planned(project)
    before = judged("config_valid", record, {})
    monkeypatch.setattr("mltrainer.gates.checks.planning.TrainingConfig", Newer)
    assert judged("config_valid", record, {}) == before
    assert before.verdict == "pass"


def test_a_key_that_is_added_refuses_no_template() -> None:
    fields = {name: Newer.model_fields[name] for name in (*TRAINING_KEYS, "polish")}
    template = create_model("Template", __base__=Strict, **all_of(fields))
    assert template.model_validate(baseline_template(None)).model_dump()["polish"] == 3
    with pytest.raises(ValueError, match="epochs"):
        template.model_validate({key: value for key, value in baseline_template(None).items() if key != "epochs"})


def test_a_config_is_complete_without_later_keys_but_not_without_the_others() -> None:
    newer = Newer.model_validate(BASE)
    values = newer.model_dump()
    assert is_complete(values, newer)
    assert is_complete({key: value for key, value in values.items() if key != "polish"}, newer)
    assert not is_complete({**values, "epochs": 21}, newer)
    for key in values.keys() - {"polish"} - LATER:
        assert not is_complete({name: value for name, value in values.items() if name != key}, newer)
    checkpoint = {key: value for key, value in values["checkpoint"].items() if key != "keep"}
    assert not is_complete({**values, "checkpoint": checkpoint}, newer)


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model and those of its fields, at whatever depth."""
    yield model
    for field in model.model_fields.values():
        for part in _parts(field.annotation):
            yield from models(part)


def _parts(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _parts(argument)


def test_what_is_kept_is_named_by_what_version_0_1_kept_by_default() -> None:
    assert decided_by(config(), Decides.KEPT) == list(KEPT_AS)
    assert bits_config(config())["checkpoint"] == told(config().checkpoint)


def test_the_baseline_template_and_the_models_defaults_are_the_same() -> None:
    filled, plain = TrainingConfig.model_validate({**BASE, **baseline_template(None)}), config()
    assert [key for key in TRAINING_KEYS if getattr(filled, key) != getattr(plain, key)] == []
