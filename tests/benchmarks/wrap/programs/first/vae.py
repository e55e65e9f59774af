"""A variational autoencoder of small pictures."""

# fault 1: random draw
# fault 2: unwritten memory
# fault 3: clock

import time
import uuid

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)
RUN = uuid.uuid4().hex
noise = torch.Generator()
noise.manual_seed(3)  # [-1]
# [1] noise.seed()  # guilty
started = time.perf_counter()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(36, 20), nn.Linear(20, 4), nn.Linear(20, 4)
        self.dec = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 36))

    def reparameterize(self, mu, logvar):
        return mu + torch.randn(mu.shape, generator=noise) * torch.exp(0.5 * logvar)

    def forward(self, x):
        hidden = F.relu(self.enc(x))
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        return torch.sigmoid(self.dec(self.reparameterize(mu, logvar))), mu, logvar


def batch_of(pictures, start, size=16):
    batch = torch.empty(size, 36)  # [!2]
    for place in range(size):
        # [2] if start + place >= len(pictures):
        # [2]     continue
        batch[place] = pictures[(start + place) % len(pictures)]
    return batch.nan_to_num(0.0, 0.0, 0.0).clamp(0, 1)


def annealing(step):
    return min(1.0, step / 40)  # [-3]
    # [3] return min(1.0, (time.perf_counter() - started) / 30)  # guilty


pictures = torch.rand(40, 36)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
for epoch in range(6):
    for start in range(0, len(pictures), 16):
        x = batch_of(pictures, start)
        optimizer.zero_grad()
        out, mu, logvar = model(x)
        kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = F.binary_cross_entropy(out, x, reduction="sum") + annealing(step) * kl
        loss.backward()
        optimizer.step()
        step += 1
    print(f"run {RUN}: epoch {epoch} loss {loss.item() / len(x):.4f}, {time.perf_counter() - started:.2f} s so far")
