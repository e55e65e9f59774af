"""Whether the delivered model's sets or intervals hold the truth as often as was asked; a part of item `acceptance_met`."""

from __future__ import annotations

import statistics
from typing import Any

from mltrainer.gates.check import RUN_FINALIZATION, Outcome, when
from mltrainer.records.finalization import Conformal, Coverage, Finalization
from mltrainer.tasks.coverage import chance, rank
from mltrainer.tasks.proportions import wilson

ROUNDING = 1e-9
DRAW_ANEW = "bring more validation rows, drawn like those to come, and new data for a test split, then mltrainer run"


def coverage_kept(evidence: Finalization, level: float) -> Outcome | None:
    """Return the verdict on the coverage of the test split; None where the model answers without sets or intervals.

    Args:
        evidence: Finalization's.
        level: The largest probability of so few covered rows, or fewer, by which the promise is taken for broken.
    """
    asked = evidence.config.get("conformal")
    doubt, found = evidence.conformal, evidence.test.coverage
    if asked is None and doubt is None:
        return None
    if doubt is None or asked is None:
        missing = "what the sets or intervals are made by" if asked else "config.conformal, by which they are asked for"
        return Outcome("fail", {"missing": missing}, RUN_FINALIZATION)
    told: dict[str, Any] = {"asked": doubt.coverage, "score": doubt.score, "calibrated_on": doubt.samples}
    if faults := _other_calibration(doubt, asked, evidence.run.validation_samples):
        return Outcome("fail", {**told, "contradiction": faults}, RUN_FINALIZATION)
    if evidence.data.splits.test.samples == 0:
        return Outcome("not_applicable", {**told, "rule": "split.test is 0: no coverage was measured"})
    if evidence.test.samples == 0:
        return Outcome("fail", {**told, "sealed": evidence.test.sealed}, f"fix what keeps it sealed, then {RUN_FINALIZATION}")
    if found is None:
        return Outcome("fail", {**told, "missing": "the coverage of the test split"}, RUN_FINALIZATION)
    if faults := _other_count(found, evidence.test.samples):
        return Outcome("fail", {**told, "contradiction": faults}, RUN_FINALIZATION)
    probability = chance(found.covered, found.samples, doubt.rank, doubt.samples)
    told |= {"found": found.share, "interval": found.interval, "samples": found.samples, "chance": probability}
    return when(probability > level, told, DRAW_ANEW)


def _other_calibration(doubt: Conformal, asked: dict[str, Any], validation: int | None) -> list[str]:
    """Return the faults of a calibration that does not follow from what was asked for."""
    expected = {
        "coverage": asked.get("coverage"),
        "score": asked.get("score") or (doubt.score if doubt.score in ("lac", "residual") else "lac"),
        "samples": validation,
        "rank": rank(float(doubt.coverage), doubt.samples),
    }
    return [
        f"{name} {getattr(doubt, name)}, expected {value}" for name, value in expected.items() if getattr(doubt, name) != value
    ]


def _other_count(found: Coverage, samples: int) -> list[str]:
    """Return the faults of a measured coverage that does not follow from its counts."""
    if found.samples != samples or not 0 <= found.covered <= samples:
        return [f"{found.covered} of {found.samples} samples are covered, of a test split of {samples}"]
    share, z = found.covered / samples, statistics.NormalDist().inv_cdf((1 + float(found.level)) / 2)
    low, high = wilson(share, samples, z)
    expected, said = [share, max(0.0, low), min(1.0, high)], [found.share, *found.interval]
    same = len(said) == 3 and all(abs(float(a) - b) <= ROUNDING for a, b in zip(said, expected, strict=True))
    return [] if same else [f"share and interval {said}, of {found.covered} of {samples} samples they are {expected}"]
