"""Class numbering: validation numbers its classes otherwise than training (page: `diagnostics/class_numbering.md`)."""

from __future__ import annotations

import math
from typing import NamedTuple

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, ratio, settled
from mltrainer.errors import first_names

FIGURES = ("confusion.svg", "metric.svg")
SHOWN = 8  # classes that the reason names


def find(run: Run, *, share: float, samples: float, trained: float) -> Finding:
    """Fire where classes that training distinguishes are each answered as another one in validation, and no two as the same."""
    observed = [number(row.evaluating.accuracy) for _, row in run.seen[-1:]]
    accuracy = settled(run.series("train", "accuracy") if run.has_metric("accuracy") else observed)
    # The matrix is from the best evaluation, which may be before anything was learned: so the last observation, too.
    tables = [table for table in (_of_matrix(run), _observed(run)) if len(table) > 1]
    if not tables or math.isnan(accuracy):
        return run.without_classes("Which classes are taken for which was not recorded, or no accuracy on training.")
    moved = max((_moved(table, samples) for table in tables), key=lambda rows: (len(rows) > 1, _share(rows)))
    found, is_learned = _share(moved), accuracy >= trained
    evidence = {"share": found, "classes": len(moved), "train": accuracy}
    if len(moved) < 2:
        return Finding("clear", "No two classes or more are answered as one other class each.", evidence)
    reason = (
        f"Of the validation samples of {len(moved)} classes {percent(found)} are answered as one other class each (fewer than "
        f"{percent(share)} expected): {_pairs(run, moved)}; on the training set {percent(accuracy)} are right."
    )
    return judged(found >= share and is_learned, reason, evidence, FIGURES)


class _Answered(NamedTuple):
    """The samples of a class, the class that they are answered as most, and how many of them are."""

    place: int
    samples: int
    answer: int
    agreeing: int


def _of_matrix(run: Run) -> list[_Answered]:
    rows = [(place, row) for place, row in enumerate(run.confusion) if sum(row)]
    return [_Answered(place, sum(row), row.index(max(row)), max(row)) for place, row in rows]


def _observed(run: Run) -> list[_Answered]:
    pairs = zip(run.last_seen.by_class or [], run.last_seen.answered or [], strict=False)
    return [_Answered(place, row[0], *taken) for place, (row, taken) in enumerate(pairs) if row[0]]


def _moved(table: list[_Answered], samples: float) -> list[_Answered]:
    """Return the classes that are answered as another one; none if two classes are answered as the same."""
    is_one_to_one = len({row.answer for row in table}) == len(table)
    return [row for row in table if row.answer != row.place and row.samples >= samples] if is_one_to_one else []


def _share(rows: list[_Answered]) -> float:
    return ratio(sum(row.agreeing for row in rows), sum(row.samples for row in rows)) if rows else 0.0


def _pairs(run: Run, moved: list[_Answered]) -> str:
    names = dict(enumerate(map(str, run.result.task_evaluation.labels)))
    return first_names([f"{names.get(row.place, row.place)} as {names.get(row.answer, row.answer)}" for row in moved], SHOWN)
