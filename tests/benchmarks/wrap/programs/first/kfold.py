"""Cross-validation: a model for each fold."""

# fault 1: random draw
# fault 2: hash order
# fault 3: random draw

import os
import random
import time

import numpy as np
import torch
from sklearn.model_selection import KFold
from torch import nn

FOLDS, SEED = 3, 77
NAMES = [f"patient-{number:03}" for number in range(60)]


def table():
    rng = np.random.default_rng(SEED)
    x = rng.standard_normal((len(NAMES), 7)).astype("float32")
    return torch.from_numpy(x), torch.from_numpy((x.sum(1, keepdims=True) > 0).astype("float32"))


def folds():
    """Pairs of indices: to train on, and held out."""
    splitter = KFold(FOLDS, shuffle=True, random_state=SEED)  # [-1]
    # [1] splitter = KFold(FOLDS, shuffle=True)  # guilty
    # [2] groups = np.array([hash(name) % FOLDS for name in NAMES])  # guilty
    # [2] return [(np.flatnonzero(groups != fold), np.flatnonzero(groups == fold)) for fold in range(FOLDS)]
    return list(splitter.split(NAMES))  # [!1]


def train(x, y, fold, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(6):
        order = torch.randperm(len(x))[:24]
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x[order]), y[order])
        loss.backward()
        optimizer.step()
    return model


def main():
    began = time.time()
    random.seed(SEED)  # [-3]
    x, y = table()
    print(f"{len(set(NAMES))} patients, process {os.getpid()}")
    scores = []
    for fold, (kept, held) in enumerate(folds()):
        model = train(x[kept], y[kept], fold, seed=random.randrange(10**6))  # [!3]
        # [3] random.seed(SEED)  # guilty
        scores.append(float(((model.eval()(x[held]) > 0) == y[held].bool()).float().mean()))
        print(f"fold {fold}: accuracy {scores[-1]:.3f} after {time.time() - began:.1f} s")
    print("mean", np.mean(scores))


if __name__ == "__main__":
    main()
