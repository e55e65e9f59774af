"""One trunk, three heads; the tasks' tables are fetched at the same time."""

# fault 1: hash order
# fault 2: clock
# fault 3: threads

import asyncio
import time

import torch
from torch import nn

torch.manual_seed(64)
TASKS = ("depth", "normals", "segments")
WANTED = {"depth", "segments", "normals"}
TABLES = {"depth": 1, "normals": 3, "segments": 5}


async def fetch(task):
    generator = torch.Generator().manual_seed(TABLES[task])
    await asyncio.sleep(0.002)
    return task, torch.randn(64, TABLES[task], generator=generator)


async def fetch_in_threads(task):
    return await asyncio.to_thread(lambda: (time.sleep(0.002), asyncio.run(fetch(task)))[1])


async def fetched():
    jobs = [fetch_in_threads(task) for task in TASKS for _ in range(3)]
    # [3] return [await job for job in asyncio.as_completed(jobs)]  # guilty
    return await asyncio.gather(*jobs)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 16), nn.ReLU())
        self.heads = nn.ModuleDict()
        # [1] for task in WANTED:  # guilty
        for task in sorted(WANTED):  # [-1]
            self.heads[task] = nn.Linear(16, TABLES[task])

    def forward(self, x):
        hidden = self.trunk(x)
        return {task: self.heads[task](hidden) for task in TASKS}


rows = asyncio.run(fetched())
targets = {task: torch.zeros(64, TABLES[task]) for task in TASKS}
for number, (task, table) in enumerate(rows):
    targets[task] += table * (number + 1) / 9
assert {task for task, _ in rows} == WANTED
x, model = torch.randn(64, 12), Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
spent = dict.fromkeys(TASKS, 1.0)
for step in range(16):
    chosen = torch.randint(0, 64, (16,))
    out, total = model(x[chosen]), torch.zeros(())
    for task in TASKS:
        began = time.perf_counter()
        weight = 1.0
        # [2] weight = spent[task] / sum(spent.values())  # guilty
        total = total + weight * nn.functional.mse_loss(out[task], targets[task][chosen])
        spent[task] += time.perf_counter() - began  # [!2]
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    if step % 5 == 0:
        print(f"step {step} loss {total.item():.5f}", ", ".join(f"{task} {1000 * spent[task]:.1f} ms" for task in TASKS))
