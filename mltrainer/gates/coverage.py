"""Whether the delivered model's sets or intervals contain the truth as often as asked; a part of item `acceptance_met`."""

from __future__ import annotations

import statistics
from typing import Any

from mltrainer.gates.check import RUN_FINALIZATION, Outcome, when
from mltrainer.records.finalization import Conformal, Coverage, Finalization
from mltrainer.tasks.statistics import chance, rank, wilson

ROUNDING = 1e-9
DRAW_ANEW = "add more validation rows, drawn like future rows, and new data for a test split, then mltrainer run"


def coverage_kept(evidence: Finalization, level: float) -> Outcome | None:
    """Return the verdict on the coverage of the test split; None if the model answers without sets or intervals.

    Args:
        evidence: Finalization's.
        level: The probability of this number of covered rows, or fewer, at or below which the promise is taken for broken.
    """
    asked = evidence.config.get("conformal")
    doubt, coverage = evidence.conformal, evidence.test.coverage
    if asked is None and doubt is None:
        return None
    if doubt is None or asked is None:
        missing = "the calibration of the sets or intervals" if asked else "config.conformal, which asks for them"
        return Outcome("fail", {"missing": missing}, RUN_FINALIZATION)
    shown: dict[str, Any] = {"asked": doubt.coverage, "score": doubt.score, "calibrated_on": doubt.samples}
    if faults := _other_calibration(doubt, asked, evidence.run.validation_samples):
        return Outcome("fail", {**shown, "contradiction": faults}, RUN_FINALIZATION)
    if evidence.data.splits.test.samples == 0:
        return Outcome("not_applicable", {**shown, "rule": "split.test is 0: no coverage was measured"})
    if evidence.test.samples == 0:
        return Outcome("fail", {**shown, "sealed": evidence.test.sealed}, f"fix what keeps it sealed, then {RUN_FINALIZATION}")
    if coverage is None:
        return Outcome("fail", {**shown, "missing": "the coverage of the test split"}, RUN_FINALIZATION)
    if faults := _other_count(coverage, evidence.test.samples):
        return Outcome("fail", {**shown, "contradiction": faults}, RUN_FINALIZATION)
    probability = chance(coverage.covered, coverage.samples, doubt.rank, doubt.samples)
    shown |= {"found": coverage.share, "interval": coverage.interval, "samples": coverage.samples, "chance": probability}
    return when(probability > level, shown, DRAW_ANEW)


def _other_calibration(doubt: Conformal, asked: dict[str, Any], validation: int | None) -> list[str]:
    """Return the faults of a calibration that does not follow from the config's request."""
    expected = {
        "coverage": asked.get("coverage"),
        "score": asked.get("score") or (doubt.score if doubt.score in ("lac", "residual") else "lac"),
        "samples": validation,
        "rank": rank(float(doubt.coverage), doubt.samples),
    }
    return [
        f"{name} {getattr(doubt, name)}, expected {value}" for name, value in expected.items() if getattr(doubt, name) != value
    ]


def _other_count(coverage: Coverage, samples: int) -> list[str]:
    """Return the faults of a measured coverage that does not follow from its counts."""
    if coverage.samples != samples or not 0 <= coverage.covered <= samples:
        return [f"{coverage.covered} of {coverage.samples} samples are covered, of a test split of {samples}"]
    share, z = coverage.covered / samples, statistics.NormalDist().inv_cdf((1 + float(coverage.level)) / 2)
    low, high = wilson(share, samples, z)
    expected, said = [share, max(0.0, low), min(1.0, high)], [coverage.share, *coverage.interval]
    same = len(said) == 3 and all(abs(float(a) - b) <= ROUNDING for a, b in zip(said, expected, strict=True))
    return [] if same else [f"share and interval {said}, of {coverage.covered} of {samples} samples they are {expected}"]
