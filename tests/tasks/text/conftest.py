"""Situations that the tests of texts share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import OpenTask, open_task

WORDS = {"good": ("fine", "great", "lovely"), "bad": ("awful", "poor", "dull")}


def write_reviews(path: Path, count: int = 60) -> None:
    """Write a table of reviews: an id, a text and its class."""
    labels = ["bad" if n % 2 else "good" for n in range(count)]
    rows = [f"{n},film number {n} was {WORDS[label][n % 3]},{label}" for n, label in enumerate(labels)]
    path.write_text("id,review,label\n" + "\n".join(rows) + "\n")


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A project's folder with a table of reviews."""
    write_reviews(tmp_path / "reviews.csv")
    return tmp_path


@pytest.fixture
def open_texts(reviews: Path) -> Callable[..., OpenTask]:
    """Open the table of reviews; keyword arguments replace keys of the config, `data` those of its data."""

    def opened(data: dict[str, Any] | None = None, **changes: Any) -> OpenTask:
        values = {
            "name": "texts",
            "task": {"kind": "text_classification"},
            "data": {"source": "reviews.csv", "text": "review", "target": "label", **(data or {})},
            "model": {"name": "bag", "width": 4},
            "metric": {"name": "accuracy", "mode": "max"},
            "batch_size": 4,
            **changes,
        }
        return open_task(TrainingConfig.model_validate(values), reviews)

    return opened
