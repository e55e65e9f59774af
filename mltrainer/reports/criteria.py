"""Criteria that moved after numbers were known: a project's criteria, followed through its versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mltrainer.configs.loading import flatten
from mltrainer.reports.values import finite, number

CRITERIA = ("metric", "split", "seed")  # config keys that decide, beside `acceptance`, how and on which rows models are judged
CLAIMED = ("hypothesis", "metric", "mode", "least", "seeds")
JUDGED_BY = ("acceptance", *CRITERIA)
RunRecords = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Version:
    """A project's records at one time.

    Attributes:
        by: The committer, as `Name <mail>`; None where they are not committed yet.
        when: The day of the commit.
        records: The records by phase, as their files hold them.
    """

    by: str | None
    when: str | None
    records: RunRecords


@dataclass(frozen=True)
class MovedCriterion:
    """A changed criterion, its committer and day, and the numbers that were known by then, each in words."""

    key: str
    before: Any
    after: Any
    by: str | None
    when: str | None
    known: list[str]


def moved(versions: Sequence[Version]) -> list[MovedCriterion]:
    """Return the criteria that changed from one version to the next after numbers were known.

    Args:
        versions: The versions, the oldest first.
    """
    found: list[MovedCriterion] = []
    asked: dict[str, Any] = {}
    known: list[str] = []
    for version in versions:
        now = {**asked, **dict(_criteria(version.records))}
        keys = [key for key in asked if now[key] != asked[key]] if known else []
        found += [MovedCriterion(key, asked[key], now[key], version.by, version.when, known) for key in keys]
        asked, known = now, _numbers(version.records) or known
    return found


def _criteria(records: RunRecords) -> Iterator[tuple[str, Any]]:
    """Yield each criterion with its value: the plan's, and the numbers of the phases' checklists."""
    config = _at(records, "planning", "evidence", "config") or {}
    if "acceptance" in config:
        yield "acceptance", config["acceptance"]  # as a whole: a criterion that was left out moved, too
    if config:
        claim = _at(records, "planning", "evidence", "claim", "claim") or {}
        yield "claim", {key: claim[key] for key in CLAIMED if key in claim}
    yield from flatten({key: config[key] for key in CRITERIA if key in config}).items()
    for phase in records:
        for item in _at(records, phase, "policy", "items") or []:
            settings = {"waivable": item.get("waivable", False), **(item.get("settings") or {})}
            yield from ((f"{phase}: {item.get('id')}.{name}", value) for name, value in settings.items())


def _numbers(records: RunRecords) -> list[str]:
    """Return the chosen metric, as each phase measured it, in words."""
    name = _at(records, "planning", "evidence", "config", "metric", "name")
    places = {
        "baseline": ("baseline", "evidence", "run", "metrics"),
        "final run": ("finalization", "evidence", "run", "metrics"),
        "test split": ("finalization", "evidence", "test", "metrics"),
    }
    values = {place: (_at(records, *path) or {}).get(name) for place, path in places.items()}
    return [f"{name} {number(value, 4)} ({place})" for place, value in values.items() if finite(value)]


def _at(place: Any, *path: str) -> Any:
    for key in path:
        place = place.get(key) if isinstance(place, Mapping) else None
    return place
