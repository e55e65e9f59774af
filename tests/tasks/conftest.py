"""Situations that the tests of tasks share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig

MakeConfig = Callable[..., TrainingConfig]


@pytest.fixture
def config() -> MakeConfig:
    """A small training config; keyword arguments replace its keys."""

    def make(**changes: Any) -> TrainingConfig:
        values: dict[str, Any] = {
            "name": "small",
            "task": {"kind": "tabular_classification"},
            "data": {"source": "sklearn:iris"},
            "model": {"name": "mlp", "hidden": [8]},
            "metric": {"name": "accuracy", "mode": "max"},
            "batch_size": 4,
            **changes,
        }
        return TrainingConfig.model_validate(values)

    return make


@pytest.fixture
def own_config(config: MakeConfig) -> MakeConfig:
    """A config for a task of one's own."""

    def make(use: str, **changes: Any) -> TrainingConfig:
        task = {"use": use, "options": changes.pop("options", {})}
        return config(task=task, data=None, model=None, **changes)

    return make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's folder with a table of two numbers, a category with gaps, and two classes."""
    rows = [f"{i},{(i * 7) % 11 / 3:.3f},{'abc'[i % 3] if i % 10 else ''},{'yes' if i % 4 == 0 else 'no'}" for i in range(60)]
    (tmp_path / "data.csv").write_text("size,weight,colour,sold\n" + "\n".join(rows) + "\n")
    return tmp_path
