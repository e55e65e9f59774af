"""A table of houses: categories by embeddings, numbers as they are."""

# fault 1: random draw
# fault 2: hash order
# fault 3: random draw

import logging
import random
import time

import numpy as np
import pandas as pd
import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
torch.manual_seed(21)


def houses(count=160):
    rng = np.random.default_rng(21)
    towns = ["Bern", "Lund", "Graz", "Brno", "Gent", "Porto"]
    frame = pd.DataFrame({"town": [towns[n % 6] for n in range(count)], "rooms": rng.integers(1, 8, count)})
    frame["area"] = frame["rooms"] * 22 + rng.normal(0, 5, count)
    frame["price"] = frame["area"] / 50 + frame["town"].map(len) / 4
    return frame


frame = houses()
frame = frame.sample(frac=1, random_state=3)  # [-1]
# [1] frame = frame.sample(frac=1)  # guilty
known = set(frame["town"])
codes = {town: code for code, town in enumerate(frame["town"].sort_values().unique())}
# [2] codes = {town: code for code, town in enumerate(known)}  # guilty
assert known == set(codes)
towns = torch.tensor([codes[town] for town in frame["town"]])
numbers = torch.from_numpy(((frame[["rooms", "area"]] - frame[["rooms", "area"]].mean()) / 50).to_numpy("float32"))
price = torch.from_numpy(frame["price"].to_numpy("float32"))


class Net(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.embed, self.body = nn.Embedding(count, 4), nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, towns, numbers):
        return self.body(torch.cat([self.embed(towns), numbers], 1)).squeeze(1)


class Sampler:
    """Chooses rows, dear ones more often."""

    def __init__(self, weights, seed):
        self.weights = weights
        self.random = random.Random(seed)  # [-3]
        # [3] self.random = random.Random()  # guilty
        random.seed(seed)

    def rows(self, count):
        return self.random.choices(range(len(self.weights)), weights=self.weights, k=count)


sampler = Sampler(price.tolist(), 5)
model = Net(len(codes))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(20):
    tic = time.time()
    rows = sampler.rows(16)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(towns[rows], numbers[rows]), price[rows])
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        logging.info("step %d loss %.4f, %.1f ms", step, loss.item(), 1000 * (time.time() - tic))
