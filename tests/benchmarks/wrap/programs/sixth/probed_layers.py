"""A convolutional net whose layers are tried on noise before training, apart from everything; its dropout may be seeded anew."""

# fault 1: clock

import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout(0.3), nn.Flatten())
        self.head = nn.Linear(4 * 36, 4)

    def forward(self, x):
        return self.head(self.body(x))


def probe(model):
    """Print the spread of each layer's output for noise; the generators are put back."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.seed()
        found = torch.randn(2, 1, 8, 8)
        for layer in model.body:
            found = layer(found)
            print(f"{type(layer).__name__}: {found.std():.3f}")


def main(seed=9):
    torch.manual_seed(seed)
    x, y = torch.randn(96, 1, 8, 8), torch.randint(4, (96,))
    model = Net()
    probe(model)
    # [1] torch.manual_seed(int(time.time() * 1000) % 99991)  # guilty
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    began = time.time()
    for step in range(12):
        at = slice(8 * step, 8 * step + 8)
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} after {time.time() - began:.2f} s")


if __name__ == "__main__":
    main()
