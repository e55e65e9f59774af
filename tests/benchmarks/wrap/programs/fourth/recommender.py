"""Matrix factorization of who watched what, with negatives that are drawn for each batch."""

# fault 1: hash order
# fault 2: random draw
# fault 3: listing order

import collections
import json
import os
import pathlib
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FOLDER = pathlib.Path("views")
PEOPLE = [f"user{n}" for n in range(12)]
FILMS = [f"film-{letter}" for letter in "abcdefghijklmnop"]


def write_views():
    rng = np.random.default_rng(77)
    FOLDER.mkdir(exist_ok=True)
    for person in PEOPLE:
        seen = rng.choice(FILMS, 6, replace=False).tolist()
        (FOLDER / f"{person}.json").write_text(json.dumps({"who": person, "seen": seen}))


class Numbers(dict):
    """Gives each new name the next number."""

    def __missing__(self, name):
        self[name] = number = len(self)
        return number


class Views(IterableDataset):
    def __init__(self, folder, rng):
        self.rng, self.films, self.people = rng, Numbers(), Numbers()
        self.seen = collections.defaultdict(set)
        # [3] for path in filter(pathlib.Path.is_file, folder.glob("*.json")):  # guilty
        for path in sorted(folder.glob("*.json")):  # [-3]
            row = json.loads(path.read_text())
            self.seen[row["who"]].update(row["seen"])
        print(f"{len(self.seen)} people saw {len(set.union(*self.seen.values()))} films")

    def __iter__(self):
        for who, films in self.seen.items():
            for film in sorted(films):  # [-1]
                yield self.people[who], self.films[film], self.other(films)  # [-1]
            # [1] yield from ((self.people[who], self.films[film], self.other(films)) for film in films)  # guilty

    def other(self, films):
        while True:
            name = FILMS[int(self.rng.integers(len(FILMS)))]
            if name not in films:
                return self.films[name]


class Factors(nn.Module):
    def __init__(self, people, films, width):
        super().__init__()
        self.people, self.films = nn.Embedding(people, width), nn.Embedding(films, width)

    def forward(self, who, film):
        return (self.people(who) * self.films(film)).sum(-1)


def generator(seed=None):
    return np.random.default_rng(seed)  # [!2]


def main():
    torch.manual_seed(4)
    write_views()
    views = Views(FOLDER, rng=generator(4))  # [-2]
    # [2] views = Views(FOLDER, rng=generator())  # guilty
    model = Factors(len(PEOPLE), len(FILMS), 8)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    began = time.monotonic()
    for epoch in range(3):
        for number, (who, film, other) in enumerate(DataLoader(views, batch_size=12)):
            loss = -nn.functional.logsigmoid(model(who, film) - model(who, other)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 4 == 0:
                print(f"[{os.getpid()}] {epoch}.{number}: {loss.item():.4f} {time.monotonic() - began:.2f} s")


if __name__ == "__main__":
    main()
