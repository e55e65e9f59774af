"""Whatever a config says, written and read back it has the same digest: a run is named by it."""

from __future__ import annotations

import importlib
import json
import pkgutil
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

import mltrainer.configs
from mltrainer.configs import yaml
from mltrainer.configs.loading import Strict
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.runs.contract import run_id
from mltrainer.runs.retrain import original_job
from mltrainer.search.space import trial_config
from mltrainer.workspace import Project, canonical, digest, write_json

for _module in pkgutil.iter_modules(mltrainer.configs.__path__):
    importlib.import_module(f"mltrainer.configs.{_module.name}")


def _below(model: type[Strict]) -> Iterator[type[Strict]]:
    for other in model.__subclasses__():
        yield other
        yield from _below(other)


MODELS = sorted(
    {model for model in _below(Strict) if model.__module__.startswith("mltrainer.configs.") and model.__name__[0] != "_"}, key=str
)
BASE: dict[str, Any] = {
    "name": "digits",
    "task": {"kind": "tabular_classification"},
    "data": {"source": "d.csv", "target": "t"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}
STARTS: dict[str, dict[str, Any]] = {  # where required keys alone are not valid, or drawn ones hardly ever
    "TrainingConfig": BASE,
    "ProjectConfig": BASE,
    "Task": {"kind": "tabular_classification"},
    "Clip": {"norm": 1},
    "Evaluate": {"every_n_steps": 2},
    "Sequence": {"parts": [{"schedule": {"name": "linear"}, "epochs": 3}, {"schedule": {"name": "constant"}}]},
    "Start": {"weights": "w.safetensors"},
    "Teacher": {"weights": "t.safetensors"},
    "Tracking": {"tensorboard": {}},
    "TuningTemplate": {"strategy": "random", "trials": 3, "space": {"optimizer.lr": {"log_uniform": [1e-4, 0.1]}}},
    "Dimension": {"choice": [1, 0.5, "adam", None]},
}
WORDS = st.sampled_from(
    ["a", "x.y", "yes", "null", "1e5", "0x1F", "010", "3:4", "", " ", "ü", "a: b", "- c", "l\nm", "'q'", "#", "1_0"]
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 10, 0.0, 0.1, 0.5, 1.0, 1e-8, 5e-324, 1e22, 1e16, -1.5, 100.0]),
    st.integers(-99, 99),
    st.floats(0, 1),
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(WORDS, inner, max_size=2)),
    max_leaves=4,
)


def plausible(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Return values as a file could hold them for an annotation; some are not valid."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return plausible(arguments[0], (*metadata, *arguments[1:]))
    if origin in (typing.Union, types.UnionType):
        return st.one_of([plausible(one, metadata) for one in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is list:
        return st.lists(plausible(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(plausible(arguments[0]), plausible(arguments[1]), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return given_values(annotation)
    pattern = next((one.pattern for one in metadata if getattr(one, "pattern", None)), None)
    texts = WORDS if pattern is None else st.from_regex(pattern, fullmatch=True, alphabet=st.characters(codec="ascii"))
    simple = {type(None): st.none(), bool: st.booleans(), int: NUMBERS, float: NUMBERS, str: texts}
    return simple.get(annotation, ANYTHING)


@st.composite
def given_values(draw: st.DrawFn, model: type[BaseModel]) -> dict[str, Any]:
    """Values of a valid model: what must be given, and such of the other keys as fit."""
    values = dict(STARTS.get(model.__name__, {}))
    for name, field in model.model_fields.items():
        if field.is_required() and name not in values:
            values[name] = draw(_of(field))
    assume(_is_valid(model, values))
    names = [name for name, field in model.model_fields.items() if not field.is_required()]
    for name in draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) if names else []:
        more = {**values, name: draw(_of(model.model_fields[name]))}
        values = more if _is_valid(model, more) else values
    return values


def _of(field: FieldInfo) -> st.SearchStrategy[Any]:
    return plausible(field.annotation, tuple(field.metadata))


def _is_valid(model: type[BaseModel], values: dict[str, Any]) -> bool:
    try:
        model.model_validate(values)
    except ValidationError:
        return False
    return True


def read_back(model: type[BaseModel], values: Any) -> list[BaseModel]:
    """Return what is read of values that were written as YAML and as JSON."""
    as_yaml = yaml.parse(yaml.dump(values), "config.yaml").value
    return [model.model_validate(found or {}) for found in (as_yaml, json.loads(canonical(values)))]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_and_read_back_has_the_same_digest(model, data):
    made = model.model_validate(data.draw(given_values(model)))
    for again in read_back(model, made.model_dump()):
        assert digest(again.model_dump()) == digest(made.model_dump())
        if isinstance(made, TrainingConfig) and isinstance(again, TrainingConfig):
            assert config_digest(again) == config_digest(made)


@pytest.mark.parametrize("name", ["constant", "cosine", "cosine_restarts", "cyclical", "step", "one_cycle"])
def test_the_job_of_a_trial_with_another_schedule_is_the_one_that_it_is_named_by(tmp_path, name):
    """The search died at its end wherever the winner's schedule was constant: its job was read as another one."""
    (tmp_path / "mltrainer.yaml").touch()
    project = Project(tmp_path)
    config = trial_config(TrainingConfig.model_validate(BASE).model_dump(), {"schedule": {"name": name}})
    contract = {"config_sha256": config_digest(config)}
    run = run_id(contract)
    job = {"run": run, "config": config.model_dump(), "contract": contract, "folder": "r", "phase": "optimization"}
    (project.runs_dir / run).mkdir(parents=True)
    write_json(project.runs_dir / run / "job.json", {**job, "purpose": "train", "threads": config.threads})
    assert original_job(project, run).config.schedule.name == name
