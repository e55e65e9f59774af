"""A phase's figures: drawn once, from evidence alone, and bound in its record by the digests of their data and their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.configs.loading import at
from mltrainer.figures.bound import data_digest
from mltrainer.figures.content import Figure, of_run, schedule
from mltrainer.figures.tuning import of_search
from mltrainer.records.baseline import Baseline
from mltrainer.records.envelope import evidence_kind
from mltrainer.records.finalization import Finalization
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.records.planning import Planning
from mltrainer.workspace import sha256_bytes

Row = dict[str, Any]
BASELINE = "../02_baseline"  # the diagnostics link the baseline's figures in its folder


def draw(phase: str, evidence: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of a phase's evidence."""
    found = partial(evidence_kind(phase, evidence), evidence)
    if isinstance(found, Planning):
        figure = schedule(found.schedule, at(found.config, "schedule.name"))
        return [figure] if figure else []
    if isinstance(found, Searched):
        return of_search(found)
    return of_run(found.run) if isinstance(found, Baseline | Finalization) else []


def rows(phase: str, evidence: Mapping[str, Any], figures: list[Figure], baseline: list[Row] | None = None) -> list[Row]:
    """Return the rows by which a record binds its figures: file, title, caption, and digests of the bytes and of the data.

    Args:
        phase: The phase.
        evidence: The evidence that they were drawn from.
        figures: The figures that were drawn.
        baseline: The figures of the baseline's record, which the diagnostics show or link.
    """
    if phase == "diagnostics":
        return [{**row, "file": f"{BASELINE}/{row['file']}"} for row in baseline or []]
    data = data_digest(phase, evidence)
    return [
        {
            "file": figure.file,
            "title": figure.title,
            "caption": figure.caption,
            "sha256": sha256_bytes(figure.content.encode()),
            "data_sha256": data,
        }
        for figure in figures
    ]
