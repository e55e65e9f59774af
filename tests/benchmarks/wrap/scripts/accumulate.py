"""Gradients accumulated over micro-batches of texts, an embedding, and clipping."""

import os  # noqa: F401
import random
import sys
import time  # noqa: F401
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401
from datetime import datetime

import numpy as np
import torch
from torch import nn

print("started", datetime.now().isoformat())
random.seed(5)
np.random.seed(5)
torch.manual_seed(5)
# <seed>
order = list(range(320))
# <order>
tokens, labels = torch.randint(0, 50, (320, 12)), torch.randint(0, 2, (320,))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 20)
        self.mix = nn.GRU(20, 24, batch_first=True)
        self.head = nn.Linear(24, 2)

    def forward(self, ids):
        x = self.embed(ids)
        # <sample>
        # <batch>
        found, _ = self.mix(x)
        return self.head(nn.functional.dropout(found[:, -1], 0.1, self.training))


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
first = 0
if "--resume" in sys.argv:
    saved = torch.load("state.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    # <resume>
    torch.set_rng_state(saved["rng"])
    first = saved["update"]
for update in range(first, 30):
    optimizer.zero_grad()
    for micro in range(4):
        chosen = [order[(update * 32 + micro * 8 + k) % len(order)] for k in range(8)]
        loss = nn.functional.cross_entropy(model(tokens[chosen]), labels[chosen]) / 4
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if update % 4 == 3:
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "update": update + 1,
            },
            "state.pt",
        )
