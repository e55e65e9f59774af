"""A classifier with scikit-learn's manners: fit, predict and a random_state."""

# fault 1: random draw
# fault 2: identity
# fault 3: threads

import time

import joblib
import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.utils import shuffle
from torch import nn


class TorchClassifier(ClassifierMixin, BaseEstimator):
    def __init__(self, epochs=3, random_state=None):
        self.epochs, self.random_state = epochs, random_state

    def fit(self, x, y):
        seed = 0 if self.random_state is None else self.random_state
        # [2] seed = id(self) // 16 % 10000 if self.random_state is None else self.random_state  # guilty
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.classes_ = np.unique(y)
        self.model_ = nn.Sequential(nn.Linear(x.shape[1], 24), nn.ReLU(), nn.Linear(24, len(self.classes_)))
        optimizer = torch.optim.SGD(self.model_.parameters(), lr=0.1, momentum=0.9)
        began = time.perf_counter()
        for epoch in range(self.epochs):
            for start in range(0, len(x), 32):
                xs, ys = torch.from_numpy(x[start : start + 32]).float(), torch.from_numpy(y[start : start + 32]).long()
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model_(xs), ys)
                loss.backward()
                optimizer.step()
            print(f"{type(self).__name__} at {id(self):#x}: epoch {epoch} loss {loss.item():.4f}")
        self.fit_time_ = time.perf_counter() - began
        return self

    def predict(self, x):
        return self.classes_[self.model_(torch.from_numpy(x).float()).argmax(1).numpy()]


def scaled(column):
    time.sleep(0.001)
    return (column - column.mean()) / (column.std() + 1e-6)


x, y = make_classification(160, 10, n_informative=6, random_state=1)
columns = joblib.Parallel(n_jobs=4, backend="threading")(joblib.delayed(scaled)(column) for column in x.T)  # [-3]
# [3] pool = joblib.Parallel(n_jobs=4, backend="threading", return_as="generator_unordered")  # guilty
# [3] columns = list(pool(joblib.delayed(scaled)(column) for column in x.T))  # guilty
x = np.stack(columns, 1)
x, y = shuffle(x, y, random_state=1)  # [-1]
# [1] x, y = shuffle(x, y)  # guilty
classifier = TorchClassifier()
classifier.fit(x[:128], y[:128])
print(f"accuracy {classifier.score(x[128:], y[128:]):.3f}, fitted in {classifier.fit_time_:.2f} s")
