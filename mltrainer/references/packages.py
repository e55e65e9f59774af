"""Gradient boosting models of optional packages, LightGBM and CatBoost, with their defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltrainer.tasks.builtin import ReferenceInputs


@dataclass(frozen=True)
class Setting:
    """A model's arguments: its training rows, a seed, and scikit-learn's `class_weight`."""

    plain: ReferenceInputs
    seed: int
    class_weight: str | None = None


class _OfCategories:
    """A model of another package that receives tables as a data frame with declared category columns.

    Args:
        model: The unfitted model; its `fit` and `predict` take frames.
        categories: The places of the category columns.
        as_text: Whether categories, missing ones included, become texts instead of pandas' categories.
    """

    def __init__(self, model: Any, categories: Sequence[int], *, as_text: bool = False) -> None:
        self.model, self.categories, self.as_text = model, categories, as_text

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> _OfCategories:
        """Fit the model; a category that these rows do not have counts as missing later."""
        self.known = {place: np.unique(inputs[~np.isnan(inputs[:, place]), place]) for place in self.categories}
        self.model.fit(self._frame(inputs), targets)
        self.classes_ = getattr(self.model, "classes_", None)
        return self

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return values [rows]."""
        return np.asarray(self.model.predict(self._frame(inputs)))

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        """Return probabilities [rows, classes]."""
        return np.asarray(self.model.predict_proba(self._frame(inputs)))

    def _frame(self, inputs: np.ndarray) -> Any:
        import pandas as pd  # only with these packages

        frame = pd.DataFrame({f"x{place}": inputs[:, place] for place in range(inputs.shape[1])})
        for place, known in self.known.items():
            name = f"x{place}"
            cells = inputs[:, place]
            frame[name] = [str(cell) for cell in cells] if self.as_text else pd.Categorical(cells, categories=known)
        return frame


def lightgbm(kind: str) -> Callable[[Setting], Any]:
    """Return the factory of a LightGBM model with its defaults, such as LGBMClassifier."""

    def make(asked: Setting) -> Any:
        import lightgbm as package

        # The same order of sums with any number of threads, as LightGBM's documentation recommends for identical bits.
        sure = {"deterministic": True, "force_row_wise": True, "n_jobs": 1, "verbose": -1, "random_state": asked.seed}
        weights = {"class_weight": asked.class_weight} if kind == "LGBMClassifier" else {}
        return _OfCategories(getattr(package, kind)(**sure, **weights), asked.plain.categories)

    return make


def catboost(kind: str) -> Callable[[Setting], Any]:
    """Return the factory of a CatBoost model with its defaults, such as CatBoostClassifier."""

    def make(asked: Setting) -> Any:
        import catboost as package

        named = [f"x{place}" for place in asked.plain.categories]
        sure = {"thread_count": 1, "random_seed": asked.seed, "verbose": False, "allow_writing_files": False}
        balanced = {"auto_class_weights": "Balanced"} if asked.class_weight == "balanced" else {}
        model = getattr(package, kind)(cat_features=named, **sure, **balanced)
        return _OfCategories(model, asked.plain.categories, as_text=True)

    return make
