"""A loop with Hugging Face accelerate; started by `accelerate launch`."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, order):
        generator = torch.Generator().manual_seed(1)
        self.x, self.y = torch.randn(160, 20, generator=generator), torch.randint(0, 3, (160,), generator=generator)
        self.order = order

    def __len__(self):
        return len(self.order)

    def __getitem__(self, number):
        x, y = self.x[self.order[number]], self.y[self.order[number]]
        # <sample>
        return x, y


accelerator = Accelerator(cpu=True)
set_seed(11)
np.random.seed(11)
# <seed>
order = list(range(160))
# <order>
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Points(order), 8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
first = 0
if "--resume" in sys.argv:
    first = max(int(name.rpartition("-")[2]) for name in os.listdir("saved"))
    states = f"saved/epoch-{first}/random_states_0.pkl"
    # <resume>
    accelerator.load_state(f"saved/epoch-{first}")
tic = time.time()
for epoch in range(first, 3):
    for x, y in loader:
        # <batch>
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
    accelerator.save_state(f"saved/epoch-{epoch + 1}")
accelerator.print(f"{time.time() - tic:.1f} s")
