"""The JSON Schemas accept what the loader accepts and refuse what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mltrainer.configs import yaml
from mltrainer.configs.project import ProjectConfig, TrainingConfig
from mltrainer.configs.schema import FOLDER, header, write_schemas
from mltrainer.project.start import EXAMPLES

BASE: dict[str, Any] = {"name": "x", **EXAMPLES["digits"]}


@pytest.fixture
def schemas(tmp_path: Path) -> dict[str, Any]:
    write_schemas(tmp_path)
    return {path.stem: json.loads(path.read_bytes()) for path in (tmp_path / FOLDER).iterdir()}


@pytest.mark.slow
def test_a_valid_project_and_config_fit_their_schemas(schemas):
    jsonschema.validate(ProjectConfig.model_validate(BASE).model_dump(), schemas["mltrainer"])
    jsonschema.validate(TrainingConfig.model_validate(BASE).model_dump(), schemas["training_config"])


@pytest.mark.parametrize(
    "change", [{"sede": 1}, {"seed": "many"}, {"model": {"name": "mlp", "hiden": [1]}}, {"split": {"test": 2}}]
)
def test_an_editor_sees_the_same_mistakes(schemas, change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**BASE, **change}, schemas["mltrainer"])


def test_the_comment_that_names_a_schema_is_yaml():
    assert yaml.parse(header("mltrainer.json") + "a: 1", "x").value == {"a": 1}
