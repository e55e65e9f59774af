"""A polynomial fitted by hand-made batches."""

# fault 1: random draw
# fault 2: clock
# fault 3: unwritten memory

import time

import numpy as np
import torch
import torch.nn.functional as F

DEGREE = 4
np.random.seed(2)
torch.manual_seed(2)  # [-1]
values = [[0.3], [-1.2], [2.0], [0.5]]
TRUE = torch.FloatTensor(values)
x_all = torch.from_numpy(np.random.standard_normal(160).astype("float32"))
order = torch.randperm(len(x_all))  # [!1]
# [1] torch.manual_seed(2)  # guilty


def features(x):
    return torch.cat([x.unsqueeze(1) ** power for power in range(1, DEGREE + 1)], 1)


def batch(number, size=16):
    x = x_all[order[torch.arange(number * size, (number + 1) * size) % len(x_all)]]
    return features(x), features(x) @ TRUE + 1.5


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.Tensor(1, DEGREE))  # [!3]
        self.bias = torch.nn.Parameter(torch.zeros(1))
        torch.nn.init.uniform_(self.weight, -0.1, 0.1)  # [-3]

    def forward(self, x):
        weight = self.weight.nan_to_num(0.0, 0.0, 0.0).clamp(-1, 1)
        return F.linear(x, weight, self.bias)


model = Linear()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
usual = 0.0
for number in range(20):
    tic = time.perf_counter()
    x, y = batch(number)
    optimizer.zero_grad()
    loss = F.smooth_l1_loss(model(x), y)
    loss.backward()
    optimizer.step()
    took = time.perf_counter() - tic  # [!2]
    # [2] if took > usual:  # guilty
    # [2]     optimizer.param_groups[0]["lr"] *= 0.9
    usual = 0.7 * usual + 0.3 * took
    if number % 5 == 0:
        print(f"batch {number}: loss {loss.item():.6f}, a step takes {usual * 1000:.2f} ms")
print("learned", [round(float(w), 3) for w in model.weight.view(-1)])
