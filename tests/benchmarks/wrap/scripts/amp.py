"""Mixed precision with a gradient scaler, as a loop by hand has it."""

import os  # noqa: F401
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from torch import nn

torch.manual_seed(3)
np.random.seed(3)
# <seed>
order = list(range(256))
# <order>
inputs, targets = torch.randn(256, 20), torch.randint(0, 3, (256,))
model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
first = 0
if "--resume" in sys.argv:
    saved = torch.load("last.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scaler.load_state_dict(saved["scaler"])
    # <resume>
    torch.set_rng_state(saved["rng"])
    first = saved["step"]
started = time.perf_counter()
for step in range(first, 40):
    chosen = [order[(step * 16 + k) % len(order)] for k in range(16)]
    x = inputs[chosen]
    # <sample>
    # <batch>
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x).float(), targets[chosen])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 5 == 4:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
        torch.save({**saved, "rng": torch.get_rng_state(), "step": step + 1}, "last.pt")
print(f"{40 / (time.perf_counter() - started):.1f} steps/s")
