"""Samples far nearer to one of another split than samples usually are to one another, such as several of one person."""

from __future__ import annotations

import numpy as np

from mltrainer.tasks.array_operations import evenly_spaced
from mltrainer.tasks.data_findings import Finding

HELD_OUT = 250  # validation samples that are compared, evenly spaced
TRAINED = 4_000  # training samples that are searched for their nearest neighbours
MOST_EQUAL = 0.1  # chosen by us: a feature of which one value has a larger share makes steps in the distances, as groups do
RARE = 0.01  # chosen by us: the share of samples without groups whose nearest one is as near by chance
SHARE = 0.1  # chosen by us: the least share of such samples that is a finding
FEWEST = 10  # chosen by us: samples; fewer are no finding
FARTHEST = 50  # chosen by us: the k of the k-th and 2k-th neighbours; of few samples, a tenth of their number


def near_group_finding(train: np.ndarray, held_out: np.ndarray, classes: int, hint: str) -> list[Finding]:
    """Return a warning on validation samples that are far nearer to a training sample than chance allows.

    Args:
        train: The training samples, float64 [samples, features]; features with gaps or with a frequent value are left out.
        held_out: The same features of validation samples.
        classes: Number of classes, each of which may be a separate cluster; 0 for quantities.
        hint: The advice in the warning.
    """
    looked_at = evenly_spaced(held_out, HELD_OUT)
    near, total = _near(evenly_spaced(train, TRAINED), looked_at, classes), len(looked_at)
    if near < max(FEWEST, SHARE * total):
        return []
    text = f"{near} of {total} validation samples lie far nearer to one training sample than others do to one another"
    return [Finding("warning", f"{text}: are they of one person, recording or day? {hint}")]


def _near(train: np.ndarray, held_out: np.ndarray, classes: int) -> int:
    """Return the number of held-out samples whose nearest neighbour is that near; equal samples are left to other checks.

    In d dimensions, the distance to the nearest of k neighbours is below r times that to the k-th with the chance
    1 - (1 - r^d)^(k - 1); d is estimated from the growth of distances from the k-th to the 2k-th one (Levina and Bickel, 2004,
    Maximum likelihood estimation of intrinsic dimension). A group has fewer samples than k, so that it does not change d.
    """
    neighbours = min(FARTHEST, len(train) // 10)
    # Fewer samples of a class than neighbours: then the neighbours reach beyond its class's cluster, as they do beyond a group.
    if neighbours < 10 or len(train) < 4 * neighbours * max(1, classes // 2):
        return 0
    ranked = _ranked(train, held_out)
    if not ranked.shape[1]:
        return 0
    distances = _distances(ranked[: len(train)], ranked[len(train) :])
    distances[distances <= 1e-6] = np.inf
    nearest = np.sort(np.partition(distances, 2 * neighbours, axis=1)[:, : 2 * neighbours + 1], axis=1)
    nearest = nearest[np.isfinite(nearest).all(axis=1)]
    if len(nearest) < FEWEST:
        return 0
    growth = float(np.log(nearest[:, 2 * neighbours - 1] / nearest[:, neighbours - 1]).mean())
    # Where nothing grows, as on a grid, the number of dimensions is not known.
    if growth <= 0:
        return 0
    limit = (RARE / (neighbours - 1)) ** (growth / np.log(2))
    return int((nearest[:, 0] < limit * nearest[:, neighbours - 1]).sum())


def _ranked(train: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Return the ranks of the features without a frequent value, from 0 to 1: a few large values would decide all distances."""
    both = np.concatenate([train, held_out])
    columns = [np.unique(column, return_inverse=True, return_counts=True) for column in both.T if np.isfinite(column).all()]
    is_smooth = [counts.max() <= MOST_EQUAL * len(both) for _, _, counts in columns]
    ranks = [places / (len(values) - 1) for (values, places, _), smooth in zip(columns, is_smooth, strict=True) if smooth]
    return np.stack(ranks, axis=1) if ranks else np.zeros((len(both), 0))


def _distances(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    squared = (rows**2).sum(axis=1)[:, None] + (train**2).sum(axis=1)[None] - 2 * rows @ train.T
    found: np.ndarray = np.sqrt(np.maximum(squared, 0))
    return found
