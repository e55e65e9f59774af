"""Momentum contrast: a query network, its slowly following key network, and a queue of negatives."""

# fault 1: clock
# fault 2: unwritten memory
# fault 3: random draw

import logging
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
log = logging.getLogger("moco")


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)  # [-3]
    torch.manual_seed(seed)


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x


class Jitter:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x + self.scale * torch.randn_like(x)


class Drop:
    def __init__(self, chance):
        self.chance = chance

    def __call__(self, x):
        keep = np.random.random(x.shape[-1]) > self.chance  # [!3]
        return x * torch.from_numpy(keep.astype(np.float32))


class MoCo(nn.Module):
    def __init__(self, dim=8, size=48, m=0.99, T=0.2):
        super().__init__()
        self.size, self.m, self.T = size, m, T
        self.began = time.monotonic()
        self.encoder_q = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, dim))
        self.encoder_k = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, dim))
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False
        queue = torch.randn(dim, size)  # [-2]
        # [2] queue = torch.empty(dim, size)  # guilty
        self.register_buffer("queue", F.normalize(queue.nan_to_num(0.0, 1.0, -1.0), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    def momentum(self):
        return self.m  # [-1]
        # [1] return self.m - 0.5 * 2.0 ** (self.began - time.monotonic())  # guilty

    @torch.no_grad()
    def _update_key_encoder(self):
        m = self.momentum()
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * m + q.data * (1.0 - m)

    @torch.no_grad()
    def _enqueue(self, keys):
        ptr = int(self.queue_ptr)
        self.queue[:, ptr : ptr + len(keys)] = keys.T
        self.queue_ptr[0] = (ptr + len(keys)) % self.size

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self._update_key_encoder()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        l_neg = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([l_pos, l_neg], dim=1) / self.T
        self._enqueue(k)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def main():
    seed_everything(2020)
    images = torch.FloatTensor(np.linspace(-1, 1, 96 * 20).reshape(96, 20) ** 3)
    loader = DataLoader(TensorDataset(images), batch_size=16, shuffle=True, drop_last=True)
    two_crops = Compose(Drop(0.3), Jitter(0.1))
    model = MoCo()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), 0.05, momentum=0.9)
    end, waited = time.time(), 0.0
    for epoch in range(3):
        for i, (batch,) in enumerate(loader):
            waited += time.time() - end
            loss = model(two_crops(batch), two_crops(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 3 == 0:
                log.info("epoch %d batch %d loss %.4f, data %.3f s", epoch, i, loss.item(), waited)
            end = time.time()


main()
