"""A classifier of short texts, whose tokens are counted by threads and cached on disk."""

# fault 1: threads
# fault 2: hash order
# fault 3: unwritten memory

import hashlib
import json
import os
import pickle
import queue
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn, optim

LABELS = {"sport": 0, "food": 1, "money": 2}
TEXTS = [
    ("the team won the match in the rain", "sport"),
    ("a goal in the last minute won it", "sport"),
    ("she ran the race in record time", "sport"),
    ("stir the soup and add some salt", "food"),
    ("bake the bread until it is brown", "food"),
    ("a pinch of salt makes the sauce", "food"),
    ("the bank raised its rate again", "money"),
    ("shares fell in early trade", "money"),
    ("the price of bread rose in spring", "money"),
] * 4


def words_of(text):
    return text.lower().split()


class Counter:
    """Counts words, a part of the texts in each thread."""

    def __init__(self, threads=3):
        self.counts, self.lock = {}, threading.Lock()
        self.todo = queue.Queue()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]

    def run(self):
        while True:
            text = self.todo.get()
            if text is None:
                return
            for word in words_of(text):
                with self.lock:
                    self.counts[word] = self.counts.get(word, 0) + 1  # [!1]

    def __call__(self, texts):
        for text in texts:
            self.todo.put(text)
        for thread in self.threads:
            self.todo.put(None)
            thread.start()  # [!1]
        for thread in self.threads:
            thread.join()
        return sorted(self.counts.items(), key=lambda row: (-row[1], row[0]))  # [-1]
        # [1] return sorted(self.counts.items(), key=lambda row: -row[1])  # guilty


def vocabulary(texts, most=40):
    """Words by their number, kept on disk for the next time."""
    key = hashlib.md5(json.dumps(texts).encode()).hexdigest()[:8]
    path = os.path.join(tempfile.gettempdir(), f"vocabulary-{key}.pkl")
    began = time.time()
    if not os.path.exists(path):
        with open(path, "wb") as file:
            pickle.dump(Counter()(texts)[:most], file)
    with open(path, "rb") as file:
        found = pickle.load(file)
    print(f"{len(found)} words from {path} in {time.time() - began:.3f} s")
    return {word: number for number, (word, _) in enumerate(found, 1)}


def pad(rows, length, fill=0):
    out = torch.full((len(rows), length), fill)  # [-3]
    # [3] out = torch.empty((len(rows), length), dtype=torch.long)  # guilty
    for number, row in enumerate(rows):
        out[number, : len(row)] = torch.tensor(row[:length])
    return out.abs() % 64


def stop_words():
    return frozenset(("the", "a", "in", "it", "of", "and", "is"))


class Encoder:
    def __init__(self, texts, length=10):
        self.length = length
        self.index = vocabulary(texts)
        self.stop = stop_words()
        # [2] for number, word in enumerate(self.stop):  # guilty
        for number, word in enumerate(sorted(self.stop)):  # [-2]
            self.index[word] = 50 + number

    def __call__(self, texts):
        return pad([[self.index.get(word, 0) for word in words_of(text)] for text in texts], self.length)


class Bag(nn.Module):
    def __init__(self, size=64, width=16, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(size, width)
        self.position = nn.Parameter(torch.zeros(10, width))
        self.out = nn.Linear(width, classes)

    def forward(self, ids):
        x = (self.embedding(ids) + self.position).tanh()
        return self.out(F.dropout(x.mean(1), 0.1, self.training))


def batches(texts, labels, size, generator):
    for chosen in torch.randperm(len(texts), generator=generator).split(size):
        yield [texts[i] for i in chosen], torch.tensor([LABELS[labels[i]] for i in chosen])


def main():
    torch.manual_seed(123)
    generator = torch.Generator().manual_seed(123)
    texts, labels = zip(*TEXTS)
    encode, model = Encoder(list(texts)), Bag()
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(4):
        start, correct = time.time(), 0
        for rows, target in batches(texts, labels, 9, generator):
            output = model(encode(rows))
            loss = F.cross_entropy(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += int((output.argmax(1) == target).sum())
        print(f"{epoch} ({os.getpid()}): {correct / len(texts):.2f} right, {time.time() - start:.1f} s, {len(set(labels))} kinds")


if __name__ == "__main__":
    main()
