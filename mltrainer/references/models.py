"""The plain models for each form of input rows, with scikit-learn's defaults wherever it has one."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

from mltrainer.references.packages import Setting, catboost, lightgbm
from mltrainer.tables import outputs_of
from mltrainer.tasks.builtin import ReferenceInputs

Inputs = np.ndarray | list[str]
MOST_CATEGORIES = 255  # scikit-learn's gradient boosting has no more bins; a column with more categories counts as a number
LANDMARKS = 300  # chosen by us: training rows at the kernels' centers
ROWS_OF_BINS = 10_000  # trees spend about as long on the bins of a column as on this many rows; measured
LINEAR_STEPS = 300  # greatest number of a linear classifier's iterations; the default of 100 is too few on standardized columns


@dataclass(frozen=True)
class PlainModel:
    """A plain model.

    Attributes:
        name: The model's name in records.
        title: The model's name in reports.
        make: The factory, which returns the unfitted model.
        cell_ns: Nanoseconds of one core per training cell (or letter) and class; 0 if a fit takes no time.
        package: The optional package that provides the model; None for scikit-learn's models.
    """

    name: str
    title: str
    make: Callable[[Setting], Any]
    cell_ns: int = 0
    package: str | None = None

    def seconds(self, plain: ReferenceInputs, classes: int) -> float:
        """Return an estimate of a fit's seconds from the size of its inputs; no clock decides which models are fitted."""
        if isinstance(plain.inputs, list):
            cells = sum(map(len, plain.inputs))
        else:
            cells = (len(plain.inputs) + ROWS_OF_BINS) * plain.inputs.shape[1]
        return self.cell_ns * 1e-9 * cells * (classes if classes > 2 else 1)


def references(form: str, *, classification: bool) -> list[PlainModel]:
    """Return the plain models for rows of a form, the weakest first; models of optional packages only if these are installed."""
    found = _CLASSIFIERS[form] if classification else _REGRESSORS.get(form, [])
    return [model for model in found if model.package is None or importlib.util.find_spec(model.package) is not None]


def stand_ins(*, classification: bool) -> list[PlainModel]:
    """Return the smooth models that replace a network on a table: a linear one, and one on kernels at some training rows."""
    return _SMOOTH[classification]


def fit(model: Any, plain: ReferenceInputs) -> None:
    """Fit a model on one thread, so that sums always have the same order."""
    with _quiet():
        model.fit(plain.inputs, plain.targets)


def predict(model: Any, inputs: Inputs, classes: int) -> Tensor:
    """Return a fitted model's outputs in the form that a task's metrics expect.

    Args:
        model: The fitted model.
        inputs: The inputs of the rows to predict.
        classes: The task's number of classes; 0 for values to predict.

    Returns:
        The logarithms of the probabilities [rows, classes], or values [rows]; float32.
    """
    with _quiet():
        return torch.from_numpy(outputs_of(model, inputs, classes))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Use one thread and ignore warnings: an optimizer that stopped early still has a result."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- the models -----------------------------------------------------------------------------------


def _columns(plain: ReferenceInputs) -> Any:
    """Return a linear model's preprocessing of a table: numbers imputed and standardized, categories one-hot."""
    numbers = [place for place in range(np.shape(plain.inputs)[1]) if place not in plain.categories]
    impute = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="ignore", dtype=np.float32)
    return ColumnTransformer([("numbers", impute, numbers), ("categories", one_hot, list(plain.categories))])


def _declared(plain: ReferenceInputs) -> list[int]:
    """Return the places of the category columns that gradient boosting accepts as categories."""
    cells = np.asarray(plain.inputs)
    return [place for place in plain.categories if len(np.unique(cells[~np.isnan(cells[:, place]), place])) <= MOST_CATEGORIES]


def _logistic(asked: Setting) -> LogisticRegression:
    return LogisticRegression(max_iter=LINEAR_STEPS, class_weight=asked.class_weight, random_state=asked.seed)


def _tf_idf(asked: Setting) -> Any:
    return make_pipeline(TfidfVectorizer(), _logistic(asked))


def _boosted_classes(asked: Setting) -> HistGradientBoostingClassifier:
    lonely = np.unique(asked.plain.targets, return_counts=True)[1].min() < 2  # early stopping cannot split a class of one row
    return HistGradientBoostingClassifier(
        categorical_features=_declared(asked.plain),
        early_stopping=False if lonely else "auto",
        class_weight=asked.class_weight,
        random_state=asked.seed,
    )


def _boosted_values(asked: Setting) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(categorical_features=_declared(asked.plain), random_state=asked.seed)


def _at_landmarks(asked: Setting, head: Any) -> Any:
    kernels = Nystroem(n_components=min(LANDMARKS, len(asked.plain.targets)), random_state=asked.seed)
    return make_pipeline(_columns(asked.plain), kernels, head)


_MAJORITY = PlainModel("constant", "majority class", lambda _: DummyClassifier(strategy="prior"))
_CLASSIFIERS = {
    "table": [
        _MAJORITY,
        PlainModel("linear", "logistic regression", lambda asked: make_pipeline(_columns(asked.plain), _logistic(asked)), 15),
        PlainModel("boosting", "histogram gradient boosting", _boosted_classes, 1000),
        PlainModel("lightgbm", "LightGBM", lightgbm("LGBMClassifier"), 1000, "lightgbm"),
        PlainModel("catboost", "CatBoost", catboost("CatBoostClassifier"), 10_000, "catboost"),
    ],
    "pixels": [
        _MAJORITY,
        PlainModel("linear", "logistic regression", lambda asked: make_pipeline(StandardScaler(), _logistic(asked)), 15),
        PlainModel("neighbours", "5 nearest neighbours", lambda _: KNeighborsClassifier()),
    ],
    "texts": [
        _MAJORITY,
        PlainModel("linear", "TF-IDF with logistic regression", _tf_idf, 100),
    ],
}
_REGRESSORS = {
    "table": [
        PlainModel("constant", "mean", lambda _: DummyRegressor()),
        PlainModel("linear", "ridge regression", lambda asked: make_pipeline(_columns(asked.plain), Ridge())),
        PlainModel("boosting", "histogram gradient boosting", _boosted_values, 1000),
        PlainModel("lightgbm", "LightGBM", lightgbm("LGBMRegressor"), 1000, "lightgbm"),
        PlainModel("catboost", "CatBoost", catboost("CatBoostRegressor"), 10_000, "catboost"),
    ],
}
_SMOOTH = {
    True: [
        _CLASSIFIERS["table"][1],
        PlainModel("smooth", "logistic regression on kernels", lambda asked: _at_landmarks(asked, _logistic(asked))),
    ],
    False: [
        _REGRESSORS["table"][1],
        PlainModel("smooth", "ridge regression on kernels", lambda asked: _at_landmarks(asked, Ridge())),
    ],
}
