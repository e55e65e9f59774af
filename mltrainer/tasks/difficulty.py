"""How difficult samples are, as a curriculum orders them: by a feature, by a column that no model reads, or as the task says."""

from __future__ import annotations

import contextlib
import difflib
from pathlib import Path

import numpy as np

from mltrainer.errors import InputError
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.data_adapters import DataAdapter
from mltrainer.tasks.task import Task
from mltrainer.tasks.user_code import user_code


def difficulty(data: DataAdapter, root: Path, name: str | None, where: str) -> np.ndarray:
    """Return a number for each sample by its id, NaN where there is none, float64.

    Args:
        data: All samples.
        root: The project's folder.
        name: Of a feature or a column; None: what the task itself says.
        where: The config's key of that name.

    Raises:
        InputError: There is nothing of that name.
    """
    if name is None:
        return _said(data.task, root, where)
    features = data.task.features(np.arange(data.task.size)) if isinstance(data.task, BuiltinTask) else []
    found = {feature.name: feature.values.astype(np.float64) for feature in features if not feature.texts}
    return found[name] if name in found else _of_column(data, name, [*found], where)


def _of_column(data: DataAdapter, name: str, others: list[str], where: str) -> np.ndarray:
    """Return the numbers in a column of the source, also one that the model does not read; `others` could be named, too."""
    ids = np.asarray(data.ids.train)
    cells = data.cells(int(ids[0]))
    if name not in cells:
        there = [*dict.fromkeys([*others, *cells])]
        close = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "name one of them"
        raise InputError(f"samples have no {name!r}; there are: {', '.join(there) or 'none'}", where=where, hint=hint)
    values = np.full(int(ids.max()) + 1, np.nan)
    for row in ids.tolist():
        with contextlib.suppress(ValueError):  # no number: told by the row
            values[row] = float(data.cells(row)[name])
    return values


def _said(task: Task, root: Path, where: str) -> np.ndarray:
    """Return the difficulties that a task of one's own says."""
    if isinstance(task, BuiltinTask):
        hint = "by: a column of numbers, or margins: those of an earlier run"
        raise InputError("nothing says how difficult a sample is", where=where, hint=hint)
    with user_code(root, "difficulty of your task"):
        given = task.difficulty()
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        found = np.empty((0, 0))  # of no form that is taken
    if found.ndim != 1:
        what = f"difficulty() gave {type(given).__name__}; a number for each training sample was expected"
        raise InputError(what, where=where, hint="return a list or an array of numbers")
    return found
