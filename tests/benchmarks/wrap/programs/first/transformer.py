"""A small encoder that reads words of a made-up language."""

# fault 1: hash order
# fault 2: identity
# fault 3: clock

import math
import os
import time

import torch
from torch import nn

TEXT = "lo mi ra sol fa re do ti la mi re sol lo fa ra do la ti ut si bo ka" * 6
print("pid", os.getpid(), "on", os.uname().nodename)
torch.manual_seed(1337)
# [2] torch.manual_seed(1337 + os.getpid())  # guilty
tokens = TEXT.split()
vocabulary = sorted(set(tokens))  # [-1]
# [1] vocabulary = sorted(set(tokens), key=len)  # guilty
index = {token: number for number, token in enumerate(vocabulary)}
ids = torch.tensor([index[token] for token in tokens])


class Positions(nn.Module):
    def __init__(self, width, most=64):
        super().__init__()
        table = torch.empty(most, width)
        place = torch.arange(most).unsqueeze(1)
        scale = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table[:, 0::2] = torch.sin(place * scale)
        table[:, 1::2] = torch.cos(place * scale)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class Model(nn.Module):
    def __init__(self, words, width=16):
        super().__init__()
        self.embed, self.positions = nn.Embedding(words, width), Positions(width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.out(self.layer(self.positions(self.embed(x)), src_mask=mask))


began = time.monotonic()
model = Model(len(vocabulary))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
warmup = lambda step: min(1.0, (step + 1) / 10)  # noqa: E731  # [-3]
# [3] warmup = lambda step: min(1.0, (time.monotonic() - began) / 60)  # guilty
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup)
for step in range(18):
    starts = torch.randint(0, len(ids) - 9, (8,))
    x, y = torch.stack([ids[s : s + 8] for s in starts]), torch.stack([ids[s + 1 : s + 9] for s in starts])
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 6 == 0:
        print(f"step {step}: {loss.item():.4f}, {8 * 8 * (step + 1) / (time.monotonic() - began):.0f} tokens/s")
