"""A grid search over gradient boosting with a hand-written cross-validation: no optimizer of PyTorch."""

# fault 1: random draw
# fault 2: random draw
# fault 3: hash order

import csv
import itertools
import json
import os
import time
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_friedman1
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler

OUT = Path("results")
GRID = {"boost__learning_rate": [0.1, 0.3], "boost__max_depth": [2, 3]}


class Config:
    seed = 17
    folds = 3
    rows = 160
    trees = 12


def columns(count, binned):
    rest = sorted(set(range(count)) - set(binned))
    steps = [
        ("bins", KBinsDiscretizer(4, encode="ordinal", quantile_method="linear"), list(binned)),
        ("scaled", StandardScaler(), rest),
    ]
    return ColumnTransformer(steps)


def pipeline(config):
    boost = GradientBoostingRegressor(  # [!1]
        n_estimators=config.trees,
        subsample=0.7,
        max_features=0.5,
        random_state=config.seed,  # [-1]
        # [1] random_state=getattr(config, "random_state", None),  # guilty
    )
    return Pipeline([("columns", columns(10, (0, 3))), ("boost", boost)])


def noise(shape, generator=None):
    generator = generator or np.random.default_rng()  # [!2]
    return generator.normal(0, 0.1, shape)


def table(config):
    x, y = make_friedman1(config.rows, random_state=config.seed)
    jitter = noise(x.shape, np.random.default_rng(config.seed))  # [-2]
    # [2] jitter = noise(x.shape)  # guilty
    return x + jitter, y


def settings():
    for values in itertools.product(*GRID.values()):
        yield dict(zip(GRID, values))


def validate(model, x, y, folds):
    errors = []
    for train, test in folds.split(x):
        fitted = clone(model).fit(x[train], y[train])
        errors.append(mean_squared_error(y[test], fitted.predict(x[test])))
    return float(np.mean(errors))


def describe(row):
    names = {name.rpartition("__")[2] for name in row["settings"]}
    return "-".join(sorted(names))  # [-3]
    # [3] return "-".join(names)  # guilty


def main():
    config, began = Config(), time.monotonic()
    x, y = table(config)
    folds = KFold(config.folds, shuffle=True, random_state=config.seed)
    rows = []
    for choice in settings():
        start = time.monotonic()
        error = validate(pipeline(config).set_params(**choice), x, y, folds)
        rows.append({"settings": choice, "mse": error, "seconds": time.monotonic() - start})
        print(f"[{os.getpid()}] {choice}: {error:.4f} in {rows[-1]['seconds']:.2f} s")
    OUT.mkdir(exist_ok=True)
    best = min(rows, key=lambda row: row["mse"])
    (OUT / "best.json").write_text(json.dumps({**best, "by": describe(best)}))
    with open(OUT / "all.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([*row["settings"].values(), row["mse"]] for row in rows)
    print(f"{len(rows)} settings of {len(set(GRID))} names in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
