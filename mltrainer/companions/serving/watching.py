"""Comparison of a served model's requests and quality with its training."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

from mltrainer.checkpointing.inference_script import as_text
from mltrainer.companions.serving.store import Kept
from mltrainer.records.common import Part
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import read_record
from mltrainer.runs.drift import ANOTHER, LEAST_ROWS, compared, stability_index
from mltrainer.tasks.statistics import share_difference
from mltrainer.workspace import Project, machine_faults, require_new, write_atomic

Z = 1.96  # of a 95 % interval
ALARM = 0.01  # chance of a false alarm; chosen by us
LEAST_SHARE = 1e-4  # share of a bin that was empty in training


class Column(Part):
    """A column of the requested rows.

    Attributes:
        name: The column's name.
        index: Population stability index against the training rows.
        missing: Share of missing values.
        has_drifted: Whether the index is above 0.25, and chance does not explain it.
    """

    name: str
    index: float
    missing: float
    has_drifted: bool


class Quality(Part):
    """A metric over the labelled answers.

    Attributes:
        metric: The metric's name in finalization's record.
        live: Its value over the labelled answers.
        test: Its value on the test split.
        interval: Ends of the difference, live less test, at 95 %.
        rows: Number of labelled answers.
        is_worse: Whether all of the interval is on the worse side.
    """

    metric: str
    live: float
    test: float
    interval: tuple[float, float]
    rows: int
    is_worse: bool


class Watched(Part):
    """A served model's requests and quality over some days.

    Attributes:
        days: Length of the period, in days.
        predictions: Number of answered rows.
        inputs: Number of answers whose rows were kept.
        labels: Number of answers with a label.
        columns: Columns of the rows, the most drifted first; empty for fewer than 50 rows.
        answers: Population stability index of the predicted classes against those on validation; None if unknown.
        quality: Metrics of the labelled answers; empty for fewer than 50 labels.
        alerts: Differences from training, in words.
        next: Commands that train again.
    """

    days: float
    predictions: int
    inputs: int
    labels: int
    columns: list[Column]
    answers: float | None
    quality: list[Quality]
    alerts: list[str]
    next: str


def watched(spec: Mapping[str, Any], final: Finalization | None, kept: Sequence[Kept], days: float) -> Watched:
    """Return the differences from training.

    Args:
        spec: Content of the model's `inference.json`.
        final: Finalization's evidence; None for a model outside a project.
        kept: The model's predictions of the period.
        days: Length of the period, in days.
    """
    rows = [row.input for row in kept if isinstance(row.input, dict)]
    columns = list(_columns(spec, rows)) if spec.get("columns") and len(rows) >= LEAST_ROWS else []
    answers, have_changed = _answers(kept, final)
    quality = list(_qualities(spec, kept, final.test.metrics, final.test.samples)) if final else []
    return Watched(
        days=days,
        predictions=len(kept),
        inputs=sum(row.input is not None for row in kept),
        labels=sum(row.label is not None for row in kept),
        columns=sorted(columns, key=lambda column: -column.index),
        answers=answers,
        quality=quality,
        alerts=[*_alerts(columns, answers if have_changed else None, quality)],
        next=_next(final, kept),
    )


def final_of(project: Project | None) -> Finalization | None:
    """Return the evidence of finalization; None if its record is missing or edited."""
    record = read_record(project, "finalization") if project else None
    if record is None or record.faults:
        return None
    final: Finalization = record.trusted.evidence
    return final


def labelled(spec: Mapping[str, Any], kept: Sequence[Kept], path: Path) -> int:
    """Write the labelled rows to a new file, as lines of JSON that training reads, and return their number.

    Raises:
        InputError: The file exists.
    """
    require_new(path, str(path), "--rows another file")
    rows = [row for row in kept if row.label is not None and row.input is not None]
    column = spec.get("text")
    lines = []
    for row in rows:
        given = row.input if isinstance(row.input, dict) else {column or "input": row.input}
        truth = row.label if spec.get("output") == "targets" else {spec.get("target") or "label": row.label}
        lines.append(json.dumps({**given, **truth}, ensure_ascii=False) + "\n")
    with machine_faults(str(path)):
        write_atomic(path, "".join(lines).encode())
    return len(rows)


def _next(final: Finalization | None, kept: Sequence[Kept]) -> str:
    data = ((final.config.get("data") or {}).get("source") if final else None) or "the project's data"
    again = f"mltrainer watch --rows new_rows.jsonl, add these rows to {data}, then train again: mltrainer run"
    if not any(row.input is not None for row in kept):
        return f"keep the rows, too: mltrainer serve --store --keep-days 30; later {again}"
    if not any(row.input is not None and row.label is not None for row in kept):
        return f"send the labels of these rows once they are known; then {again}"
    return again


def _columns(spec: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[Column]:
    table = [{name: as_text(value) for name, value in row.items()} for row in rows]
    comparisons = compared(spec, table)
    for one in comparisons:
        differs = one.index > ANOTHER and not _by_chance(one.expected, one.actual, len(rows), len(comparisons))
        yield Column(name=one.column, index=one.index, missing=one.actual[-1], has_drifted=differs)


def _by_chance(expected: Sequence[float], actual: Sequence[float], rows: float, comparisons: int = 1) -> bool:
    """Return True if these rows may be spread over the bins like this without drift, by Pearson's chi-square test.

    Args:
        expected: Share of each bin without drift.
        actual: Share of each bin in the rows.
        rows: Number of rows.
        comparisons: Number of compared columns, which share the chance of a false alarm (Bonferroni).
    """
    shares = np.maximum(expected, LEAST_SHARE)
    statistic = rows * float(((np.array(actual) - shares) ** 2 / shares).sum())
    return statistic <= float(chi2.ppf(1 - ALARM / comparisons, len(shares) - 1))


def _answers(kept: Sequence[Kept], final: Finalization | None) -> tuple[float | None, bool]:
    """Return the stability index of the predicted classes against validation's, and whether they differ beyond chance."""
    evaluation = (final.run.evaluation if final else None) or {}
    confusion, labels = evaluation.get("confusion"), evaluation.get("labels")
    counts = Counter(str(row.answer.get("prediction")) for row in kept)
    if not confusion or not labels or sum(counts[str(label)] for label in labels) < LEAST_ROWS:
        return None, False
    expected = np.array(confusion, dtype=np.float64).sum(axis=0)
    actual = np.array([counts[str(label)] for label in labels], dtype=np.float64)
    before, now = expected / expected.sum(), actual / actual.sum()
    # Validation has few predictions, too: the variances of both add up.
    rows = 1 / (1 / expected.sum() + 1 / actual.sum())
    index = stability_index(before, now)
    return index, index > ANOTHER and not _by_chance(before.tolist(), now.tolist(), float(rows))


def _qualities(spec: Mapping[str, Any], kept: Sequence[Kept], metrics: Mapping[str, Any], samples: int) -> Iterator[Quality]:
    """Yield the metric of each target with 50 labels or more."""
    labelled = [row for row in kept if row.label is not None]
    if len(labelled) < LEAST_ROWS:
        return
    targets = spec.get("targets") if spec.get("output") == "targets" else [{**spec, "name": None}]
    for target in targets or []:
        name = target["name"]
        pairs = [(row.answer["prediction"], row.label) for row in labelled if "prediction" in row.answer]
        if name is not None:
            pairs = [(said[name], truth[name]) for said, truth in pairs if isinstance(truth, dict) and name in truth]
        metric = ("accuracy" if target.get("classes") else "mae") + (f"_{target['word']}" if name else "")
        test = metrics.get(metric)
        if isinstance(test, float) and len(pairs) >= LEAST_ROWS:
            yield _accuracy(metric, pairs, test, samples) if target.get("classes") else _error(metric, pairs, test)


def _accuracy(metric: str, pairs: Sequence[tuple[Any, Any]], test: float, samples: int) -> Quality:
    live = sum(said == truth for said, truth in pairs) / len(pairs)
    ends = share_difference(test, live, samples, after_count=len(pairs)) or (0.0, 0.0)
    return Quality(metric=metric, live=live, test=test, interval=ends, rows=len(pairs), is_worse=ends[1] < 0)


def _error(metric: str, pairs: Sequence[tuple[Any, Any]], test: float) -> Quality:
    """Return the mean absolute error, with the normal interval of a mean; the test's value counts as exact."""
    sizes = np.abs(
        np.array([[math.nan if part is None else part for part in pair] for pair in pairs], dtype=np.float64) @ [1, -1]
    )
    sizes = sizes[np.isfinite(sizes)]
    live = float(sizes.mean())
    half = Z * float(sizes.std(ddof=1)) / math.sqrt(len(sizes))
    ends = (live - half - test, live + half - test)
    return Quality(metric=metric, live=live, test=test, interval=ends, rows=len(sizes), is_worse=ends[0] > 0)


def _alerts(columns: Sequence[Column], answers: float | None, quality: Sequence[Quality]) -> Iterator[str]:
    for column in columns:
        if column.has_drifted:
            yield f"column {column.name!r} differs from training: population stability index {column.index:.2f}"
    if answers is not None:
        yield f"the predicted classes are not those of validation: population stability index {answers:.2f}"
    for row in quality:
        if row.is_worse:
            yield f"{row.metric} is {row.live:.4g} over {row.rows} labelled answers, and was {row.test:.4g} on the test split"
