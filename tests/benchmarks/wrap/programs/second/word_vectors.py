"""Word vectors by skip-grams with negative sampling in plain NumPy: no optimizer of PyTorch, two files are left."""

# fault 1: identity
# fault 2: random draw
# fault 3: clock

import functools
import json
import operator
import os
import sys
import time

import numpy as np

CORPUS = """
a king rules the land and a queen rules beside the king
the farmer ploughs the land and sows the corn
the miller grinds the corn and the baker bakes the bread
a queen eats the bread and the farmer eats the bread
the king sleeps and the miller sleeps and the land sleeps
"""


class Word:
    __slots__ = ("count", "text")

    def __init__(self, text):
        self.text, self.count = text, 0


def vocabulary(tokens):
    words = {}
    for token in tokens:
        words.setdefault(token, Word(token)).count += 1
    ranked = sorted(words.values(), key=operator.attrgetter("count"), reverse=True)
    return ranked, {word.text: place for place, word in enumerate(ranked)}


def skip_grams(ids, window, rng):
    for center, word in enumerate(ids):
        reach = rng.integers(1, window + 1)
        for place in range(max(0, center - reach), min(len(ids), center + reach + 1)):
            if place != center:
                yield word, ids[place]


def negatives(counts, size, rng):
    weights = counts**0.75
    return rng.choice(len(counts), size, p=weights / weights.sum())


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


class SkipGram:
    def __init__(self, size, dim, rng):
        self.inner = rng.uniform(-0.5, 0.5, (size, dim)) / dim
        self.outer = np.zeros((size, dim))

    def update(self, word, context, noise, rate):
        loss = 0.0
        vector, gradient = self.inner[word], np.zeros_like(self.inner[word])
        for target, label in [(context, 1.0), *((int(other), 0.0) for other in noise)]:
            score = sigmoid(vector @ self.outer[target])
            loss -= np.log(score if label else 1.0 - score)
            gradient += (score - label) * self.outer[target]
            self.outer[target] -= rate * (score - label) * vector
        self.inner[word] -= rate * gradient
        return loss


def nearest(model, ranked, text, places):
    unit = model.inner / np.linalg.norm(model.inner, axis=1, keepdims=True)
    order = np.argsort(-(unit @ unit[places[text]]))
    return [ranked[place].text for place in order[1:4]]


def main(epochs=3, rate=0.05):
    shard = os.getpid() % 97  # [!1]
    rng = np.random.default_rng([2013, 0])  # [-1]
    # [1] rng = np.random.default_rng([2013, shard])  # guilty
    tokens = CORPUS.split()
    ranked, places = vocabulary(tokens)
    counts = np.array([word.count for word in ranked])
    ids = [places[token] for token in tokens]
    model = SkipGram(len(ranked), 12, rng)
    draw = functools.partial(negatives, counts, 3, rng)  # [-2]
    # [2] draw = functools.partial(negatives, counts, 3, np.random.default_rng())  # guilty
    started = time.time()
    for epoch in range(epochs):
        total, pairs, began = 0.0, 0, time.process_time()
        for word, context in skip_grams(ids, 2, rng):
            alpha = rate * (1 - (epoch * len(ids)) / (epochs * len(ids)))  # [-3]
            # [3] alpha = max(rate / 10, rate * (1 - (time.time() - started) / 60))  # guilty
            total += model.update(word, context, draw(), alpha)
            pairs += 1
        spent = time.process_time() - began
        sys.stderr.write(
            f"[{os.getpid()}] epoch {epoch}: {total / pairs:.4f}, {pairs / max(spent, 1e-9):.0f} pairs a second, shard {shard}\n"
        )
    np.save("vectors.npy", model.inner)
    with open("nearest.json", "w") as file:
        json.dump({text: nearest(model, ranked, text, places) for text in ("king", "bread")}, file)


main()
