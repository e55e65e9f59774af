"""A project's table for a custom program, such as gradient boosting: the rows, splits and metrics of a network's project.

Cells are read by `data`, and rows are split by `split`, as in a built-in task; categories come from the training
rows alone, and the test rows stay sealed until they are opened.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mltrainer.checkpointing import inference_script
from mltrainer.configs import yaml
from mltrainer.configs.loading import read_text, validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.samples import Samples

METRICS = {"tabular_classification": "accuracy", "tabular_regression": "r2"}  # a metric of each kind
LEAST_PROBABILITY = 1e-15  # the probability of a class that a model rules out: its logarithm must be a number


@dataclass(frozen=True)
class Rows:
    """The rows of a split.

    Attributes:
        cells: The rows' cells, float32 [rows, columns]; categories as their numbers, NaN for a missing cell and for a category
            that is in no training row.
        target: Class numbers, or values to predict.
    """

    cells: np.ndarray
    target: np.ndarray


class Table:
    """A table, read and split.

    Attributes:
        categories: Places of the columns whose numbers are codes of categories.
        classes: The classes' names; None for values to predict.
        train: The training rows.
        validation: The validation rows.
    """

    def __init__(self, opened: OpenTask, task: BuiltinTask) -> None:
        self._opened, self._task = opened, task
        self.classes = task.classes
        self.train, self.validation = (self._rows(opened.split(name)) for name in ("train", "validation"))
        self.categories = list(self._inputs(opened.split("train").ids[:1]).categories)

    def open_test(self) -> Rows:
        """Return the test rows, which must decide nothing any more once they were opened.

        Raises:
            InputError: There are no test rows.
        """
        return self._rows(self._opened.open_test())

    def declared(self, most: int) -> list[int]:
        """Return the places of the category columns with at most `most` categories in training."""
        return [place for place in self.categories if len(np.unique(self.train.cells[:, place])) <= most]

    def metrics(self, model: Any, rows: Rows) -> dict[str, float]:
        """Return the task's metrics of a model's answers; those that are no number for these rows are left out.

        Args:
            model: The fitted model, with scikit-learn's `predict`, and for classes `predict_proba`.
            rows: The rows that it answers.
        """
        outputs = torch.from_numpy(outputs_of(model, rows.cells, len(self.classes or [])))
        dtype = torch.int64 if self.classes else torch.float32
        found = self._task.metrics(outputs, torch.from_numpy(rows.target).to(dtype))
        return {name: float(value) for name, value in found.items() if math.isfinite(value)}

    def describe(self) -> dict[str, Any]:
        """Return the description of the table that `read_rows` and `print_answers` need, for JSON."""
        return {**self._task.inference(), "category_places": self.categories}

    def _inputs(self, ids: Any) -> Any:
        return self._task.reference_inputs(np.asarray(ids))

    def _rows(self, samples: Samples) -> Rows:
        found = self._inputs(samples.ids)
        return Rows(found.inputs, found.targets)


def open_table(path: Path, sources: Sequence[str] = ()) -> Table:
    """Return the rows of the table that a file describes; arguments and errors as for `open_described`."""
    opened = open_described(path, sources)
    assert isinstance(opened.task, BuiltinTask)
    return Table(opened, opened.task)


def open_described(path: Path, sources: Sequence[str] = ()) -> OpenTask:
    """Read and split the table that a file describes.

    Args:
        path: A file with `task: {kind: ...}`, `data` and `split` of a project; other paths in it are relative to its folder.
        sources: The paths of its data, in place of `data.source`, and after that of `data.validation` and `data.test` where it
            has these.

    Raises:
        InputError: The file, the data or the split has a mistake.
    """
    values = yaml.parse(read_text(path, "the table's description"), path.name).value or {}
    kind = (values.get("task") or {}).get("kind")
    if kind not in METRICS:
        what = f"{kind!r} was found, {' or '.join(METRICS)} was expected"
        raise InputError(what, where=f"{path.name}: task.kind", hint="name the kind of the task")
    places = (name for name in ("source", "validation", "test") if values["data"].get(name))
    given = {**values, "data": {**values["data"], **dict(zip(places, sources, strict=False))}}
    metric = {"name": METRICS[kind], "mode": "max"}
    whole = {"name": "table", "model": {"name": "linear"}, "metric": metric, **given}
    return open_task(validate_values(TrainingConfig, whole, path.name), path.parent)


def outputs_of(model: Any, cells: np.ndarray | list[str], classes: int) -> np.ndarray:
    """Return a fitted model's outputs in the form for metrics and answers.

    Args:
        model: The fitted model, with scikit-learn's `predict`, and for classes `predict_proba` and `classes_`.
        cells: The rows' cells.
        classes: The number of classes; 0 for values to predict.

    Returns:
        The logarithms of the probabilities [rows, classes], or values [rows]; float32.
    """
    if not classes:
        return np.asarray(model.predict(cells), dtype=np.float32)
    found = np.full((len(cells), classes), LEAST_PROBABILITY)
    # A class that no training row has is missing in the model, and keeps the least probability.
    found[:, model.classes_] = np.maximum(model.predict_proba(cells), LEAST_PROBABILITY)
    return np.asarray(np.log(found), dtype=np.float32)


def read_rows(path: Path, described: Mapping[str, Any]) -> np.ndarray:
    """Return the cells of new rows in the form of `Rows.cells`.

    Args:
        path: A table with the columns of the training rows.
        described: The result of `Table.describe`.

    Raises:
        InvalidInputError: A column is missing, or a cell is not of its column's kind.
    """
    cells = np.asarray(inference_script.read_input(path, dict(described)), dtype=np.float32)
    for place in described["category_places"]:
        cells[cells[:, place] < 0, place] = np.nan
    return cells


def print_answers(model: Any, path: Path, described: Mapping[str, Any]) -> None:
    """Print the answer to each row of a file as JSON on a line, as `mltrainer predict` reads it.

    Raises:
        SystemExit: The file does not suit the model.
    """
    try:
        cells = read_rows(path, described)
    except (inference_script.InvalidInputError, OSError, ValueError) as error:
        raise SystemExit(f"error: {inference_script.message_of(error)}") from error
    outputs = outputs_of(model, cells, len(described["classes"] or []))
    for answer in inference_script.answers(outputs, dict(described)):
        sys.stdout.write(json.dumps(answer) + "\n")
