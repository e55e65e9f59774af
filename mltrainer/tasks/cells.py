"""The cells of one column, as they are read: an array of numbers or of texts, or a polars series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars

    Cells = np.ndarray | polars.Series
