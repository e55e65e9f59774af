"""The inputs of reference models, such as gradient boosting, from a built-in task's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class ReferenceInputs:
    """Some rows in the form for scikit-learn.

    Attributes:
        form: The kind of a row: the cells of a table's columns, the pixels of an image, or a text.
        inputs: The rows' inputs, float32 [rows, columns or pixels], NaN for a missing cell; a list for texts.
        targets: Class numbers, or values to predict.
        categories: The places of the columns whose numbers are codes of categories.
    """

    form: Literal["table", "pixels", "texts"]
    inputs: np.ndarray | list[str]
    targets: np.ndarray
    categories: tuple[int, ...] = ()
