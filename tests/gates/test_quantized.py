"""A model in 8 bits is judged by what its metric lost, as measured, and by the rows that it was calibrated on."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import pytest

from mltrainer.records.common import lost_share
from mltrainer.reproducibility.drawn import drawn
from mltrainer.workspace import digest
from tests.gates.evidence import judged, kept

Record = dict[str, Any]
SETTINGS = {"tolerance": 1e-4, "metric_loss": 0.01}
SEED, ROWS, READ = 42, 280, 100  # of the kept record: its seed, its training rows; and how many of them were read


def sound() -> Record:
    """Return a record with both formats in 8 bits, whose r2 on validation went from 0.9812 to 0.979, by 0.2 %."""
    record = kept("finalization")
    original = record["evidence"]["run"]["best"]["validation"]["r2"]
    figures = {"share": 0.9, "size": 2000, "original_size": 7000, "latency_ms": 0.02, "original_latency_ms": 0.03}
    measured = {"metric": "r2", "value": 0.979, "original": original, "loss": 0.0023, "allowed": 0.01}
    calibration = {"samples": READ, "of": ROWS, "places_sha256": digest(drawn(ROWS, READ, SEED, "calibrate"))}
    row = {**record["evidence"]["exports"][1], "tolerance": None, "relative_difference": 0.03}
    record["evidence"]["exports"] += [
        {**row, "format": "onnx_int8_dynamic", "quantized": {**figures, **measured}},
        {**row, "format": "onnx_int8_static", "quantized": {**figures, **measured, "calibration": calibration}},
    ]
    return record


def test_it_may_differ_more_than_fp32_rounding_where_it_keeps_its_metric():
    found = judged("exports_agree", sound(), SETTINGS)
    assert found.verdict == "pass"
    assert found.evidence["metric_loss"] == {"onnx_int8_dynamic": 0.0023, "onnx_int8_static": 0.0023}


def test_a_page_that_names_no_allowed_loss_allows_none():
    assert judged("exports_agree", sound(), {"tolerance": 1e-4}).verdict == "fail"


def static(**values: Any) -> Callable[[Record], None]:
    return lambda evidence: evidence["exports"][-1]["quantized"].update(values)


def calibrated(places: list[int], **values: Any) -> Callable[[Record], None]:
    return static(calibration={"samples": len(places), "of": ROWS, "places_sha256": digest(places), **values})


def renamed(name: str) -> Callable[[Record], None]:
    return lambda evidence: evidence["exports"][-1].update(format=name)


def run_was_better(evidence: Record) -> None:
    """What was measured beside the quantized model is worse than the run's own."""
    evidence["run"]["best"]["validation"]["r2"] = 0.999


BROKEN: dict[str, Callable[[Record], None]] = {
    "its metric fell too far": static(value=0.97),
    "its metric fell too far, and its row says that it did not": static(value=0.5, loss=0.0),
    "its metric is no number": static(value="nan"),
    "the trained model's metric is no number": static(original="nan"),
    "the metric is that of a worse model than the run's": run_was_better,
    "another metric was measured": static(metric="mae"),
    "no metric was measured": static(metric=None, value=None),
    "nothing was measured": lambda evidence: evidence["exports"][-1].update(quantized=None),
    "its outputs are not finite": lambda evidence: evidence["exports"][-1].update(max_difference="nan"),
    "the program found that it disagrees": lambda evidence: evidence["exports"][-1].update(agrees=False),
    "it passes for a format in fp32": renamed("onnx"),
    "it was calibrated on other rows": calibrated([*range(READ)]),
    "it was calibrated on the rows of another seed": calibrated(drawn(ROWS, READ, SEED + 1, "calibrate")),
    "it was calibrated on another split": calibrated(drawn(60, 60, SEED, "calibrate"), of=60),
    "it was calibrated on nothing": calibrated([]),
    "it was not calibrated": static(calibration=None),
}


@pytest.mark.parametrize("how", BROKEN)
def test_it_is_refused_where(how):
    record = sound()
    BROKEN[how](record["evidence"])
    found = judged("exports_agree", record, SETTINGS)
    assert found.verdict == "fail"
    assert record["evidence"]["exports"][-1]["format"] in found.evidence["disagree"]


@pytest.mark.parametrize(
    ("original", "value", "mode", "share"),
    [
        (0.8, 0.6, "max", 0.25),
        (0.8, 1.0, "max", -0.25),
        (0.5, 0.75, "min", 0.5),
        (-0.5, -0.75, "max", 0.5),
        (0.0, -0.1, "max", 0.1),
        (0.0, 0.1, "min", 0.1),
    ],
)
def test_what_is_lost_is_a_share_of_what_was_there(original, value, mode, share):
    assert lost_share(original, value, mode) == pytest.approx(share)


@pytest.mark.parametrize("pair", [(math.nan, 1.0), (1.0, math.inf), ("nan", 1.0), (1.0, None)])
def test_what_is_no_number_is_within_no_loss(pair):
    assert math.isnan(lost_share(*pair, "max"))


# --- the places ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "most"), [(1, 1), (10, 3), (10, 9), (10, 10), (10, 99), (10**12, 50)])
def test_places_are_drawn_without_replacement(count, most):
    found = drawn(count, most, 1, "calibrate")
    assert found == sorted(set(found)) == drawn(count, most, 1, "calibrate")
    assert len(found) == min(count, most)
    assert all(0 <= place < count for place in found)


def test_places_follow_from_seed_and_purpose():
    assert len({tuple(drawn(1000, 5, seed, purpose)) for seed in range(3) for purpose in ("calibrate", "other")}) == 6


def test_every_place_is_as_likely_as_any_other():
    counts = [0] * 8
    for seed in range(4000):
        for place in drawn(8, 3, seed, "calibrate"):
            counts[place] += 1
    expected = 4000 * 3 / 8
    # Chi-squared of 7 degrees: 24.3 is exceeded once in a thousand times; the draws are fixed.
    assert sum((count - expected) ** 2 / expected for count in counts) < 24.3


def test_a_draw_is_the_hash_of_its_address():
    bits = hashlib.blake2b(b"7/calibrate/9", digest_size=16).digest()
    assert drawn(10, 1, 7, "calibrate") == [int.from_bytes(bits, "little") % 10]
