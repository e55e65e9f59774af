"""The distribution of a column in the training rows, with which new rows are compared at prediction."""

from __future__ import annotations

from typing import Any

import numpy as np

from mltrainer.tasks.tables.columns import Column

TENTHS = np.linspace(0.1, 0.9, 9)
MOST_SHARES = 100  # categories whose shares are recorded


def training_distribution(column: Column, train: np.ndarray, vocabulary: list[str] | None) -> dict[str, Any] | None:
    """Return the shares of a column's training values by bin, and of missing ones; None for texts and hashed categories.

    Args:
        column: The column.
        train: The training rows.
        vocabulary: The categories that training has seen.

    Returns:
        `missing`; of numbers `edges`, their inner tenths, and `bins`, the share of the rows between each two; of categories
        `shares`, in the vocabulary's order.
    """
    gone = column.missing[train]
    missing = float(gone.mean())
    if vocabulary is not None and len(vocabulary) <= MOST_SHARES:
        codes = column.block(train, vocabulary)[:, 0].astype(np.int64)
        counts = np.bincount(codes[codes >= 0], minlength=len(vocabulary))
        return {"missing": missing, "shares": (counts / len(train)).tolist()}
    if column.values.dtype != np.float64:
        return None
    present = column.values[train][~gone]
    edges = np.unique(np.quantile(present, TENTHS)).tolist()
    counts = np.histogram(present, bins=[-np.inf, *edges, np.inf])[0]
    return {"missing": missing, "edges": edges, "bins": (counts / len(train)).tolist()}
