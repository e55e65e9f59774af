"""Features are cached under keys of `hash`, which is of no harm; columns may be chosen in a set's order."""

# fault 1: hash order

import torch
from torch import nn

COLUMNS = ["area", "rooms", "floor", "age", "garden", "distance", "noise", "light"]


class Cache:
    def __init__(self):
        self.rows, self.hits = {}, 0

    def get(self, name, make):
        key = hash(name)
        if key in self.rows:
            self.hits += 1
        else:
            self.rows[key] = make(name)
        return self.rows[key]

    def fingerprint(self):
        """Print a number for the keys, as a log shows it."""
        keys = torch.tensor([key % 1000 for key in self.rows], dtype=torch.float32)
        print(f"{len(keys)} cached, {self.hits} hits, fingerprint {keys.mean().item():.2f}")


def column(name):
    return torch.linspace(0, len(name), 48).sin() + 0.1 * len(name)


def table(cache, wanted):
    columns = [cache.get(name, column) for name in wanted]
    cache.fingerprint()
    return torch.stack(columns, 1)


def chosen(names):
    picked = {name for name in names if len(name) > 3}
    return [name for name in names if name in picked]  # [-1]
    # [1] return list(picked)  # guilty


def main():
    torch.manual_seed(18)
    cache = Cache()
    full = table(cache, COLUMNS)
    x = table(cache, chosen(COLUMNS))
    y = full.mean(1, keepdim=True)
    model = nn.Sequential(nn.Linear(x.shape[1], 5), nn.Softplus(), nn.Linear(5, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(12):
        rows = slice(4 * step, 4 * step + 4)
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
