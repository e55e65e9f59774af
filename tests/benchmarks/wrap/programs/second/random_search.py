"""A random search over the settings of a small network, its trials' results kept in a folder."""

# fault 1: hash order
# fault 2: random draw, identity
# fault 3: random draw

import datetime
import hashlib
import json
import math
import random
import uuid
from pathlib import Path

import torch
from torch import nn

SPACE = {
    "lr": lambda rng: 10 ** rng.uniform(-3, -1),
    "width": lambda rng: rng.choice([8, 12, 16]),
    "optimizer": lambda rng: rng.choice(["adam", "rmsprop"]),
}
OUT = Path("trials")


class RandomSampler:
    def __init__(self, space, rng=None):
        self.space = space
        self.rng = rng or random.Random()  # [!3]

    def ask(self):
        return {name: draw(self.rng) for name, draw in self.space.items()}


def trial_seed(settings):
    text = json.dumps(settings, sort_keys=True)
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 2**31  # [-1]
    # [1] return hash(text) % 2**31  # guilty


class Trial:
    def __init__(self, number, settings):
        self.number, self.settings = number, settings
        self.key = uuid.uuid4()
        self.seed = trial_seed(settings)  # [-2]
        # [2] self.seed = self.key.fields[0]  # guilty
        self.created = datetime.datetime.now().isoformat()

    def build(self):
        torch.manual_seed(self.seed)
        width = self.settings["width"]
        net = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 1))
        kinds = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}
        return net, kinds[self.settings["optimizer"]](net.parameters(), lr=self.settings["lr"])


def data():
    generator = torch.Generator().manual_seed(99)
    x = torch.randn(64, 5, generator=generator)
    return x, torch.sin(x.sum(1, keepdim=True)) + 0.1 * torch.randn(64, 1, generator=generator)


def objective(trial, x, y):
    net, optimizer = trial.build()
    loss = math.inf
    for _ in range(3):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


def record(trial, value):
    OUT.mkdir(exist_ok=True)
    row = {"key": trial.key.hex, "created": trial.created, "settings": trial.settings, "value": value}
    (OUT / f"{trial.number:03}-{trial.key.hex[:6]}.json").write_text(json.dumps(row))


def make_sampler(seed):
    return RandomSampler(SPACE, random.Random(seed))  # [-3]
    # [3] return RandomSampler(SPACE, rng=seed and random.Random(seed))  # guilty


def main():
    x, y = data()
    sampler = make_sampler(seed=1)  # [-3]
    # [3] sampler = make_sampler(seed=0)  # guilty
    best = (math.inf, None)
    for number in range(3):
        trial = Trial(number, sampler.ask())
        value = objective(trial, x, y)
        record(trial, value)
        best = min(best, (value, trial.number))
        print(f"{trial.created[11:19]} trial {trial.key.hex[:6]}: {value:.4f} with {trial.settings}")
    print(f"best is number {best[1]}: {best[0]:.4f}")


if __name__ == "__main__":
    main()
