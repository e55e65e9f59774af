"""The score of predicting the target by one feature alone, and the test against chance among several features."""

from __future__ import annotations

import math

import numpy as np

from mltrainer.configs.items import DataLimits

MOST_INTERVALS = 20  # the most intervals of a feature that are rules for classes
MOST_TELLING = 0.5  # chosen by us: the largest share of features that leak the target; more are the nature of the data
CHANCE = 1e-3  # chosen by us: a score that one of the features reaches more often by chance says nothing
RARE = 1 / 3  # chosen by us: a class of fewer rows, as a share of those that each of even classes has, is rare
HONEST = 0.05  # chosen by us: a feature whose rule may be wrong on this share of new rows is an honest one


def telling_score(feature: np.ndarray, target: np.ndarray, classes: int, limits: DataLimits, features: int = 1) -> float:
    """Return the score, from 0 to 1, of predicting the target by one feature; 0 where chance explains it.

    Args:
        feature: The feature's values, none missing; categories as numbers.
        target: Class numbers, or values to predict.
        classes: Number of classes; 0 for values to predict.
        limits: The limits of the findings, among them those for rules with a class per value.
        features: Number of features that are scored: the more, the better is the best of them by chance.
    """
    if classes:
        score, rules = _class_score(feature, target, classes, limits)
        # After n rows without an error, only 1 - 3/n is known of all others (Hanley and Lippman-Hand, 1983, JAMA 249(13)).
        if 1 - score + 3 / len(feature) > HONEST:
            return 0.0
        if not _is_few(np.array(len(np.unique(feature))), len(feature), limits) and _is_of_few_rows(feature, target, limits):
            return 0.0
        chance = _class_chance(target, 1 - score, rules)
    else:
        score = _value_score(feature, target)
        chance = _value_chance(score, len(feature))
    return score if chance + math.log(features) < math.log(CHANCE) else 0.0


def telling_features(rows: np.ndarray, target: np.ndarray, classes: int, limits: DataLimits) -> dict[int, float]:
    """Return the scores of the features that alone predict the target at least as well as the limit, by their column.

    Args:
        rows: The samples' features, float64 [samples, features], all finite.
        target: Class numbers, or values to predict.
        classes: Number of classes; 0 for values to predict.
        limits: The limits of the findings, among them a leak's score.
    """
    places = _promising(rows, target, classes, limits) if classes else range(rows.shape[1])
    scores = {int(place): telling_score(rows[:, place], target, classes, limits, rows.shape[1]) for place in places}
    found = {place: score for place, score in scores.items() if score >= limits.leak_score}
    # Where most features do, the classes are far apart, or the features are copies of one another: none of them is a leak.
    return found if len(found) <= MOST_TELLING * rows.shape[1] else {}


def _promising(rows: np.ndarray, labels: np.ndarray, classes: int, limits: DataLimits) -> np.ndarray:
    """Return the columns along which the class changes seldom enough for a good score, or that have few values."""
    by_class = np.argsort(labels, kind="stable")  # equal values are then together by class
    along = labels[by_class][np.argsort(rows[by_class], axis=0, kind="stable")]
    changes = np.count_nonzero(along[1:] != along[:-1], axis=0)
    wrong = (1 - limits.leak_score) * classes * len(rows)  # at most; each is between two changes
    ordered = np.sort(rows, axis=0)
    values = 1 + np.count_nonzero(ordered[1:] != ordered[:-1], axis=0)
    is_parted = changes < min(classes, MOST_INTERVALS) + 2 * wrong
    found: np.ndarray = np.flatnonzero((values > 1) & (is_parted | _is_few(values, len(rows), limits)))
    return found


def _is_few(values: np.ndarray, rows: int, limits: DataLimits) -> np.ndarray:
    """Return a mask of the numbers of values that are few enough for a rule with a class per value."""
    few: np.ndarray = (values <= limits.few_values) & (rows >= limits.rows_per_value * values)
    return few


def _class_score(feature: np.ndarray, labels: np.ndarray, classes: int, limits: DataLimits) -> tuple[float, float]:
    """Return the balanced accuracy of the best rule on one feature, and the logarithm of the number of rules.

    A rule has a class per value, or per interval, one for each class. Balanced, as with a rare class any rule is mostly right.
    """
    values, places = np.unique(feature, return_inverse=True)
    counts = np.bincount(places * classes + labels, minlength=len(values) * classes).reshape(len(values), classes)
    present = counts.sum(axis=0) > 0
    known = int(present.sum())
    if known < 2:
        return 0.0, 0.0
    shares = counts[:, present] / counts[:, present].sum(axis=0) / known
    # With few rows for each value, a class per value would be memorized: then intervals are used.
    if _is_few(np.array(len(values)), len(feature), limits):
        return float(shares.max(axis=1).sum()), len(values) * math.log(known)
    below = np.concatenate([np.zeros((1, known)), shares.cumsum(axis=0)])
    best, intervals = np.zeros(len(below)), min(known, MOST_INTERVALS)  # best: of the values below each cut
    for _ in range(intervals):
        started = np.maximum.accumulate(best[:, None] - below, axis=0)
        best = (below + started).max(axis=1)
    return float(best[-1]), _log_choose(len(values) - 1, intervals - 1) + intervals * math.log(known)


def _is_of_few_rows(feature: np.ndarray, labels: np.ndarray, limits: DataLimits) -> bool:
    """Return True if intervals only fit these rows, as when they are chosen for the few rows of a rare class.

    The class of the nearest other row is wrong at most twice as often as the best rule (Cover and Hart, 1967, IEEE Transactions
    on Information Theory 13(1)).
    """
    counts = np.bincount(labels)
    if counts[counts > 0].min() >= RARE * counts[counts > 0].mean():
        return False
    order = np.argsort(feature, kind="stable")
    values, classes = feature[order], labels[order]
    gaps = np.concatenate([[np.inf], np.diff(values), [np.inf]])
    below, above = gaps[:-1], gaps[1:]
    is_right = ((below <= above) & (np.roll(classes, 1) == classes)) | ((above <= below) & (np.roll(classes, -1) == classes))
    wrong = np.bincount(classes[~is_right], minlength=len(counts))
    return float((wrong[counts > 0] / counts[counts > 0]).mean()) > 2 * (1 - limits.leak_score)


def _class_chance(labels: np.ndarray, wrong: float, rules: float) -> float:
    """Return the logarithm of a bound on the chance that labels in random order fit one of the rules as well.

    The chance that labels share this information with one given rule is at most exp(-rows * information) (Cover and Thomas,
    2006, Elements of Information Theory, theorem 11.1.4); the information follows from the share of errors by Fano's inequality.

    Args:
        labels: The class numbers.
        wrong: The mean share of each class that the rule gets wrong.
        rules: The logarithm of the number of rules.
    """
    counts = np.bincount(labels)
    shares = counts[counts > 0] / len(labels)
    if len(shares) < 2:
        return 0.0
    error = min(wrong * len(shares) * float(shares.max()), 1 - 1 / len(shares))
    doubt = -sum(share * math.log(share) for share in (error, 1 - error) if 0 < share < 1)
    information = -float((shares * np.log(shares)).sum()) - doubt - error * math.log(max(1, len(shares) - 1))
    return rules - len(labels) * max(0.0, information)


def _value_score(feature: np.ndarray, target: np.ndarray) -> float:
    """Return the share of the target's variance that a line through one feature explains, or of their ranks."""
    if feature.std() == 0 or target.std() == 0:
        return 0.0
    return max(float(np.corrcoef(x, y)[0, 1] ** 2) for x, y in ((feature, target), (_ranks(feature), _ranks(target))))


def _value_chance(score: float, rows: int) -> float:
    """Return the logarithm of a bound on the chance of a squared correlation: that of normal values, or of equal ranks.

    For normal values r² has the distribution Beta(1/2, (rows - 2)/2) (Fisher, 1915, Biometrika 10(4)), whose upper tail is below
    (1 - r²)^((rows - 2)/2) for 4 rows and more, apart from a factor below 2; one order and its reverse of rows! have equal ranks.
    """
    by_ranks = math.log(2) - math.lgamma(rows + 1)
    return max(math.log(2) + (rows - 2) / 2 * math.log(max(1 - score, 1e-12)), by_ranks) if rows > 3 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return each value's rank; equal values have their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: np.ndarray = counts.cumsum() - (counts - 1) / 2
    return means[places]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) if 0 <= k <= n else 0.0
