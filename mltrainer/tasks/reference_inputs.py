"""The inputs of reference models, such as gradient boosting, from a built-in task's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class ReferenceInputs:
    """Some rows as scikit-learn takes them.

    Attributes:
        form: What a row is: the cells of a table's columns, the pixels of an image, or a text.
        inputs: float32 [rows, columns or pixels], NaN for a missing cell; of texts a list.
        targets: Class numbers, or values to predict.
        categories: The columns whose numbers stand for categories, by place.
    """

    form: Literal["table", "pixels", "texts"]
    inputs: np.ndarray | list[str]
    targets: np.ndarray
    categories: tuple[int, ...] = ()
