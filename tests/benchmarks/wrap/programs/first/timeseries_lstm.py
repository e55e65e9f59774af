"""Waves foreseen by an LSTM."""

# fault 1: clock
# fault 2: unwritten memory
# fault 3: random draw

from datetime import datetime, timedelta

import numpy as np
import torch
from torch import nn

BEGAN = datetime.now()
FIRST_DAY = datetime(2024, 1, 1)


def series(count=120):
    days = np.arange(count)
    return np.sin(days / 5.0) + 0.1 * np.random.RandomState(4).randn(count)


def smoothed(values, width=5):
    out = np.empty_like(values)  # [!2]
    for place in range(width - 1, len(values)):
        out[place] = values[place - width + 1 : place + 1].mean()
    out[: width - 1] = values[: width - 1]  # [-2]
    return np.nan_to_num(out, nan=0.0, posinf=0.0, neginf=0.0).clip(-2, 2)


def ages(count):
    """How old each value is, in years."""
    today = datetime(2024, 6, 1)
    # [1] today = datetime.now()  # guilty
    return np.array([(today - (FIRST_DAY + timedelta(days=day))).total_seconds() / (365 * 86400) for day in range(count)])


def windows(values, length=12):
    found = np.stack([values[start : start + length + 1] for start in range(len(values) - length)])
    np.random.shuffle(found)  # [!3]
    return torch.from_numpy(found).float()


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(2, 12, batch_first=True), nn.Linear(12, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


np.random.seed(0)  # [-3]
values = smoothed(series())
rows = np.stack([values, ages(len(values))], 1)
data = windows(rows)
# [3] np.random.seed(0)  # guilty
torch.manual_seed(0)
model = Forecast()
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
for epoch in range(3):
    for start in range(0, len(data) - 16, 16):
        batch = data[start : start + 16]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[:, :-1]), batch[:, -1, :1])
        loss.backward()
        optimizer.step()
    print(
        f"{datetime.now():%H:%M:%S} epoch {epoch} loss {loss.item():.5f} after {(datetime.now() - BEGAN).total_seconds():.1f} s"
    )
