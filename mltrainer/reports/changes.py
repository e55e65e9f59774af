"""What changed since the version of a report that was committed: metrics and settings, before and now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.reports.values import at
from mltrainer.reports.views import flat

Found = Mapping[str, Any]
DIGESTS = ("data", "code", "environment")


def since(now: Found, before: Found | None, of: str) -> dict[str, Any] | None:
    """Return the differences from a phase's earlier record, or None where there is no earlier version.

    A phase that is run again without a change keeps what its record said, so that the record keeps its bytes.

    Args:
        now: The new record; its evidence is complete.
        before: The earlier record of the same phase, or None.
        of: Where the earlier one is from, in words.
    """
    if before is None or not isinstance(before.get("evidence"), dict):
        return None
    metrics, settings = (differences(part(now), part(before)) for part in (measured, settled))
    if not metrics and not settings:
        return before.get("since")
    return {"of": of, "metrics": metrics, "settings": settings}


def differences(now: Found, before: Found) -> list[dict[str, Any]]:
    """Return the keys whose values differ, with both; None: no such key."""
    keys = sorted(now.keys() | before.keys())
    return [{"key": key, "before": before.get(key), "after": now.get(key)} for key in keys if before.get(key) != now.get(key)]


def measured(record: Found) -> dict[str, Any]:
    """Return the metrics that a phase's report is read for."""
    evidence = record["evidence"]
    found = {f"validation {name}": value for name, value in (at(evidence, "run.metrics") or {}).items()}
    if record["phase"] == "diagnostics":
        found = {f"validation {name}": value for name, value in (evidence.get("metrics") or {}).items()}
    found |= {f"test {name}": value for name, value in (at(evidence, "test.metrics") or {}).items()}
    found |= {key: at(evidence, path) for key, path in _SEARCH.items() if at(evidence, path) is not None}
    return found


_SEARCH = {"baseline": "baseline.value", "mean improvement": "comparison.mean_difference"}


def settled(record: Found) -> dict[str, Any]:
    """Return a report's inputs as one flat table: the config's keys, digests of data, code and environment, and decisions."""
    config = record["evidence"].get("config")
    keys = dict(flat(config)) if isinstance(config, dict) else {}
    return {**keys, **{f"{name} digest": value for name, value in digests(record).items()}, **decided(record)}


def digests(record: Found) -> dict[str, Any]:
    """Return the heads of the digests that a phase's evidence was made under: of data, code and environment."""
    evidence = record["evidence"]
    if record["phase"] == "planning":
        found = [at(evidence, "data.sha256"), at(record, "source.sha256"), at(evidence, "environment.sha256")]
        return dict(zip(DIGESTS, map(_head, found), strict=True))
    return {name: _head(at(evidence, f"run.{name}_sha256")) for name in DIGESTS if at(evidence, "run.id")}


def decided(record: Found) -> dict[str, Any]:
    """Return a phase's decisions: the recommendation, promotion or skip, and the diagnostics that fired."""
    evidence = record["evidence"]
    found = {key: evidence[key] for key in ("recommendation", "promoted", "skipped") if key in evidence}
    if record["phase"] == "diagnostics":
        found["fired"] = [row["id"] for row in evidence.get("diagnostics") or [] if row.get("state") == "fired"]
    return found


def _head(digest: Any) -> Any:
    return digest[:16] if isinstance(digest, str) else digest
