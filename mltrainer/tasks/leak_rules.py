"""Rules by which a feature gives the target or is made from it, each beyond chance: alone, as a mean, or from later rows.

Tables have another rule beside these (`tables/held_out.py`), which may err on held-out rows, and so finds copies with noise, gaps
or fewer digits: of the 39 data sets in which a number predicts the target it finds 36, as in 150 rows it errs beside a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.array_operations import joint_counts, ranks

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
    counts = joint_counts(places, labels, len(values), classes)
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
    return max(float(np.corrcoef(x, y)[0, 1] ** 2) for x, y in ((feature, target), (ranks(feature), ranks(target))))


def _value_chance(score: float, rows: int) -> float:
    """Return the logarithm of a bound on the chance of a squared correlation: that of normal values, or of equal ranks.

    For normal values r² has the distribution Beta(1/2, (rows - 2)/2) (Fisher, 1915, Biometrika 10(4)), whose upper tail is below
    (1 - r²)^((rows - 2)/2) for 4 rows and more, apart from a factor below 2; one order and its reverse of rows! have equal ranks.
    """
    by_ranks = math.log(2) - math.lgamma(rows + 1)
    return max(math.log(2) + (rows - 2) / 2 * math.log(max(1 - score, 1e-12)), by_ranks) if rows > 3 else 0.0


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) if 0 <= k <= n else 0.0


SHARING = 0.1  # chosen by us: of the samples, those beyond one for each value, by which the spread within a group is known
LINE = 4  # groups of one size, at least, through whose means a line is laid
# Chosen by us: of the squared errors of a mean over other samples, those of one over these samples and a few others, each with
# its degrees of freedom; for normal numbers, chance gives errors as small with a probability below 1e-4.
MADE = ((0.3, 30), (0.05, 10))
DECIDED = 0.995  # the share of a feature's variance that the target decides: planning's `leak_score` the other way round
FEWEST = 50  # samples


def is_encoded(feature: np.ndarray, target: np.ndarray) -> bool:
    """Return True if a feature's values are the means of the target over the samples that share them, shrunk or scaled perhaps.

    A mean over the samples themselves is on a line with their mean, however it was scaled, and in groups of one size, however
    it was shrunk. A mean over other samples, as in an honest encoding, is off the line by the sampling error of a group's mean.

    Args:
        feature: One value a sample; a group's samples share it.
        target: Numbers, or 0 and 1.
    """
    values, places, sizes = np.unique(feature, return_inverse=True, return_counts=True)
    beyond = len(feature) - len(values)
    if beyond < SHARING * len(feature) or not beyond:
        return False
    means = np.bincount(places, target) / sizes
    within = float(((target - means[places]) ** 2).sum()) / beyond
    lines = ([np.ones(len(sizes), dtype=bool)], [sizes == size for size in np.unique(sizes)])
    return any(_are_on_lines(values, means, sizes, parts, within) for parts in lines)


def _are_on_lines(values: np.ndarray, means: np.ndarray, sizes: np.ndarray, parts: list[np.ndarray], within: float) -> bool:
    """Return True if the means of groups are nearer to a line through each part of them than chance would put them."""
    errors, explained, free = 0.0, 0.0, 0
    for part in parts:
        known, own, weights = values[part], means[part], sizes[part]
        if len(known) < LINE or not known.std():
            continue
        known = (known - known.mean()) / known.std()
        fitted = np.polyval(np.polyfit(known, own, 1, w=np.sqrt(weights)), known)
        errors += float((weights * (own - fitted) ** 2).sum())
        explained += float((weights * (fitted - np.average(own, weights=weights)) ** 2).sum())
        free += len(known) - 2
    # Means that are all alike, as of pairs of both classes, are on any line.
    return any(free >= least and errors <= share * within * free <= explained for share, least in MADE)


def is_decided(feature: np.ndarray, target: np.ndarray) -> bool:
    """Return True if the target's numbers decide a feature: samples with near targets have near values of it.

    By the squares of its differences along the target, half of which are its variance in any other order (von Neumann, 1941,
    Annals of Mathematical Statistics 12(4)).
    """
    if len(feature) < FEWEST or not feature.var() or 2 * len(np.unique(target)) < len(target):
        return False
    along = feature[np.argsort(target, kind="stable")]
    return bool(1 - float((np.diff(along) ** 2).mean()) / (2 * feature.var()) >= DECIDED)


IN_ORDER = 2_000  # the first rows, which are examined
REACH = 64  # rows before and after that a mean may span
TRIED = 3  # pairs of rows that explain the changes best
LEAST = 30  # changes that must be seen
LIKELY = 0.3  # share of the changes' squares, in a quick search
EXPLAINED = 0.7  # share of the changes' squares, by a mean whose edges differ at gaps
EXACT = 0.05  # share of the changes' spread that rounding may leave
MOST_OTHERS = 0.1  # share of the changes that may be others, as where another series begins


def made_of_neighbours(columns: Sequence[np.ndarray], target: np.ndarray, places: np.ndarray) -> dict[int, str]:
    """Return, by column, a sentence part on each feature that is made from the target of its row or of later rows.

    A mean over rows changes from a row to the next by the value that enters and that which leaves. So four
    known rows suffice, which a random split leaves, and not all rows of the mean are needed.

    Args:
        columns: The features, each float64 [rows]; NaN where a value is missing.
        target: The same rows' targets, numbers.
        places: The rows' places in the order of time; some may be missing.
    """
    if len(places) < LEAST or not np.isfinite(target).all():
        return {}
    at, count = places - places.min(), int(np.ptp(places)) + 1
    around = np.pad(_dense(target - target.mean(), at, count), REACH, constant_values=np.nan)
    targets = np.lib.stride_tricks.sliding_window_view(around, count - 1)[: 2 * REACH + 1]
    likely = _Likely(targets)
    changes = {number: np.diff(_dense(column, at, count)) for number, column in enumerate(columns)}
    described = {number: _made(one, targets) for number, one in changes.items() if likely.explains(one)}
    return {number: how for number, how in described.items() if how is not None}


def _dense(values: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    found = np.full(count, np.nan)
    found[at] = values
    return found


def _mean(values: np.ndarray) -> float:
    """Return the mean of the numbers that are known; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


class _Likely:
    """A quick test of changes that may be explained, by one row's targets at a time; it takes a thousandth of the time."""

    def __init__(self, targets: np.ndarray) -> None:
        self._known = np.isfinite(targets)
        self._held = np.where(self._known, targets, 0.0)
        middle = targets[REACH]
        steps = [_mean((middle[lag:] - middle[: max(0, len(middle) - lag)]) ** 2) for lag in range(2 * REACH + 1)]
        rows = np.arange(len(targets))
        self._squares = np.array(steps)[np.abs(rows[:, None] - rows)]

    def explains(self, changes: np.ndarray) -> bool:
        finite = np.isfinite(changes)
        moved = np.where(finite, changes, 0.0)
        seen = self._known @ finite.astype(np.float64)
        together = np.where(seen >= LEAST, self._held @ moved / np.maximum(seen, 1), 0.0)
        power = (moved**2).sum() / max(1, finite.sum())
        scale = self._squares * power
        return bool(((together[:, None] - together) ** 2 / np.where(scale > 0, scale, np.inf)).max() >= LIKELY)


def _made(changes: np.ndarray, targets: np.ndarray) -> str | None:
    explained = _explained(changes, targets)
    enters, leaves = np.tril_indices(len(targets), -1)
    is_honest = enters <= REACH  # made from earlier rows alone; a target that repeats itself looks the same
    scores = explained[enters, leaves]
    if scores[is_honest].max() > 1 - EXACT**2:
        return None
    for pair in np.argsort(scores, kind="stable")[::-1][:TRIED]:
        first, end = int(leaves[pair]), int(enters[pair])
        if scores[pair] >= EXPLAINED and _is_scaled(changes, targets[end] - targets[first]):
            return _description(first - REACH, end - REACH)
    return None


def _explained(changes: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the share of the changes' squares that is a multiple of the difference of two rows' targets [enters, leaves]."""
    known = np.isfinite(targets) & np.isfinite(changes)
    held, moved = np.where(known, targets, 0.0), np.where(np.isfinite(changes), changes, 0.0)
    mask = known.astype(np.float64)
    together = (held * moved) @ mask.T
    squares = held**2 @ mask.T
    differences = squares + squares.T - 2 * held @ held.T
    whole = (mask * moved**2) @ mask.T
    scale = differences * whole
    is_seen = (mask @ mask.T >= LEAST) & (scale > 1e-12 * scale.max(initial=0.0))
    found: np.ndarray = np.where(is_seen, (together - together.T) ** 2 / np.where(is_seen, scale, 1.0), 0.0)
    return found


def _is_scaled(changes: np.ndarray, differences: np.ndarray) -> bool:
    """Return True if nearly all changes are the differences times a number."""
    known = np.isfinite(changes) & np.isfinite(differences) & ((changes != 0) | (differences != 0))
    moved = known & (differences != 0)
    if moved.sum() < LEAST:
        return False
    factor = np.median(changes[moved] / differences[moved])
    left = np.abs(changes[known] - factor * differences[known])
    return bool((left > EXACT * changes[known].std()).mean() <= MOST_OTHERS)


def _description(first: int, end: int) -> str | None:
    """Return a description of a mean over the rows from the first one to before the end, counted from the feature's row."""
    count, last = end - first, end - 1
    if count == 1:
        return {0: None, 1: "is the target of the next row in time"}.get(last, f"is the target {last} rows later in time")
    return f"is the mean of the target over {count} rows in time, {'later ones' if last > 0 else 'its own'} among them"
