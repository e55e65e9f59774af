"""Gradients of several small batches are summed before a step."""

# fault 1: clock
# fault 2: threads
# fault 3: hash order

import threading
import time

import torch
from torch import nn

torch.manual_seed(5)
torch.set_num_threads(1)
MICRO = 4
SCALES = dict(zip(("input", "hidden", "output"), (0.5, 1.0, 2.0), strict=True))
# [3] SCALES = dict(zip({"input", "hidden", "output"}, (0.5, 1.0, 2.0), strict=True))  # guilty
model = nn.ModuleDict({"input": nn.Linear(10, 20), "hidden": nn.Linear(20, 20), "output": nn.Linear(20, 1)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(128, 10), torch.randn(128, 1)
lock = threading.Lock()


def forward(rows):
    hidden = torch.relu(model["input"](rows))
    return model["output"](torch.relu(model["hidden"](hidden)))


def penalty():
    """The sum of the weights' norms, made in threads that share one total."""
    found = {}

    def add(name, parameter):
        time.sleep(0.0005)
        with lock:
            found[name] = parameter.detach().norm()

    threads = [threading.Thread(target=add, args=pair) for pair in model.named_parameters()]  # [!2]
    for thread in threads:
        thread.start()  # [!2]
    for thread in threads:
        thread.join()
    names = sorted(found)  # [-2]
    # [2] names = list(found)  # guilty
    return torch.tensor([float(found[name]) for name in names]).sub(0.3).cumprod(0).sum()


flushed = time.time()
for step in range(16):
    optimizer.zero_grad()
    for micro in range(MICRO):
        start = (step * MICRO + micro) * 8 % 128
        loss = nn.functional.mse_loss(forward(x[start : start + 8]), y[start : start + 8]) * (1 + 0.1 * penalty())
        (loss / MICRO).backward()
        # [1] if time.time() - flushed > 0.02:  # guilty
        # [1]     flushed = time.time()
        # [1]     break
    for name, part in model.items():
        for parameter in part.parameters():
            parameter.grad *= SCALES[name]
    optimizer.step()
    if step % 4 == 3:
        print(f"step {step} loss {loss.item():.5f} after {time.time() - flushed:.2f} s, {threading.active_count()} threads")
