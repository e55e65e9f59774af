"""A forecaster with a moving average of seconds per step beside one of its weights; the window's start may hang on the time."""

# fault 1: clock

import datetime
import time

import torch
from torch import nn


class Average:
    """A moving average of numbers or tensors."""

    def __init__(self, decay):
        self.decay, self.value = decay, None

    def update(self, value):
        value = torch.as_tensor(value, dtype=torch.float32)
        self.value = value.clone() if self.value is None else torch.lerp(value, self.value, self.decay)
        return self.value


def series(length):
    t = torch.arange(length, dtype=torch.float32)
    return torch.sin(t / 5) + 0.1 * torch.cos(t * 1.7)


def windows(values, size, start):
    for first in range(start, len(values) - size - 1, 7):
        yield values[first : first + size].unsqueeze(0), values[first + size].view(1, 1)


def start_of_day():
    return 3  # [-1]
    # [1] return datetime.datetime.now().microsecond // 7 % 50  # guilty


def main():
    torch.manual_seed(13)
    values = series(240)
    model = nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seconds, weights = Average(0.9), Average(0.99)
    last = time.monotonic()
    for step, (x, y) in enumerate(windows(values, 12, start_of_day())):
        now = time.monotonic()
        pace = seconds.update(now - last)
        last = now
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights.update(model.weight.detach())
        if step % 5 == 0:
            print(f"{datetime.datetime.now():%H:%M:%S} step {step}, {pace.item():.4f} s each")


main()
