"""The coverage of sets and intervals as the gate judges it: broken on purpose, one part at a time."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

from mltrainer.gates.check import Outcome
from mltrainer.tasks.statistics import wilson
from tests.gates.evidence import Record, judged, kept

SETTINGS = {"split": "test", "coverage_level": 0.01}


def found(covered: int, samples: int = 100) -> Record:
    low, high = wilson(covered / samples, samples, statistics.NormalDist().inv_cdf(0.975))
    share = covered / samples
    return {"samples": samples, "covered": covered, "share": share, "level": 0.95, "interval": [low, high], "mean_size": 2.0}


def promised(covered: int = 90, **asked: Any) -> Record:
    """Return a record whose model answers with intervals; 99 validation samples calibrated them for 90 %."""
    record = kept("finalization")
    evidence = record["evidence"]
    evidence["config"] |= {"conformal": {"coverage": 0.9, "score": None, **asked}, "acceptance": {}}
    evidence["conformal"] = {"coverage": 0.9, "score": "residual", "threshold": 1.0, "samples": 99, "rank": 90}
    evidence["test"] |= {"samples": 100, "coverage": found(covered)}
    evidence["run"]["measured_samples"]["validation"] = 99
    return record


def verdict(record: Record) -> Outcome:
    return judged("acceptance_met", record, SETTINGS)


def test_a_kept_promise_passes_with_its_numbers():
    said = verdict(promised())
    assert said.verdict == "pass"
    told = said.evidence["coverage"]
    assert (told["asked"], told["found"], told["samples"], told["calibrated_on"]) == (0.9, 0.9, 100, 99)
    assert 0.4 < told["chance"] < 0.6


def test_less_than_chance_allows_fails_with_what_to_do():
    said = verdict(promised(70))
    assert said.verdict == "fail"
    assert said.evidence["coverage"]["chance"] < 0.01
    assert "more validation rows" in said.hint


def put(**changes: Any) -> Callable[[Record], Any]:
    return lambda evidence: evidence.update(changes)


def of(part: str, **changes: Any) -> Callable[[Record], Any]:
    return lambda evidence: evidence[part].update(changes)


def measured(**changes: Any) -> Callable[[Record], Any]:
    return lambda evidence: evidence["test"]["coverage"].update(changes)


BROKEN: dict[str, Callable[[Record], Any]] = {
    "no calibration": lambda evidence: evidence.pop("conformal"),
    "no coverage": lambda evidence: evidence["test"].pop("coverage"),
    "never asked for": of("config", conformal=None),
    "a lower coverage than asked": of("conformal", coverage=0.8, rank=80),
    "an easier rank": of("conformal", rank=89),
    "another score": of("conformal", score="aps"),
    "calibrated on other samples": of("conformal", samples=199, rank=180),
    "a test split that is still sealed": of("test", samples=0, sealed="it was not asked for"),
    "coverage of another split": of("test", samples=44),
    "more covered than there are": measured(covered=101, share=1.01),
    "a share that is not the counts'": measured(share=0.95),
    "an interval that is not the counts'": measured(interval=[0.9, 1.0]),
    "half an interval": measured(interval=[0.9]),
    "no samples": measured(samples=0, covered=0),
}


@pytest.mark.parametrize("what", BROKEN)
def test_evidence_that_is_missing_or_contradicts_itself_fails(what):
    record = promised()
    BROKEN[what](record["evidence"])
    said = verdict(record)
    assert said.verdict == "fail", said
    assert said.hint


def test_the_score_is_the_one_that_was_asked_for():
    record = promised(score="lac")
    assert verdict(record).verdict == "fail"
    record["evidence"]["conformal"]["score"] = "lac"
    assert verdict(record).verdict == "pass"


def test_without_a_test_split_no_coverage_is_judged():
    record = promised()
    record["evidence"]["data"]["splits"]["test"]["samples"] = 0
    record["evidence"]["test"] |= {"samples": 0}
    said = verdict(record)
    assert said.verdict == "not_applicable"
    assert said.evidence["coverage"]["rule"] == "split.test is 0: no coverage was measured"


@pytest.mark.parametrize(("criterion", "covered", "expected"), [(">= 0", 90, "pass"), (">= 2", 90, "fail"), (">= 0", 70, "fail")])
def test_criterion_and_coverage_must_both_hold(criterion, covered, expected):
    record = promised(covered)
    record["evidence"]["config"]["acceptance"] = {"r2": criterion}
    record["evidence"]["test"]["intervals"] = {"level": 0.95, "resamples": 9, "bounds": {}, "reason": None}
    said = verdict(record)
    assert said.verdict == expected
    assert set(said.evidence) >= {"criteria", "values", "coverage"}
    assert ("this one has been seen" in (said.hint or "")) == (criterion == ">= 2")


def test_a_project_that_asks_for_no_sets_is_judged_as_before():
    said = judged("acceptance_met", kept("finalization"), SETTINGS)
    assert "coverage" not in said.evidence
