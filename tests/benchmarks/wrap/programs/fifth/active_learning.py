"""Which samples to have labelled next: two annotators who disagree, rounds of training, queries of uncertain samples."""

# fault 1: hash order
# fault 2: random draw
# fault 3: threads

import math
import os
import random
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.preprocessing import scale
from torch import nn

CLASSES = ("circle", "square", "star", "cross", "moon", "heart")
STEPS = 3


class Annotator:
    """Knows the truth, but for a share of samples; the same sample gets the same answer."""

    def __init__(self, name, truth, wrong):
        self.name, self.truth, self.wrong = name, truth, wrong

    def label(self, index):
        rng = random.Random(f"{self.name}/{index}")
        time.sleep(0.0002 * (1 + index % 3))  # reads the sample
        return rng.choice(CLASSES) if rng.random() < self.wrong else CLASSES[self.truth[index]]


class Oracle:
    def __init__(self, annotators):
        self.annotators, self.asked = annotators, Counter()
        self.pool = ThreadPoolExecutor(len(annotators))

    def votes(self, index):
        jobs = [self.pool.submit(annotator.label, index) for annotator in self.annotators]
        self.asked.update(annotator.name for annotator in self.annotators)
        return [job.result() for job in jobs]  # [-3]
        # [3] wait(jobs, return_when=FIRST_COMPLETED)  # guilty
        # [3] return [job.result() for job in jobs if job.done()]  # guilty

    def __call__(self, index):
        votes = self.votes(index)
        winner = max(votes, key=votes.count)  # [-1]
        # [1] winner = max(set(votes), key=votes.count)  # guilty
        return CLASSES.index(winner)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.pool.shutdown()


class Pool:
    """What is labelled, and what is not yet."""

    def __init__(self, x, oracle):
        self.x, self.oracle, self.labels = x, oracle, {}

    def label(self, indices):
        for index in indices:
            self.labels[int(index)] = self.oracle(int(index))

    def labelled(self):
        rows = list(self.labels)
        return self.x[rows], torch.tensor([self.labels[row] for row in rows])

    def rest(self):
        return [index for index in range(len(self.x)) if index not in self.labels]


def first_batch(x, count):
    """The samples nearest to the centres of clusters."""
    kmeans = KMeans(count, n_init=1, init="random", random_state=0)  # [-2]
    # [2] kmeans = KMeans(count, n_init=1, init="random")  # guilty
    distances = kmeans.fit_transform(x)
    return dict.fromkeys(distances.argmin(axis=0).tolist())


def entropy(model, x):
    with torch.no_grad():
        chance = model(x).softmax(1)
    return -(chance * chance.log()).sum(1) / math.log(len(CLASSES))


def train(model, optimizer, x, y):
    for _ in range(STEPS):
        chosen = torch.randint(len(x), (16,))
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    name = f"run-{np.random.randint(9999):04}"
    torch.manual_seed(25)
    x, y = make_blobs(120, n_features=4, centers=len(CLASSES), cluster_std=3.0, random_state=25)
    x = scale(x)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, len(CLASSES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with Oracle([Annotator(who, y, 0.6) for who in ("ann", "ben")]) as oracle:
        pool = Pool(torch.from_numpy(x).float(), oracle)
        pool.label(first_batch(x, 12))
        for number in range(6):
            began = time.perf_counter()
            loss = train(model, optimizer, *pool.labelled())
            rest = pool.rest()
            uncertain = entropy(model, pool.x[rest]).argsort(descending=True, stable=True)[:6]
            pool.label(rest[place] for place in uncertain)
            took = time.perf_counter() - began
            print(f"{name} ({os.getpid()}) round {number}: {loss:.4f}, {len(pool.labels)} labels, {took:.3f} s")
    print(f"{oracle.asked.total()} questions to {len({*oracle.asked})} annotators")


if __name__ == "__main__":
    main()
