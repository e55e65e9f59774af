"""Faults planted in `mltrainer/reports`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "markup in a value acts",
        "mltrainer/reports/markdown.py",
        "return _MARKUP.sub(_escaped, visible(value))",
        "shown = visible(value)",
        "tests/reports/test_markdown.py",
    ),
    Fault(
        "NaN is written as 0",
        "mltrainer/reports/values.py",
        '_NOT_FINITE = {"nan": "NaN"',
        '_NOT_FINITE = {"nan": "0"',
        "tests/reports/test_values.py",
    ),
    Fault(
        "a failing item is not named beside the verdict",
        "mltrainer/reports/gate_items.py",
        'return [item for item in gate if item.verdict == "fail"]',
        "return []",
        "tests/reports/test_render.py",
    ),
    Fault(
        "a number of seven digits is written in powers of ten",
        "mltrainer/reports/values.py",
        "if not -5 <= exponent < 7:",
        "if not -5 <= exponent < 6:",
        "tests/reports/test_values.py",
    ),
    Fault(
        "59.9 seconds are minutes, or 60 are seconds",
        "mltrainer/reports/values.py",
        "if value < 60:",
        "if value <= 60:",
        "tests/reports/test_values.py",
    ),
    Fault(
        "twice is said of one",
        "mltrainer/reports/values.py",
        'return {1: "once", 2: "twice"}.get(count',
        'return {0: "once", 2: "twice"}.get(count',
        "tests/reports/test_values.py tests/records/test_openings.py",
    ),
    Fault(
        "the test split's interval is that of the validation rows",
        "mltrainer/reports/review.py",
        'evidence.test.samples if split == "test"',
        'evidence.run.measured_samples.get("train") if split == "test"',
        "tests/reports/test_review.py",
    ),
    Fault(
        "the interval of a mean over folds is that of one fold's rows",
        "mltrainer/reports/review.py",
        "if _fold_metrics(evidence):",
        "if not evidence:",
        "tests/reports/test_review.py",
    ),
    Fault(
        "an impossible pair of records is told under a verdict that holds",
        "mltrainer/reports/comment.py",
        "if review.impossible:",
        "if not review.impossible and False:",
        "tests/gates/test_recomputed.py::test_the_same_run_with_other_numbers_is_impossible",
    ),
    Fault(
        "a forged test metric beside the same weights is not impossible",
        "mltrainer/reports/impossible.py",
        "return [*_of_runs(now, before), *_of_weights(now, before)]",
        "return [*_of_runs(now, before)]",
        "tests/reports/test_impossible.py",
    ),
    Fault(
        "the same run's number of steps may differ",
        "mltrainer/reports/impossible.py",
        '*("steps", "chain", "metrics"',
        '*("chain", "metrics"',
        "tests/reports/test_impossible.py",
    ),
    Fault(
        "weights that were measured on other data are held against each other",
        "mltrainer/reports/impossible.py",
        "(found.delivered_sha256, run.data_sha256, run.code_sha256",
        "(found.delivered_sha256, run.code_sha256, run.code_sha256",
        "tests/reports/test_impossible.py",
    ),
    Fault(
        "an opening with other weights is neither lost nor replaced",
        "mltrainer/reports/impossible.py",
        "return (row.data_sha256, row.weights_sha256, row.purpose)",
        "return (row.data_sha256, row.purpose)",
        "tests/reports/test_impossible.py",
    ),
)
