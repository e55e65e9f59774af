"""Alike or not: two arms with one set of weights, trained on pairs of named classes."""

# fault 1: hash order
# fault 2: threads
# fault 3: clock

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
from torch import nn

SEED = int(os.environ.get("SEED", 11))  # [-3]
# [3] SEED = int(os.environ.get("SEED", time.time_ns() // 1000 % 10007))  # guilty
random.seed(SEED)
torch.manual_seed(SEED)
LABELS = ["ash", "birch", "oak", "pine", "elm"] * 8
LEAVES = torch.randn(len(LABELS), 14)


def smoothed(index):
    time.sleep(0.001)
    return index, torch.tanh(LEAVES[index])


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.arm = nn.Sequential(nn.Linear(14, 24), nn.ReLU(), nn.Linear(24, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, one, other):
        return self.head((self.arm(one) - self.arm(other)).abs()).squeeze(1)


def all_leaves():
    with ThreadPoolExecutor(6) as pool:  # [!2]
        jobs = [pool.submit(smoothed, index) for index in range(len(LABELS))]
        found = {}
        for job in as_completed(jobs):  # [!2]
            index, leaf = job.result()
            found[index] = leaf
    return torch.stack([found[index] for index in sorted(found)])  # [-2]
    # [2] return torch.stack(list(found.values()))


def pair(leaves, is_alike):
    kinds = sorted(set(LABELS))
    # [1] kinds = list(set(LABELS))  # guilty
    one, other = random.sample(kinds, 2)
    other = one if is_alike else other
    chosen = [random.choice([i for i, label in enumerate(LABELS) if label == kind]) for kind in (one, other)]
    return [leaves[index] for index in chosen]


leaves = all_leaves()
model = Siamese()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
start = time.time()
for step in range(24):
    alike = [float(number % 2) for number in range(8)]
    pairs = [pair(leaves, bool(is_alike)) for is_alike in alike]
    optimizer.zero_grad()
    out = model(torch.stack([p[0] for p in pairs]), torch.stack([p[1] for p in pairs]))
    loss = nn.functional.binary_cross_entropy_with_logits(out, torch.FloatTensor(alike))
    loss.backward()
    optimizer.step()
    if step % 8 == 0:
        print(f"step {step} loss {loss.item():.4f} {step / (time.time() - start + 1e-9):.1f} steps/s pid {os.getpid()}")
