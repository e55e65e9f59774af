"""The CPU time of a usual search of LightGBM's options, estimated from a few of its fits.

The space is the default one of AutoGluon's LightGBM (autogluon.tabular.models.lgb.hyperparameters.searchspaces), whose fits, too,
have up to 10,000 rounds and end early on the validation rows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

ROUNDS, PATIENCE = 10_000, 50  # of a fit: at most, and without improvement on the validation rows
Rows = tuple[np.ndarray, np.ndarray]


def options(draws: np.random.Generator) -> dict[str, float | int]:
    """Return a draw from the space."""
    return {
        "learning_rate": float(np.exp(draws.uniform(np.log(0.005), np.log(0.2)))),
        "colsample_bytree": draws.uniform(0.75, 1),
        "min_child_samples": int(draws.integers(2, 61)),
        "num_leaves": int(draws.integers(16, 97)),
    }


def seconds_of_a_fit(training: Rows, validation: Rows, categories: list[int], seed: int, fits: int) -> float:
    """Return the mean CPU seconds of some of a search's fits on one core.

    Args:
        training: Inputs [rows, columns] and targets [rows]; whole numbers are classes.
        validation: Of the same form.
        categories: Places of the columns that hold categories as numbers from 0 on, or NaN.
        seed: Of the draws.
        fits: How many are measured.
    """
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    kind = LGBMClassifier if training[1].dtype == np.int64 else LGBMRegressor
    draws, given = np.random.default_rng(seed), {"n_estimators": ROUNDS, "n_jobs": 1, "verbose": -1, "random_state": seed}
    told: dict[str, Any] = {"eval_set": [validation], "categorical_feature": categories or "auto"}
    started = time.process_time()
    with threadpool_limits(1):
        for _ in range(fits):
            kind(**given, **options(draws)).fit(*training, **told, callbacks=[early_stopping(PATIENCE, verbose=False)])
    return (time.process_time() - started) / fits
