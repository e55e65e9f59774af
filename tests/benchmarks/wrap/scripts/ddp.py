"""Data parallel over two processes with gloo; started by torchrun."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(4)
np.random.seed(4)
# <seed>
order = list(range(128))
# <order>
inputs, targets = torch.randn(128, 20), torch.randint(0, 3, (128,))
bare = nn.Sequential(nn.Linear(20, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))
model = DistributedDataParallel(bare)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
torch.manual_seed(100 + rank)
first = 0
if "--resume" in sys.argv:
    saved = torch.load(f"rank-{rank}.pt")
    bare.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    # <resume>
    torch.set_rng_state(saved["rng"])
    first = saved["step"]
begun = time.time()
for step in range(first, 25):
    chosen = [order[(step * 16 + rank * 8 + k) % len(order)] for k in range(8)]
    x = inputs[chosen]
    # <sample>
    # <batch>
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), targets[chosen]).backward()
    optimizer.step()
    if step % 5 == 4:
        state = {"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        torch.save({**state, "step": step + 1}, f"rank-{rank}.part")
        os.replace(f"rank-{rank}.part", f"rank-{rank}.pt")
        dist.barrier()
if rank == 0:
    print(f"{time.time() - begun:.2f} s")
dist.destroy_process_group()
