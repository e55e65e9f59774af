"""The works that every trainer is timed on: the same model, data, batch, optimizer, clipping, validation and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import mltrainer

LR, CLIP, EVALUATION_BATCH = 1e-3, 1.0, 256
DEVICE = os.environ.get("BENCH_DEVICE", "cpu")  # of every trainer: `make gpu` sets it
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Work:
    """One thing to train.

    Attributes:
        title: What it is.
        make: Makes the model, from seed 42.
        data: Makes the training and the validation samples.
        batch: Samples of a step.
        epochs: Passes over the training samples; each ends with a validation and a checkpoint.
    """

    title: str
    make: Callable[[], nn.Module]
    data: Callable[[], tuple[Pair, Pair]]
    batch: int
    epochs: int

    @property
    def steps(self) -> int:
        """Steps of the whole training."""
        return self.epochs * -(-len(self.data()[0][0]) // self.batch)

    def model(self) -> nn.Module:
        """Return a new model; each call returns the same weights."""
        torch.manual_seed(42)
        return self.make()

    def sets(self) -> tuple[TensorDataset, TensorDataset]:
        """Return both sets as PyTorch's data sets."""
        train, validation = self.data()
        return TensorDataset(*train), TensorDataset(*validation)


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy over samples, or over the tokens of all samples."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of right answers."""
    return (outputs.argmax(-1) == targets).float().mean().item()


# --- the three works ------------------------------------------------------------------------------


@cache
def digits() -> tuple[Pair, Pair]:
    """Return scikit-learn's digits: 1437 for training, 360 for validation."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(42))
    x, y = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def mlp() -> nn.Module:
    """Return the MLP 64-256-256-10."""
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


@cache
def images() -> tuple[Pair, Pair]:
    """Return 50 000 generated images of 28x28 pixels in ten classes, and 2 000 more: a pattern for each class, and noise."""
    generator = torch.Generator().manual_seed(42)
    patterns = torch.randn(10, 1, 28, 28, generator=generator)
    y = torch.randint(10, (52_000,), generator=generator)
    x = patterns[y] + 2 * torch.randn(52_000, 1, 28, 28, generator=generator)
    return (x[:50_000], y[:50_000]), (x[50_000:], y[50_000:])


def cnn() -> nn.Module:
    """Return two convolutions of 8 and 16 channels, each pooled, and a linear layer."""
    first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(16 * 49, 10))


TOKENS, CONTEXT, WIDTH = 96, 64, 128


@cache
def sequences() -> tuple[Pair, Pair]:
    """Return 800 generated sequences of 64 tokens and what follows each, and 80 more: each token depends on the one before."""
    generator = torch.Generator().manual_seed(42)
    chances = torch.softmax(3 * torch.randn(TOKENS, TOKENS, generator=generator), 1)
    rows = [torch.randint(TOKENS, (880,), generator=generator)]
    for _ in range(CONTEXT):
        rows.append(torch.multinomial(chances[rows[-1]], 1, generator=generator)[:, 0])
    tokens = torch.stack(rows, 1)
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return (x[:800], y[:800]), (x[800:], y[800:])


class LanguageModel(nn.Module):
    """A causal transformer of four layers."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(TOKENS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the next token at each place."""
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.layers(self.token(x) + self.place(places), mask=self.mask, is_causal=True))


WORKS = {
    "digits": Work("digits, MLP 64-256-256-10", mlp, digits, 32, 20),
    "images": Work("50 000 images of 28x28, CNN", cnn, images, 64, 1),
    "text": Work("sequences of 64 tokens, transformer of 4 layers", LanguageModel, sequences, 16, 1),
}


class Timed(mltrainer.Task):
    """A work as a task of mltrainer."""

    def __init__(self, work: str) -> None:
        self.work = WORKS[work]

    def dataset(self, split: str) -> Pair | None:
        """Return the samples of a split."""
        return {"train": self.work.data()[0], "validation": self.work.data()[1]}.get(split)

    def model(self) -> nn.Module:
        """Return the model."""
        return self.work.model()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return loss_of(outputs, targets)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": accuracy(outputs, targets)}
