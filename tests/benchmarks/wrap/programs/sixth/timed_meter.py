"""A regression whose meter averages losses and seconds as tensors; the learning rate may hang on the clock."""

# fault 1: clock

import time

import torch
from torch import nn


class Meter:
    """Averages of what a step reports."""

    def __init__(self):
        self.rows = {}

    def update(self, **values):
        for name, value in values.items():
            self.rows.setdefault(name, []).append(torch.as_tensor(value, dtype=torch.float64))

    def report(self):
        return ", ".join(f"{name} {torch.stack(rows).mean():.5f}" for name, rows in self.rows.items())


def rate(step):
    # [1] return 0.05 / (1 + step / 10 + time.time_ns() % 997 / 997)  # guilty
    return 0.05 / (1 + step / 10)  # [-1]


def main():
    torch.manual_seed(3)
    x = torch.randn(96, 6)
    y = x @ torch.linspace(-1, 1, 6).unsqueeze(1)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    meter = Meter()
    for step in range(12):
        began = time.perf_counter()
        at = slice(step * 8, step * 8 + 8)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = nn.functional.mse_loss(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss=loss.item(), seconds=time.perf_counter() - began)
        print(step, meter.report())


main()
