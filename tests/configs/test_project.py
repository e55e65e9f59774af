"""The models of mltrainer.yaml and training_config.yaml."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mltrainer.configs import yaml
from mltrainer.configs.loading import validate_values
from mltrainer.configs.project import ProjectConfig, TrainingConfig, load_project, load_training, meets
from mltrainer.errors import InputError

PROJECT: dict[str, Any] = {
    "name": "digits",
    "task": {"kind": "image_classification"},
    "data": {"source": "sklearn:digits"},
    "model": {"name": "mlp"},
    "metric": {"name": "accuracy", "mode": "max"},
}


def project(**changes: Any) -> ProjectConfig:
    return ProjectConfig.model_validate({key: value for key, value in {**PROJECT, **changes}.items() if value is not None})


def test_the_default_seed_is_42():
    assert project().seed == 42


def test_a_config_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        project().seed = 1  # type: ignore[misc]


KIND = {"kind": "image_classification"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"metric": {"name": "accuracy"}}, "mode"),  # the direction of a metric has no default
    *(({"task": task}, "task") for task in ({}, {**KIND, "use": "m:C"}, {**KIND, "options": {"a": 1}})),
    ({"data": None}, "needs data"),
    ({"model": None}, "needs model"),
    ({"task": {"use": "m:C"}, "data": None}, r"task\.options"),  # a task of one's own makes its own model
    *(
        ({"task": {"use": use}, "data": None, "model": None}, "pattern")
        for use in ("module:", ":Class", "a b:C", "m:C()", "../m:C")
    ),
    *(({"name": name}, "pattern") for name in ("../x", "a/b", "", ".hidden", "-dash", "x" * 65, "a\nb", "a b")),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED)
def test_what_is_no_project_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        project(**changes)


def test_a_task_of_ones_own_needs_neither():
    own = project(task={"use": "my_project.tasks:MyTask", "options": {"noise": 0.2}}, data=None, model=None)
    assert own.task.options == {"noise": 0.2}


@pytest.mark.parametrize(
    ("value", "criterion", "met"),
    [(0.95, ">= 0.95", True), (0.95, "> 0.95", False), (0.1, "<=0.1", True), (1e-4, "< 1e-3", True)],
)
def test_a_criterion_is_compared_as_written(value, criterion, met):
    assert meets(value, criterion) is met


@pytest.mark.parametrize("criterion", [">= 0", "<= 0", "> 0", "< 0"])
def test_nan_meets_no_criterion(criterion):
    assert not meets(math.nan, criterion)


def test_what_is_no_criterion_is_refused():
    with pytest.raises(ValueError, match="not a criterion"):
        meets(1.0, "== 1")


def test_a_training_config_survives_being_written_and_read(tmp_path):
    config = TrainingConfig.model_validate(PROJECT)
    path = tmp_path / "training_config.yaml"
    path.write_text(yaml.dump(config.model_dump()))
    assert load_training(path, "training_config.yaml") == config


def test_a_project_file_is_read_with_its_name_in_messages(tmp_path):
    path = tmp_path / "mltrainer.yaml"
    path.write_text("name: x\nmetrics: {}\n")
    with pytest.raises(InputError, match=r"mltrainer\.yaml:2, key metrics: unknown key 'metrics'; did you mean 'metric'\?"):
        load_project(path)


@pytest.mark.parametrize(
    ("task", "told"),
    [({"kind": "tabular_regression"}, "tabular_regression has no classes"), ({"use": "a:B"}, "in your task's own loss")],
)
def test_class_weights_without_built_in_classes_are_refused(task, told):
    own = {"data": None, "model": None} if "use" in task else {}
    with pytest.raises(ValueError, match=told):
        TrainingConfig.model_validate({**PROJECT, **own, "task": task, "class_weights": "balanced"})


@pytest.mark.parametrize(("own", "drawn_with"), [(None, 5), (7, 7), (0, 0)])
def test_samples_are_drawn_with_the_splits_own_seed_where_it_has_one(own, drawn_with):
    config = TrainingConfig.model_validate({**PROJECT, "seed": 5, "split": {"seed": own}})
    assert config.data_seed == drawn_with


@pytest.mark.parametrize(("folds", "fold", "order"), [(0, 0, [0]), (3, 0, [0, 1, 2]), (3, 1, [1, 2, 0]), (2, 1, [1, 0])])
def test_folds_are_trained_from_the_configs_own(folds, fold, order):
    config = TrainingConfig.model_validate({**PROJECT, "split": {"folds": folds, "fold": fold}})
    assert config.folds == order


SECRET_ADDRESSES = (
    "s3://AKEY:sEcret/9xyzw@bucket/rows/*.parquet",
    "http://ada:sEcret9@host/a.tar",
    "https://sEcret9abcdefghijk@host/a.tar",
    "https://host/a.parquet?X-Amz-Signature=sEcret9",
    "https://host/a.parquet?se=2027&sig=sEcret9",
    "https://host/a.parquet?access_token=sEcret9",
    "simplecache::ftp://ada:sEcret9@host/a.tar",
)


@pytest.mark.parametrize("key", ["source", "validation", "test"])
@pytest.mark.parametrize("address", SECRET_ADDRESSES)
def test_an_address_with_a_secret_is_refused_and_not_repeated(key, address):
    with pytest.raises(InputError, match=rf"key data\.{key}: the address contains a key, password or token") as caught:
        validate_values(ProjectConfig, {**PROJECT, "data": {"source": "rows.csv", key: address}}, "mltrainer.yaml")
    assert "sEcret" not in str(caught.value)


def test_an_address_without_one_may_stand_there():
    for address in (
        "s3://bucket/rows/*.parquet",
        "abfs://container@account.dfs.core.windows.net/rows",
        "hdfs://ada@host:8020/rows",
        "https://host/a.tar?design=3&monkey=7",
        "a:b@c?sig=1.csv",
    ):
        assert project(data={"source": address}).model_dump()["data"]["source"] == address


CONFORMAL_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a text that is continued": (
        {"task": {"kind": "text_generation"}, "model": {"name": "gru"}, "conformal": {"coverage": 0.9}},
        "conformal gives sets of classes or intervals, and text_generation continues a text: conformal: null",
    ),
    "a program": (
        {"task": {"script": "python train.py"}, "data": None, "model": None, "conformal": {"coverage": 0.9}},
        "conformal needs the model's outputs, which a program does not give: let it write its sets",
    ),
    "a set of values": (
        {"task": {"kind": "tabular_regression"}, "conformal": {"score": "aps"}},
        "conformal.score: aps makes sets of classes, not intervals: leave it out",
    ),
    "always": ({"conformal": {"coverage": 1.0}}, "less than 1"),
    "less than half": ({"conformal": {"coverage": 0.4}}, "greater than or equal to 0.5"),
    "another score": ({"conformal": {"score": "raps"}}, "'lac' or 'aps'"),
}


@pytest.mark.parametrize("what", CONFORMAL_REFUSED)
def test_sets_and_intervals_that_cannot_be_made_are_refused_with_key_and_reason(what):
    changes, told = CONFORMAL_REFUSED[what]
    with pytest.raises(ValueError, match="conformal") as caught:
        project(**changes)
    assert told in str(caught.value)


@pytest.mark.parametrize("kind", ["image_classification", "tabular_classification", "tabular_regression"])
def test_sets_and_intervals_go_with_tasks_that_tell_classes_or_values(kind):
    found = project(task={"kind": kind}, conformal={}).conformal
    assert (found.coverage, found.score) == (0.9, None)
    assert project().conformal is None
