"""Shares of rows, such as an accuracy: their confidence intervals, and those of the difference of two."""

from __future__ import annotations

import math
import statistics
from typing import Any

SHARES = ("accuracy",)  # metrics that are a share of correct rows
BOUNDS: dict[str, tuple[float | None, float | None]] = {  # of the built-in tasks' metrics, by the beginning of their names
    **dict.fromkeys(("accuracy", "f1_macro", "balanced_accuracy", "roc_auc", "average_precision", "calibration_error"), (0, 1)),
    **dict.fromkeys(("loss", "log_loss", "rmse", "mae", "bits_per_byte"), (0, None)),
    "perplexity": (1, None),
    "r2": (None, 1),
}
NORMAL_95 = 1.959964  # the normal quantile of a 95 % interval
LEVEL = 0.05  # Fisher's conventional level, two-sided


def wilson(share: float, count: int, z: float) -> tuple[float, float]:
    """Return the interval of a share (Wilson, 1927, Journal of the American Statistical Association 22:209-212).

    Args:
        share: The share, from 0 to 1.
        count: The number of rows.
        z: The normal quantile of the confidence.
    """
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return centre - half, centre + half


def share_difference(
    before: float, after: float, count: int, comparisons: int = 1, after_count: int | None = None
) -> tuple[float, float] | None:
    """Return the confidence interval of the difference of two shares of rows.

    Newcombe, 1998, Interval Estimation for the Difference Between Independent Proportions, Statistics in Medicine 17:873-890,
    method 10. The same rows answered by both agree more than independent ones, so that the interval is rather too wide.

    Args:
        before: The first share.
        after: The second share, from which the first is subtracted.
        count: The number of rows of each.
        comparisons: Number of comparisons, which divide the level (Bonferroni).
        after_count: The number of rows of the second, where it differs.

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
    """Return the verdict on a metric's difference of two runs: one seed each, so that only the rows show chance.

    Args:
        name: The metric.
        mode: "max" or "min".
        before: The metric of the first run; finite.
        after: The metric of the second run; finite.
        count: The number of rows that each was measured on; None where it is not known, or differs.

    Returns:
        `difference` (second less first), its confidence `interval` and `samples` (these two None where the metric
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
