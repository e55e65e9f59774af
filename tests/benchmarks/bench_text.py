"""Texts: networks beside TF-IDF with a linear model, a character model beside n-grams, and a large text read without memory.

All on the texts of the examples, which are generated, and on the same validation samples. The validation split chooses a
network's best epoch, as in every run here; the test split stays sealed.

    python tests/benchmarks/bench_text.py [--parts classification,generation,large] [--epochs 20] [--mb 1000]
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import mltrainer
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.project import corpora
from mltrainer.tasks.opening import OpenTask, open_task

ORDER = 5
REVIEWS: dict[str, Any] = {
    "task": {"kind": "text_classification"},
    "data": {"source": "reviews.csv", "text": "review", "target": "sentiment"},
    "metric": {"name": "accuracy", "mode": "max"},
}
LOG: dict[str, Any] = {
    "task": {"kind": "text_generation"},
    "data": {"source": "log.txt", "tokens": {"kind": "char", "length": 64}},
    "metric": {"name": "bits_per_byte", "mode": "min"},
}


def fitted(config: dict[str, Any], model: dict[str, Any], epochs: int) -> tuple[float, float]:
    """Return the best validation metric of a network, and the CPU seconds of its training."""
    begun = time.process_time()
    keys = {key: value for key, value in config.items() if key != "task"}
    found = mltrainer.fit(config["task"], model=model, epochs=epochs, batch_size=64, tell=lambda _: None, **keys)
    return found.metrics[config["metric"]["name"]], time.process_time() - begun


def opened(config: dict[str, Any], model: dict[str, Any]) -> OpenTask:
    """Return the task of a config, whose splits are those of the networks."""
    return open_task(TrainingConfig.model_validate({"name": "bench", "seed": 42, "model": model, **config}), Path.cwd())


def classification(epochs: int) -> None:
    """Compare the networks with TF-IDF and logistic regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    Path("reviews.csv").write_text(corpora.reviews())
    task = opened(REVIEWS, {"name": "bag"})
    texts = {name: [task.task.texts[row] for row in task.split(name).ids] for name in ("train", "validation")}  # type: ignore[attr-defined]
    labels = {name: task.split(name).tensors[-1].numpy() for name in texts}  # type: ignore[index]
    for most in (1, 2, 3):
        pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, most)), LogisticRegression(max_iter=1000))
        begun = time.process_time()
        pipeline.fit(texts["train"], labels["train"])
        score, spent = pipeline.score(texts["validation"], labels["validation"]), time.process_time() - begun
        print(f"| TF-IDF of {most} word{'s' if most > 1 else ''}, logistic regression | {score:.4f} | {spent:.1f} |")
    for name in ("bag", "text_cnn", "gru", "transformer"):
        score, spent = fitted(REVIEWS, {"name": name}, epochs)
        print(f"| {name} | {score:.4f} | {spent:.0f} |", flush=True)


class Ngrams:
    """Characters after those before them, every order interpolated with the one below (Witten and Bell, 1991)."""

    def __init__(self, text: str, order: int) -> None:
        self.order, self.characters = order, len(set(text)) + 1
        self.counts: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        for size in range(1, order + 1):
            seen = Counter(text[place : place + size] for place in range(len(text) - size + 1))
            self.counts.update(seen)
            for gram, count in seen.items():
                self.after[gram[:-1]] += count
                self.kinds[gram[:-1]] += 1

    def probability(self, before: str, character: str) -> float:
        """Return the probability of a character after a text."""
        found = 1 / self.characters
        for size in range(self.order):
            context = before[len(before) - size :] if size else ""
            if len(context) == size and self.after[context]:
                kinds = self.kinds[context]
                found = (self.counts[context + character] + kinds * found) / (self.after[context] + kinds)
        return found

    def bits(self, text: str) -> float:
        """Return the bits per byte of a text of single-byte characters, after its first one."""
        places = range(1, len(text))
        spent = (-math.log2(self.probability(text[max(0, at - self.order + 1) : at], text[at])) for at in places)
        return sum(spent) / (len(text) - 1)


def generation(epochs: int) -> None:
    """Compare a character transformer and a GRU with n-grams of characters."""
    Path("log.txt").write_text(corpora.ships_log())
    model = {"name": "transformer"}
    task = opened(LOG, model)
    text = Path("log.txt").read_text()
    (low, middle), (_, high) = (task.task._bounds[name] for name in ("train", "validation"))  # type: ignore[attr-defined]
    for order in range(2, ORDER + 2):
        begun = time.process_time()
        bits = Ngrams(text[low:middle], order).bits(text[middle:high])
        print(f"| {order}-grams of characters | {bits:.4f} | {time.process_time() - begun:.1f} |")
    for name in ("gru", "transformer"):
        bits, spent = fitted(LOG, {"name": name}, epochs)
        print(f"| {name} | {bits:.4f} | {spent:.0f} |", flush=True)


def large(mb: int) -> None:
    """Write a text of some size and open it in a process of its own, which tells time and memory."""
    part = corpora.ships_log(5000).encode()
    with Path("large.txt").open("wb") as file:
        for number in range(mb * 1_000_000 // len(part)):
            file.write(b"Part %d\n" % number + part)
    for what in ("first", "again"):
        done = subprocess.run([sys.executable, __file__, "--open"], capture_output=True, text=True, check=True)
        print(f"| {os.path.getsize('large.txt') / 1e6:.0f} MB, opened {what} | {done.stdout.strip()} |", flush=True)


def open_large() -> None:
    """Open the large text in this process."""
    import torch  # what any process here holds anyway

    assert torch is not None
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time()
    task = opened({**LOG, "data": {"source": "large.txt", "tokens": {"kind": "char", "length": 128}}}, {"name": "transformer"})
    task.facts(DataLimits())
    spent = time.process_time() - begun
    batch = task.split("train").tensors[0][torch.from_numpy(np.arange(0, 100_000, 997))]  # type: ignore[index]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with Path("/proc/self/smaps_rollup").open() as file:
        own = next(int(line.split()[1]) / 1024 for line in file if line.startswith("Anonymous"))
    told = f"{len(task.split('train'))} training samples, {spent:.0f} s of CPU, {own:.0f} MiB of its own memory"
    print(f"{told}, largest resident {peak:.0f} MiB, of which {before:.0f} before; a batch of {list(batch.shape)}")


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="classification,generation,large")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.open:
        open_large()
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for part in asked.parts.split(","):
            print(f"\n{part}")
            {"classification": lambda: classification(asked.epochs), "generation": lambda: generation(2 * asked.epochs)}.get(
                part, lambda: large(asked.mb)
            )()


if __name__ == "__main__":
    main()
