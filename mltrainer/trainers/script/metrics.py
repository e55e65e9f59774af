"""A program's metrics file: one JSON mapping with the final metrics, or one for each evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.errors import InputError
from mltrainer.programs.leftover_files import is_time
from mltrainer.workspace import is_number

TRAIN = "train_"  # prefix of metrics of training samples
EVALUATED = "eval_"  # prefix of validation metrics from transformers; here these have none
PLACES = ("step", "epoch")


class ReportedEvaluation(NamedTuple):
    """An evaluation reported by the program.

    Attributes:
        step: The number of optimizer steps before it; None if the program does not report it.
        epoch: The number of epochs before it; None if the program does not report it.
        validation: The validation metrics by name.
        train: The metrics of training samples, their names without `train_`.
    """

    step: int | None
    epoch: float | None
    validation: dict[str, float]
    train: dict[str, float]


def read_metrics(path: Path, name: str, metric: str) -> list[ReportedEvaluation]:
    """Return the evaluations in a program's metrics file, in order.

    Args:
        path: The file: one JSON mapping, a list of them, or one on each line.
        name: The file's name in messages.
        metric: The name of the metric that the last evaluation must have.

    Raises:
        InputError: The file is missing, is no such JSON, or lacks the metric.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, ValueError) as error:
        hint = "let the program write its metrics there, or name the file that it writes in task.metrics"
        raise InputError(f"the program left no metrics that can be read ({error})", where=name, hint=hint) from error
    written = _mappings(text, name)
    rows = [evaluation_of(row, f"{name}:{line}") for line, row in written]
    if not rows or metric not in rows[-1].validation:
        found = ", ".join(_shown(*item) for item in written[-1][1].items()) if rows else ""
        raise InputError(
            f"the last evaluation holds no number {metric}; it holds {found or 'nothing'}",
            where=name,
            hint="write it there as a number, not within another mapping, or name another metric",
        )
    return rows


def _shown(key: str, value: Any) -> str:
    return str(key) if is_number(value) else f"{key} (a {type(value).__name__})"


def ended_by(evaluations: Sequence[ReportedEvaluation], end: ReportedEvaluation, steps: int) -> list[ReportedEvaluation]:
    """Return a callback's evaluations followed by the program's final one; merged into one if both follow the last step.

    Args:
        evaluations: The callback's evaluations.
        end: The program's final evaluation.
        steps: The number of the program's steps.
    """
    *before, last = evaluations or [end]
    if not evaluations or last.step != steps:
        return [*evaluations, end]
    return [*before, ReportedEvaluation(steps, last.epoch, {**last.validation, **end.validation}, {**last.train, **end.train})]


def callback_evaluations(evaluations: list[ReportedEvaluation], metric: str) -> list[ReportedEvaluation]:
    """Return a callback's evaluations, for a task that names no file of metrics.

    Args:
        evaluations: The callback's evaluations.
        metric: The name of the metric that the last evaluation must have.

    Raises:
        InputError: There are no evaluations, or the last one lacks the metric.
    """
    if not evaluations or metric not in evaluations[-1].validation:
        found = ", ".join(evaluations[-1].validation) if evaluations else ""
        raise InputError(
            f"no file of metrics is named, and no callback reported {metric} at the end, only {found or 'nothing'}",
            where="task.metrics",
            hint="name the file that the program writes its metrics to, or report them (mltrainer.integrations.reporting)",
        )
    return evaluations


def _mappings(text: str, name: str) -> Sequence[tuple[int, Any]]:
    """Return the file's rows, each with the number of its first line.

    Raises:
        InputError: The text is not JSON.
    """
    try:
        whole = json.loads(text)
        return [(1, row) for row in whole] if isinstance(whole, list) else [(1, whole)]
    except ValueError:
        pass
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append((number, json.loads(line)))
            except ValueError as error:
                hint = "write one mapping of JSON, or one on each line"
                raise InputError(f"no JSON: {error}", where=f"{name}:{number}", hint=hint) from error
    return rows


def evaluation_of(row: Any, where: str) -> ReportedEvaluation:
    """Return an evaluation from a mapping of names to numbers; other values, and durations, are left out.

    `eval_accuracy` is the accuracy on validation, and `train_accuracy` that on training samples.

    Raises:
        InputError: The row is not a mapping.
    """
    if not isinstance(row, Mapping):
        raise InputError(expected="a mapping of metrics by name", found=type(row).__name__, where=where)
    numbers = {str(key): float(value) for key, value in row.items() if is_number(value) and not is_time(str(key))}
    step, epoch = (numbers.pop(place, None) for place in PLACES)
    validation = {key.removeprefix(EVALUATED): value for key, value in numbers.items() if not key.startswith(TRAIN)}
    train = {key.removeprefix(TRAIN): value for key, value in numbers.items() if key.startswith(TRAIN)}
    return ReportedEvaluation(None if step is None else int(step), epoch, validation, train)
