"""Shares of rows, such as an accuracy: how far apart two of them must lie to be told apart by so many rows."""

from __future__ import annotations

import math
import statistics
from typing import Any

SHARES = ("accuracy",)  # metrics that are the share of rows that are right
BOUNDS: dict[str, tuple[float | None, float | None]] = {  # of the built-in tasks' metrics, by the beginning of their names
    **dict.fromkeys(("accuracy", "f1_macro", "balanced_accuracy", "roc_auc", "average_precision", "calibration_error"), (0, 1)),
    **dict.fromkeys(("loss", "log_loss", "rmse", "mae", "bits_per_byte"), (0, None)),
    "perplexity": (1, None),
    "r2": (None, 1),
}
NORMAL_95 = 1.959964  # the normal quantile of a 95 % interval
LEVEL = 0.05  # Fisher's conventional one, of both sides together


def wilson(share: float, count: int, z: float) -> tuple[float, float]:
    """Return the interval of a share (Wilson, 1927, Journal of the American Statistical Association 22:209-212).

    Args:
        share: From 0 to 1.
        count: Of how many rows.
        z: The normal quantile of the confidence.
    """
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return centre - half, centre + half


def share_difference(
    before: float, after: float, count: int, comparisons: int = 1, after_count: int | None = None
) -> tuple[float, float] | None:
    """Return the interval of by how much a share of rows is larger than another one.

    Newcombe, 1998, Interval Estimation for the Difference Between Independent Proportions, Statistics in Medicine 17:873-890,
    method 10. The same rows answered by both agree more than independent ones, so that the interval is rather too wide.

    Args:
        before: A share.
        after: Another one.
        count: The rows of each.
        comparisons: How many there are, of which each has its part of the level (Bonferroni).
        after_count: The rows of the other one, where they are not as many.

    Returns:
        Both ends; None where the two are no shares of any rows.
    """
    others = count if after_count is None else after_count
    if min(count, others) < 1 or not (0 <= before <= 1 and 0 <= after <= 1):
        return None
    z = statistics.NormalDist().inv_cdf(1 - LEVEL / (2 * comparisons))
    (low_before, high_before), (low_after, high_after) = wilson(before, count, z), wilson(after, others, z)
    down = math.hypot(after - low_after, high_before - before)
    up = math.hypot(high_after - after, before - low_before)
    return after - before - down, after - before + up


def metric_verdict(name: str, mode: str, before: float, after: float, count: int | None) -> dict[str, Any]:
    """Return the verdict on a metric's difference of two runs: one seed each, so that only the rows tell of chance.

    Args:
        name: The metric.
        mode: "max" or "min".
        before: Of the first run; finite.
        after: Of the second.
        count: The rows that each was measured on; None where that is not known, or not the same of both.

    Returns:
        `difference` (second less first), `samples` and the `interval` that so many rows leave to it (both None where the metric
        is no share of rows), and `verdict`: same, better, worse or "not told apart".
    """
    samples = count if count and name in SHARES else None
    ends = share_difference(before, after, samples) if samples else None
    if before == after:
        verdict = "same"
    elif ends is None or ends[0] <= 0 <= ends[1]:
        verdict = "not told apart"
    else:
        verdict = "better" if (after > before) == (mode == "max") else "worse"
    return {"difference": after - before, "samples": samples, "interval": list(ends) if ends else None, "verdict": verdict}
