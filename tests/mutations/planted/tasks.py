"""Faults planted in `mltrainer/tasks`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a class that is predicted but never a target is left out of f1_macro",
        "mltrainer/tasks/metrics.py",
        "    occurs = support > 0\n",
        "    occurs = counts.sum(1) > 0\n",
        "tests/tasks/test_metrics.py::test_a_class_that_is_predicted_and_never_a_target_counts_as_scikit_learn_counts_it",
    ),
    Fault(
        "balanced accuracy divides by the predictions",
        "mltrainer/tasks/metrics.py",
        "    support = given.counts.sum(1)\n",
        "    support = given.counts.sum(0)\n",
        "tests/tasks/test_metrics.py",
    ),
    Fault(
        "samples of equal score are let through one after the other",
        "mltrainer/tasks/metrics.py",
        "ends = np.append(np.flatnonzero(np.diff(falling)), len(falling) - 1)",
        "ends = np.arange(len(falling))",
        "tests/tasks/test_metrics.py",
    ),
    Fault(
        "a sureness at a bin's upper end counts in the bin above",
        "mltrainer/tasks/metrics.py",
        "bins = (surest * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1",
        "bins = (surest * CALIBRATION_BINS).round().long().clamp(0, CALIBRATION_BINS - 1)",
        "tests/tasks/test_metrics.py",
    ),
    Fault(
        "a row of exactly the fewest copies is trained on",
        "mltrainer/tasks/splits.py",
        "sizes > max(constraints.largest",
        "sizes >= max(constraints.largest",
        "tests/tasks/test_splits.py",
    ),
    Fault(
        "beside a giant, validation gets the test split's share",
        "mltrainer/tasks/splits.py",
        "round(n * counts.validation / held_out)",
        "round(n * counts.test / held_out)",
        "tests/tasks/test_splits.py",
    ),
    Fault(
        "in folds, a row with thousands of copies validates in the first",
        "mltrainer/tasks/splits.py",
        "chosen[giants] = folds\n",
        "chosen[giants] = 0\n",
        "tests/tasks/test_splits.py",
    ),
    Fault(
        "rows of one moment are parted by a split in time",
        "mltrainer/tasks/splits.py",
        "parts = np.split(order, ends)",
        "parts = np.split(order, cuts)",
        "tests/tasks/test_splits.py",
    ),
    Fault(
        "of a column's ends only the smallest is doubted",
        "mltrainer/tasks/tables/sentinels.py",
        "for place in (0, len(numbers) - 1) if",
        "for place in (0,) if",
        "tests/tasks/tables/test_sentinels.py",
    ),
    Fault(
        "nine outliers are a sentinel",
        "mltrainer/tasks/tables/sentinels.py",
        "LEAST_ROWS = 10\n",
        "LEAST_ROWS = 9\n",
        "tests/tasks/tables/test_sentinels.py",
    ),
    Fault(
        "half a split of strange labels is a warning",
        "mltrainer/tasks/data_findings.py",
        "2 * sum(unknown.values()) >= len(ids)",
        "2 * sum(unknown.values()) > len(ids)",
        "tests/tasks/test_predefined_splits.py",
    ),
    Fault(
        "test samples are looked for among those that validate",
        "mltrainer/tasks/opening.py",
        "data_findings.repeated(hashes[n], hashes.train)",
        "data_findings.repeated(hashes[n], hashes.validation)",
        "tests/tasks/test_opening.py",
    ),
    Fault(
        "cells of two columns that are swapped are a near copy",
        "mltrainer/tasks/tables/near_duplicates.py",
        "return data_findings.row_hashes([values]) * np.uint64(2 * place + 1)",
        "return data_findings.row_hashes([values])",
        "tests/tasks/tables/test_near_duplicates.py",
    ),
    Fault(
        "a segment's interval is drawn by the variance over n",
        "mltrainer/tasks/segments.py",
        "mine.std(ddof=1)",
        "mine.std(ddof=0)",
        "tests/tasks/test_segments.py",
    ),
    Fault(
        "a lower loss is worse",
        "mltrainer/tasks/proportions.py",
        'verdict = "better" if (after > before) == (mode == "max") else "worse"',
        'verdict = "better" if after > before else "worse"',
        "tests/reports/test_review.py",
    ),
    Fault(
        "a difference within what chance leaves counts as one",
        "mltrainer/tasks/proportions.py",
        "elif ends is None or ends[0] <= 0 <= ends[1]:",
        "elif ends is None or ends[0] <= 0 <= 0.5 * ends[1] - 0.15:",
        "tests/reports/test_review.py tests/runs/test_find.py",
    ),
    Fault(
        "samples that differ beyond float32 have one hash",
        "mltrainer/tasks/samples.py",
        "lost = (back != rows) & ~np.isnan(rows)",
        "lost = (back != back) & ~np.isnan(rows)",
        "tests/tasks/test_opening.py -k float32",
    ),
    Fault(
        "a hidden text is read",
        "mltrainer/tasks/text/corpus.py",
        'for path in folder.iterdir() if not path.name.startswith("."))',
        "for path in folder.iterdir())",
        "tests/tasks/text/test_labelled_texts.py tests/tasks/text/test_generation.py -k hidden",
    ),
)
