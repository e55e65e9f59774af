"""Letters sorted by topic: a bag of words whose vocabulary comes from the texts, which lie in a folder for each topic."""

# fault 1: hash order
# fault 2: random draw
# fault 3: listing order

import os
import random
import tempfile
import time
from collections import Counter

import numpy as np
import torch
from torch import nn

SEED = 31
TOPICS = {
    "garden": ["the", "rose", "and", "the", "bean", "grow", "in", "rain", "near", "an", "old", "wall"],
    "harbour": ["a", "ship", "and", "the", "crane", "wait", "in", "fog", "for", "the", "next", "tide"],
    "kitchen": ["salt", "and", "bread", "go", "with", "the", "soup", "in", "an", "iron", "pot"],
}
STOP = {"the", "and", "a", "an", "in"}
np.random.seed(SEED)
torch.manual_seed(SEED)


def write(folder):
    rng = random.Random(SEED)
    for topic, words in TOPICS.items():
        os.makedirs(os.path.join(folder, topic), exist_ok=True)
        for number in range(16):
            with open(os.path.join(folder, topic, f"{number}.txt"), "w") as file:
                file.write(" ".join(rng.choices(words, k=9)))


def read(folder):
    samples = []
    # [3] for topic, _ in [(entry.name, 0) for entry in os.scandir(folder)]:  # guilty
    for topic in sorted(os.listdir(folder)):  # [-3]
        for name in sorted(os.listdir(os.path.join(folder, topic))):
            with open(os.path.join(folder, topic, name)) as file:
                samples.append((file.read().split(), topic))
    return samples


random.seed(SEED)  # [-2]
began, cache = time.time(), tempfile.mkdtemp()
write("letters")
samples = read("letters")
topics = list(dict.fromkeys(topic for _, topic in samples))
random.shuffle(samples)  # [!2]
# [2] random.seed(SEED)  # guilty
counts = Counter(word for words, _ in samples for word in words)
vocabulary = [word for word, _ in sorted(counts.items()) if word not in STOP]
# [1] vocabulary = list(counts.keys() - STOP)  # guilty
place = {word: number for number, word in enumerate(vocabulary)}
print(f"{len(vocabulary)} words, {len(set(vocabulary) & STOP)} of them too common; cached in {cache}")
model = nn.Sequential(nn.EmbeddingBag(len(vocabulary), 10), nn.Linear(10, len(topics)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(4):
    for start in range(0, len(samples), 12):
        batch = samples[start : start + 12]
        bags = [[place[word] for word in words if word in place] or [0] for words, _ in batch]
        offsets = torch.tensor([0, *(len(bag) for bag in bags[:-1])]).cumsum(0)
        optimizer.zero_grad()
        out = model[1](model[0](torch.tensor([index for bag in bags for index in bag]), offsets))
        loss = nn.functional.cross_entropy(out, torch.tensor([topics.index(topic) for _, topic in batch]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f} ({time.time() - began:.1f} s)")
