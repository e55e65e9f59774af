"""Features made from the target: a group's mean target in place of the group, or a function of the target alone."""

from __future__ import annotations

import numpy as np

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
