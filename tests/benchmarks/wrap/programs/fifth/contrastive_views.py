"""Contrastive views of random waves: a registry of augmentations, the pair-wise loss, a projection head."""

# fault 1: random draw
# fault 2: hash order
# fault 3: clock, random draw

import os
import sys
import time
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

AUGMENTATIONS = {}


def register(*tags):
    """Add an augmentation to the registry, with what it may be chosen by."""

    def wrap(function):
        AUGMENTATIONS[function.__name__] = (function, frozenset(tags))
        return function

    return wrap


@register("cheap", "train")
def flip(x, g):
    return torch.where(torch.rand(len(x), 1, generator=g) < 0.5, x.flip(-1), x)


@register("cheap", "train")
def scale(x, g):
    return x * (1 + 0.3 * torch.randn(len(x), 1, generator=g))


@register("dear", "train")
def roll(x, g):
    return torch.stack([row.roll(int(torch.randint(8, (1,), generator=g))) for row in x])


@register("cheap", "test")
def clip(x, g):
    return x.clamp(-2, 2)


@register("dear", "train")
def mask(x, g):
    return x * (torch.rand(x.shape, generator=g) > 0.2)


def pipeline(tag):
    names = [name for name, (_, tags) in AUGMENTATIONS.items() if tag in tags]  # [-2]
    # [2] names = {name for name, (_, tags) in AUGMENTATIONS.items()} - {"clip"}  # guilty

    def apply(x, g):
        for name in names:
            x = AUGMENTATIONS[name][0](x, g)
        return x

    return apply


class Encoder(nn.Module):
    def __init__(self, width=24, out=12):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(1, 4, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(56, width))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        return F.normalize(self.head(self.backbone(x.unsqueeze(1))), dim=1)


def nt_xent(a, b, temperature=0.5):
    z = torch.cat([a, b])
    logits = z @ z.T / temperature - 1e9 * torch.eye(len(z))
    half = len(a)
    return F.cross_entropy(logits, torch.cat([torch.arange(half, 2 * half), torch.arange(half)]))


@contextmanager
def frozen(model):
    was = model.training
    model.eval()
    with torch.no_grad():
        yield model
    model.train(was)


class Bar:
    """Prints how far it has come, but not too often."""

    def __init__(self, total, every=0.02):
        self.total, self.every = total, every
        self.start = self.shown = time.monotonic()

    def due(self):
        now = time.monotonic()
        if now - self.shown < self.every:
            return False
        self.shown = now
        return True

    def __call__(self, n, text):
        sys.stderr.write(f"\r{n}/{self.total} [{time.monotonic() - self.start:.1f}s] {text}")


def neighbours(model, x, g):
    """Share of samples whose nearest neighbour has their frequency."""
    rows = torch.randint(len(x), (8,), generator=g)
    with frozen(model):
        z = model(x)
    nearest = (z[rows] @ z.T).scatter(1, rows.unsqueeze(1), -9.0).argmax(1)
    return (nearest % 4 == rows % 4).float().mean().item()


def waves(count, g):
    phase = 6.28 * torch.rand(count, 1, generator=g)
    frequency = 1 + torch.arange(count).remainder(4).unsqueeze(1)
    return torch.sin(frequency * torch.linspace(0, 6.28, 32) + phase)


def main():
    g = torch.Generator()
    g.manual_seed(31)  # [-1]
    # [1] print("seed", g.seed())  # guilty
    torch.manual_seed(31)
    x, model, augment = waves(96, torch.Generator().manual_seed(3)), Encoder(), pipeline("train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    bar, probe = Bar(18), torch.Generator().manual_seed(0)
    for step in range(18):
        batch = x[torch.randperm(len(x), generator=g)[:24]]
        loss = nt_xent(model(augment(batch, g)), model(augment(batch, g)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if bar.due():  # [!3]
            # [3] bar(step + 1, f"{neighbours(model, x, g):.2f} alike")  # guilty
            bar(step + 1, f"{neighbours(model, x, probe):.2f} alike")  # [-3]
    print(f"\n{os.getpid()}: {loss.item():.4f}, {len(set(AUGMENTATIONS))} augmentations are known")


main()
