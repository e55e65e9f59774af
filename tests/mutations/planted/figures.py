"""Faults planted in `mltrainer/figures`."""

from __future__ import annotations

from tests.mutations.fault import Fault

CAPTIONS, TRIALS, SVG = "tests/figures/test_content.py", "tests/figures/test_trial_figures.py", "tests/figures/test_svg.py"
FAULTS = (
    Fault(
        "a gap is above zero where validation is better",
        "mltrainer/figures/content.py",
        "sign = -1.0 if larger_is_better else 1.0",
        "sign = 1.0 if larger_is_better else -1.0",
        CAPTIONS,
    ),
    Fault(
        "the best of a metric that should be small is its largest",
        "mltrainer/figures/content.py",
        'best = min if run.metric.mode == "min" else max',
        "best = max",
        CAPTIONS,
    ),
    Fault(
        "the middle half of the residuals is told by the outer quantiles",
        "mltrainer/figures/content.py",
        "{number(quantiles[1])} and {number(quantiles[3])}",
        "{number(quantiles[0])} and {number(quantiles[4])}",
        CAPTIONS,
    ),
    Fault(
        "the growth of weights is told upside down",
        "mltrainer/figures/content.py",
        "moved = [(spread[-1] / spread[0], name)",
        "moved = [(spread[0] / spread[-1], name)",
        CAPTIONS,
    ),
    Fault(
        "the largest gradient of any step is that of the last one",
        "mltrainer/figures/content.py",
        "top = max((y for _, y in largest), default=math.nan)",
        "top = max((y for _, y in largest[-1:]), default=math.nan)",
        CAPTIONS,
    ),
    Fault(
        "a share of time is of the largest part and not of all",
        "mltrainer/figures/content.py",
        "total = math.fsum(value for _, value in items if math.isfinite(value))",
        "total = max(value for _, value in items if math.isfinite(value))",
        CAPTIONS,
    ),
    Fault(
        "the figures of a search are not bound to its comparison",
        "mltrainer/figures/bound.py",
        '("metric", "space", "trials", "best", "baseline", "comparison")',
        '("metric", "space", "trials", "best", "baseline")',
        CAPTIONS,
    ),
    Fault(
        "ranks of trials end before zero",
        "mltrainer/figures/search.py",
        "1 - place / max(1, count - 1)",
        "1 - place / max(1, count)",
        TRIALS,
    ),
    Fault(
        "the worst fifth may lie beyond the axis",
        "mltrainer/figures/search.py",
        "math.ceil(len(values) * 0.9)",
        "math.ceil(len(values) * 0.8)",
        TRIALS,
    ),
    Fault(
        "an interval's right end is drawn at the mean",
        "mltrainer/figures/forest_plot.py",
        "left, right = (box.at(end, 0.0)[0] for end in row.ends)",
        "left, right = (box.at(end, 0.0)[0] for end in (row.ends[0], row.mean or 0.0))",
        TRIALS,
    ),
    Fault(
        "thinning drops a curve's last point",
        "mltrainer/figures/series.py",
        "return kept if kept[-1] == points[-1] else [*kept, points[-1]]",
        "return kept",
        SVG,
    ),
    Fault(
        "thinning drops what is not finite",
        "mltrainer/figures/series.py",
        "chosen = {0, *broken[:1]} |",
        "chosen = {0} |",
        SVG,
    ),
)
