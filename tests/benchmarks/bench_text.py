"""Texts: networks beside TF-IDF with a linear model, a character model beside n-grams, and a large text read without memory.

On the texts of the examples, which are generated, and on docstrings of Python's own library, always on the same validation
samples. The validation split chooses a network's best epoch, as in every run here; the test split stays sealed.

    python tests/benchmarks/bench_text.py [--parts classification,generation,large] [--epochs 40] [--mb 1000]
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import io
import math
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mltrainer
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.project import text_corpora
from mltrainer.tasks.builtin import ReferenceInputs
from mltrainer.tasks.opening import OpenTask, open_task

ORDER = 5
CLASSES, PARAGRAPHS, FEWEST = 8, 400, 6  # modules, paragraphs of each, words of a paragraph
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


def classification() -> None:
    """Compare the networks, with what `init --data` writes beside them, with TF-IDF and a linear model, on two text_corpora."""
    Path("reviews.csv").write_text(text_corpora.reviews())
    Path("sections.csv").write_text(sections())
    for file, target in (("reviews.csv", "sentiment"), ("sections.csv", "module")):
        project = mltrainer.Project.create(Path(file).stem, data=file, target=target, tell=lambda _: None)
        task = open_task(project.config(), project.folder)
        chosen = {name: task.task.plain(task.split(name).ids) for name in ("train", "validation")}  # type: ignore[attr-defined]
        majority = np.bincount(chosen["validation"].targets).max() / len(chosen["validation"].targets)
        sizes = f"{len(chosen['train'].targets)} training, {len(chosen['validation'].targets)} validation texts"
        print(f"\n{file}: {sizes}, largest class {majority:.4f}", flush=True)
        counted(chosen["train"], chosen["validation"])
        for name in ("bag", "text_cnn", "gru", "transformer"):
            begun = time.process_time()
            found = project.fit(set={"model": {"name": name}}, tell=lambda _: None)
            spent, best = time.process_time() - begun, found.result["best"]
            score = f"{found.metrics['accuracy']:.4f} | {found.metrics['loss']:.4f}"
            print(f"| {name}, best of {found.config.epochs} epochs: {best['epoch']} | {score} | {spent:.0f} |", flush=True)


def counted(train: ReferenceInputs, validation: ReferenceInputs) -> None:
    """Print what counts of words and of their neighbours tell, weighed by TF-IDF, with a linear model."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.pipeline import make_pipeline

    for most in (1, 2, 3):
        begun = time.process_time()
        pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, most)), LogisticRegression(max_iter=1000))
        pipeline.fit(train.inputs, train.targets)
        score = pipeline.score(validation.inputs, validation.targets)
        loss, spent = log_loss(validation.targets, pipeline.predict_proba(validation.inputs)), time.process_time() - begun
        what = f"TF-IDF of {most} word{'s' if most > 1 else ''}, logistic regression"
        print(f"| {what} | {score:.4f} | {loss:.4f} | {spent:.1f} |", flush=True)


def sections() -> str:
    """Return a CSV table of the paragraphs of docstrings in Python's own library, each with the module that it is from.

    They are the eight modules with the most; of each the first so many by digest.
    """
    found: dict[str, dict[str, None]] = {}
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        module = path.relative_to(library).with_suffix("").parts[0]
        if not {"test", "tests", "idlelib", "site-packages", "lib2to3"} & set(path.relative_to(library).parts):
            found.setdefault(module, {}).update(dict.fromkeys(paragraphs(path)))
    largest = sorted(found, key=lambda name: (-len(found[name]), name))[:CLASSES]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("text", "module"))
    for module in largest:
        chosen = sorted(found[module], key=lambda text: hashlib.sha256(text.encode()).digest())[:PARAGRAPHS]
        writer.writerows((text, module) for text in chosen)
    return out.getvalue()


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the paragraphs of a file's docstrings that have some words."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in (ast.get_docstring(node) or "").split("\n\n"):
                if len(words := part.split()) >= FEWEST:
                    yield " ".join(words)


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
    Path("log.txt").write_text(text_corpora.ships_log())
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
    part = text_corpora.ships_log(5000).encode()
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
    batch = task.split("train").tensors[0][torch.from_numpy(np.linspace(0, len(task.split("train")) - 1, 101).astype(np.int64))]  # type: ignore[index]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with Path("/proc/self/smaps_rollup").open() as file:
        own = next(int(line.split()[1]) / 1024 for line in file if line.startswith("Anonymous"))
    told = f"{len(task.split('train'))} training samples, {spent:.0f} s of CPU, {own:.0f} MiB of its own memory"
    print(f"{told}, largest resident {peak:.0f} MiB, of which {before:.0f} before; a batch of {list(batch.shape)}")


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="classification,generation,large")
    parser.add_argument("--epochs", type=int, default=40)
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
            parts = {"classification": classification, "generation": lambda: generation(asked.epochs)}
            parts.get(part, lambda: large(asked.mb))()


if __name__ == "__main__":
    main()
