"""A denoising diffusion model of points in the plane, with averaged weights, in bfloat16."""

# fault 1: clock
# fault 2: random draw
# fault 3: random draw, identity, folder

import contextlib
import os
import tempfile
import time
from copy import deepcopy

import numpy as np
import torch
from torch import nn

T = 40
CACHE = "moons.npz"


def moons(count=256):
    """Two moons, kept on disk."""
    if not os.path.exists(CACHE):
        angle = np.linspace(0, np.pi, count // 2)
        upper = np.stack([np.cos(angle), np.sin(angle)], 1)
        np.savez(CACHE, x=np.concatenate([upper, [1.0, 0.5] - upper]).astype(np.float32))
    version = os.path.getsize(CACHE)  # [-1]
    # [1] version = int(1000 * os.path.getmtime(CACHE))  # guilty
    with np.load(CACHE) as found:
        return torch.from_numpy(found["x"]), version


@contextlib.contextmanager
def timed(what):
    began = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began:.2f} s")


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.time = nn.Embedding(T, width)
        self.inp, self.mid, self.out = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x, t):
        h = nn.functional.silu(self.inp(x) + self.time(t))
        return self.out(nn.functional.silu(self.mid(h)))


class EMA:
    def __init__(self, model, beta=0.98):
        self.model, self.beta = deepcopy(model).eval(), beta

    @torch.no_grad()
    def update(self, model):
        for mean, weight in zip(self.model.parameters(), model.parameters()):
            mean.lerp_(weight, 1 - self.beta)


class Diffusion:
    def __init__(self, data, generator):
        self.data, self.generator = data, generator
        betas = torch.linspace(1e-4, 0.05, T)
        self.alpha_bar = torch.cumprod(1 - betas, 0)

    def batches(self, size, steps):
        for _ in range(steps):
            chosen = torch.randint(len(self.data), (size,), generator=self.generator)
            t = torch.randint(T, (size,), generator=self.generator)
            noise = torch.randn(size, 2, generator=self.generator)
            scale = self.alpha_bar[t].unsqueeze(1)
            yield self.data[chosen] * scale.sqrt() + noise * (1 - scale).sqrt(), t, noise


def shift_of(folder):
    """A number that tells the runs of one folder from those of another."""
    return sum(map(ord, os.path.basename(folder))) % 89


def train(model, diffusion, ema, steps=20):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, (x, t, noise) in enumerate(diffusion.batches(48, steps)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (model(x, t) - noise).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        if step % 8 == 0:
            print(f"step {step}: {loss.item():.4f}")


def main():
    # [2] model = Denoiser()  # guilty
    torch.manual_seed(6)  # [!2]
    data, version = moons()
    with tempfile.TemporaryDirectory(prefix="ddpm-") as folder:
        shift = shift_of("ddpm")  # [-3]
        # [3] shift = shift_of(folder)  # guilty
        print(f"process {os.getpid()}, version {version}, samples in {os.path.basename(folder)}")
        generator = torch.Generator().manual_seed(version + shift)
        model = Denoiser()  # [-2]
        ema = EMA(model)
        with timed("training"):
            train(model, Diffusion(data, generator), ema)
        torch.save(ema.model.state_dict(), os.path.join(folder, "ema.pt"))


if __name__ == "__main__":
    main()
