"""Changes since the committed version of a report: metrics and settings, before and now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.records.common import KeyChange
from mltrainer.records.diagnostics import Diagnostics
from mltrainer.records.envelope import Envelope, Since, partial_record
from mltrainer.records.optimization import Searched
from mltrainer.reports.views import flat

DIGESTS = ("data", "code", "environment")


def since(now: Mapping[str, Any], before: Mapping[str, Any] | None, of: str) -> dict[str, Any] | None:
    """Return the differences from a phase's earlier record, or None where there is no earlier version.

    A phase that is run again without a change keeps its record's entry, so that the record keeps its bytes.

    Args:
        now: The new record; its evidence is complete.
        before: The earlier record of the same phase, or None.
        of: The origin of the earlier record, in words.
    """
    if before is None or not isinstance(before.get("evidence"), dict):
        return None
    record, earlier = (partial_record(content, now["phase"]) for content in (now, before))
    metrics, settings = (differences(part(record), part(earlier)) for part in (measured, settled))
    if not metrics and not settings:
        return earlier.since.written() if earlier.since else None
    return Since(of=of, metrics=metrics, settings=settings).written()


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[KeyChange]:
    """Return the keys whose values differ, with both values; None where there is no such key."""
    keys = sorted(now.keys() | before.keys())
    return [KeyChange(key=key, before=before.get(key), after=now.get(key)) for key in keys if before.get(key) != now.get(key)]


def measured(record: Envelope[Any]) -> dict[str, Any]:
    """Return the main metrics of a phase's report, by name."""
    evidence = record.evidence
    of_run = evidence if isinstance(evidence, Diagnostics) else getattr(evidence, "run", None)
    splits = {"validation": of_run, "test": getattr(evidence, "test", None)}
    found = {_of_split(split, name): value for split, part in splits.items() if part for name, value in part.metrics.items()}
    if isinstance(evidence, Searched):
        searched = {"baseline": evidence.baseline.value, "mean improvement": evidence.comparison.mean_difference}
        found |= {name: value for name, value in searched.items() if value is not None}
    return found


def _of_split(split: str, name: str) -> str:
    """Return a metric's name with its split; one of the training split, measured beside the other, begins with `train_`."""
    return f"training {name.removeprefix('train_')}" if name.startswith("train_") else f"{split} {name}"


def settled(record: Envelope[Any]) -> dict[str, Any]:
    """Return a report's inputs as one flat table: the config's keys, digests of data, code and environment, and decisions."""
    config = dict(flat(getattr(record.evidence, "config", {})))
    return {**config, **{f"{name} digest": value for name, value in digests(record).items()}, **decided(record)}


def digests(record: Envelope[Any]) -> dict[str, Any]:
    """Return the heads of the digests of a phase's data, code and environment."""
    evidence, run = record.evidence, getattr(record.evidence, "run", None)
    if record.phase == "planning":
        parts = (getattr(evidence, "data", None), record.source, evidence.environment)
        return {name: _head(part.sha256 if part else None) for name, part in zip(DIGESTS, parts, strict=True)}
    return {name: _head(getattr(run, f"{name}_sha256")) for name in DIGESTS if run and run.id}


def decided(record: Envelope[Any]) -> dict[str, Any]:
    """Return a phase's decisions: the recommendation, promotion or skip, and the diagnostics that fired."""
    evidence = record.evidence
    recorded = evidence.model_fields_set
    found = {key: getattr(evidence, key) for key in ("recommendation", "promoted", "skipped") if key in recorded}
    if isinstance(evidence, Diagnostics):
        found["fired"] = [row.id for row in evidence.diagnostics if row.state == "fired"]
    return found


def _head(digest: str | None) -> str | None:
    return digest[:16] if isinstance(digest, str) else digest
