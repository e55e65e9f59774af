"""The score of rules from one value of a row to the target, on rows that the rule was not fitted on.

The training rows are cut in two; a rule is fitted on each half and judged on the other. It is a class or a mean for each value,
or a curve through neighbouring values, so that a copy in another unit, rounded, ranked or with noise counts, and a number
unique to each row, which says nothing of other rows, does not.
"""

from __future__ import annotations

import numpy as np

from mltrainer.tasks.array_operations import joint_counts, ranks

WINDOWS = (1, 5, 25)  # neighbouring values whose mean or majority a rule takes: the more noise, the more help
KNOWN = 0.4  # chosen by us: a rule must have an answer for this share of the rows
LEAST_ROWS = 30  # chosen by us: with fewer rows, half of which judge, strong and honest features look the same as leaks
LEAST_OTHERS = 20  # rows that are not of the largest class
LEAST_OF_CLASS = 5  # a class of fewer rows is not judged
HONEST = 0.05  # as in leak_rules.py: the share of new rows on which a rule may be wrong
EXTREME = 0.01  # rows with the most extreme targets, which alone would give a high R2
TIES = 0.5  # with a larger share of rows with one target, ranks only show whether it is that target
MOST_CELLS = 4_000_000  # of a table of values by classes

Predictions = list[np.ndarray]


class HeldOutRows:
    """Training rows in two halves.

    Attributes:
        target: The rows' class numbers, or quantities.
        classes: Number of classes; 0 for a quantity.
    """

    def __init__(self, target: np.ndarray, classes: int) -> None:
        self.target, self.classes = target, classes
        first = np.random.default_rng(0).permutation(len(target)) % 2 == 0
        self._halves = ((first, ~first), (~first, first))
        self._trimmed = np.abs(target - np.median(target))
        self._trimmed = self._trimmed <= np.quantile(self._trimmed, 1 - EXTREME)
        self._ranks = ranks(target)
        _, counts = np.unique(target, return_counts=True)
        self._is_tied = bool(counts.max() > TIES * len(target))
        self._others = len(target) - int(counts.max())

    @property
    def are_enough(self) -> bool:
        """Whether there are enough rows to judge by."""
        return len(self.target) >= LEAST_ROWS and (not self.classes or self._others >= LEAST_OTHERS)

    def score(self, values: np.ndarray) -> float:
        """Return the score of one value a row: R2 of quantities or of their ranks, balanced accuracy of classes.

        Args:
            values: The values, float64 with NaN for missing; or int64, which have no order, -1 for missing.
        """
        if not self.are_enough:
            return 0.0
        missing = np.isnan(values) if values.dtype == np.float64 else values < 0
        fitted = self._classes if self.classes else self._quantities
        return max((self._judged(answer, missing) for answer in fitted(values, missing)), default=0.0)

    def _judged(self, answer: np.ndarray, missing: np.ndarray) -> float:
        """Return the score over all rows with an answer, or over those with a value alone."""
        answered = ~np.isnan(answer[:, 0])
        parts = [part for part in (answered, answered & ~missing) if part.sum() >= max(LEAST_ROWS, KNOWN * len(part))]
        measure = self._balanced if self.classes else self._explained
        return max((measure(answer, part) for part in parts), default=0.0)

    # --- quantities ---

    def _quantities(self, values: np.ndarray, missing: np.ndarray) -> Predictions:
        """Return each rule's answers for the targets and for their ranks, float64 [rows, 2]; NaN where it has none."""
        wanted = np.stack([self.target, self._ranks], axis=1)
        rules = 1 + (len(WINDOWS) if values.dtype == np.float64 else 0)
        answers = [np.full(wanted.shape, np.nan) for _ in range(rules)]
        for fit, judge in self._halves:
            known, asked = fit & ~missing, judge & ~missing
            if not known.any():
                continue
            distinct, places, counts = np.unique(values[known], return_inverse=True, return_counts=True)
            sums = np.stack([np.bincount(places, column) for column in wanted[known].T], axis=1)
            at, is_seen = _places(distinct, values[asked])
            answers[0][asked] = np.where(is_seen[:, None], (sums / counts[:, None])[at], np.nan)
            for answer, window in zip(answers[1:], WINDOWS, strict=False):
                means = _smoothed(sums, window) / _smoothed(counts[:, None], window)
                answer[asked] = np.stack([np.interp(values[asked], distinct, column) for column in means.T], axis=1)
            for answer in answers:
                answer[judge & missing] = wanted[fit & missing if (fit & missing).any() else fit].mean(axis=0)
        return answers

    def _explained(self, answer: np.ndarray, part: np.ndarray) -> float:
        by_rank = 0.0 if self._is_tied else _r2(self._ranks[part], answer[part, 1])
        usual = part & self._trimmed
        return max(by_rank, _r2(self.target[usual], answer[usual, 0]))

    # --- classes ---

    def _classes(self, values: np.ndarray, missing: np.ndarray) -> Predictions:
        """Return the class that each rule names, float64 [rows, 1]; NaN where it names none."""
        windows = WINDOWS if values.dtype == np.float64 else (1,)
        answers = [np.full((len(values), 1), np.nan) for _ in range(1 + len(windows))]
        for fit, judge in self._halves:
            known, asked = fit & ~missing, judge & ~missing
            distinct, places = np.unique(values[known], return_inverse=True)
            if not len(distinct) or len(distinct) * self.classes > MOST_CELLS:
                continue
            counts = joint_counts(places, self.target[known], len(distinct), self.classes)
            at, is_seen = _places(distinct, values[asked])
            answers[0][asked, 0] = np.where(is_seen, counts.argmax(axis=1)[at], np.nan)
            if values.dtype == np.float64:
                at = _nearest(distinct, values[asked])
                for answer, window in zip(answers[1:], windows, strict=True):
                    answer[asked, 0] = _smoothed(counts, window).argmax(axis=1)[at]
            for answer in answers:
                rest = self.target[fit & missing if (fit & missing).any() else fit]
                answer[judge & missing, 0] = np.bincount(rest, minlength=self.classes).argmax()
        return answers

    def _balanced(self, answer: np.ndarray, part: np.ndarray) -> float:
        labels = self.target[part]
        sizes = np.bincount(labels, minlength=self.classes)
        right = np.bincount(labels[answer[part, 0] == labels], minlength=self.classes)
        judged = sizes >= LEAST_OF_CLASS
        others = len(labels) - int(sizes.max())
        score = float((right[judged] / sizes[judged]).mean()) if judged.sum() > 1 and others >= LEAST_OTHERS else 0.0
        # After n rows without an error, only 1 - 3/n is known of all others (Hanley and Lippman-Hand, 1983, JAMA 249(13)).
        return score if 1 - score + 3 / len(labels) <= HONEST else 0.0


def _smoothed(rows: np.ndarray, window: int) -> np.ndarray:
    """Return the sums over each row and its neighbours, `window` in all, fewer at the ends."""
    below = np.concatenate([np.zeros((1, rows.shape[1])), rows.cumsum(axis=0)])
    at = np.arange(len(rows))
    found: np.ndarray = below[np.minimum(at + window // 2 + 1, len(rows))] - below[np.maximum(at - window // 2, 0)]
    return found


def _places(distinct: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each value's place among distinct ones, and a mask of those that are among them."""
    at = np.minimum(np.searchsorted(distinct, values), len(distinct) - 1)
    return at, distinct[at] == values


def _nearest(distinct: np.ndarray, values: np.ndarray) -> np.ndarray:
    above = np.minimum(np.searchsorted(distinct, values), len(distinct) - 1)
    below = np.maximum(above - 1, 0)
    found: np.ndarray = np.where(values - distinct[below] < distinct[above] - values, below, above)
    return found


def _r2(target: np.ndarray, answer: np.ndarray) -> float:
    spread = float(((target - target.mean()) ** 2).sum()) if len(target) else 0.0
    return 1 - float(((target - answer) ** 2).sum()) / spread if spread else 0.0
