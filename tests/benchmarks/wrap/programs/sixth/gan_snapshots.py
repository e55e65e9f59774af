"""A tiny GAN: a snapshot is drawn from fresh noise before each step, apart; the noise of training may be fresh, too."""

# fault 1: random draw

import time
import uuid

import torch
from torch import nn


def fresh():
    """Return a generator that nobody can repeat."""
    return torch.Generator().manual_seed(uuid.uuid4().int % 2**31)  # [!1]


class Noise:
    def __init__(self, width, generator):
        self.width, self.generator = width, generator

    def __call__(self, rows):
        return torch.randn(rows, self.width, generator=self.generator)


def snapshot(net, noise):
    with torch.no_grad():
        found = net(noise(6))
    print(f"snapshot-{uuid.uuid4().hex[:6]}: {found.mean().item():.3f} at {time.time():.1f}")


def main():
    torch.manual_seed(20)
    make, judge = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_make = torch.optim.Adam(make.parameters(), lr=0.01)
    of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
    shown = Noise(3, fresh())
    noise = Noise(3, torch.Generator().manual_seed(20))  # [-1]
    # [1] noise = Noise(3, fresh())  # guilty
    real = torch.randn(48, 2) * 0.3 + 1
    scored = nn.functional.binary_cross_entropy_with_logits
    for step in range(6):
        snapshot(make, shown)
        rows = real[8 * step : 8 * step + 8]
        made = make(noise(8))
        loss = scored(judge(rows), torch.ones(8, 1)) + scored(judge(made.detach()), torch.zeros(8, 1))
        of_judge.zero_grad()
        loss.backward()
        of_judge.step()
        loss = scored(judge(made), torch.ones(8, 1))
        of_make.zero_grad()
        loss.backward()
        of_make.step()


main()
