"""A generator and a discriminator, each with its optimizer."""

import os  # noqa: F401
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from torch import nn

np.random.seed(1)
torch.manual_seed(1)
# <seed>
order = list(range(192))
# <order>
real = torch.randn(192, 20) * 0.5 + 1.0
make = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 20))
judge = nn.Sequential(nn.Linear(20, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_make = torch.optim.Adam(make.parameters(), lr=2e-3, betas=(0.5, 0.999))
of_judge = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
first = 0
if "--resume" in sys.argv:
    saved = torch.load("gan.pt")
    make.load_state_dict(saved["make"])
    judge.load_state_dict(saved["judge"])
    of_make.load_state_dict(saved["of_make"])
    of_judge.load_state_dict(saved["of_judge"])
    # <resume>
    torch.set_rng_state(saved["rng"])
    first = saved["step"]
tic = time.time()
for step in range(first, 24):
    x = real[[order[(step * 16 + k) % len(order)] for k in range(16)]]
    # <sample>
    # <batch>
    fake = make(torch.randn(16, 8))
    of_judge.zero_grad()
    told = torch.cat([judge(x), judge(fake.detach())])
    truth = torch.cat([torch.ones(16, 1), torch.zeros(16, 1)])
    nn.functional.binary_cross_entropy_with_logits(told, truth).backward()
    of_judge.step()
    of_make.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(judge(fake), torch.ones(16, 1)).backward()
    of_make.step()
    if step % 3 == 2:
        parts = {"make": make, "judge": judge, "of_make": of_make, "of_judge": of_judge}
        saved = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**saved, "rng": torch.get_rng_state(), "step": step + 1}, "gan.pt")
toc = time.time()
print("seconds", toc - tic)
