"""What the training strategies cost: a training's steps with each, beside a loop written by hand with the same libraries.

Both train a perceptron of two hidden layers of 1,024 on 1,400 digits in batches of 128, with AdamW, clipping and a cosine, on
one thread of a CPU, in turns; ours also takes gradient norms, the chain of fingerprints and seeds for each step. Of
`progressive` it is a small residual network, which reads images of several sizes; of `balancing` the targets are the digit
and the mean brightness. Of `kept` the loop is that of `distillation`, which asks the teacher in each step; beside weights in 4 or
8 bits it has whole ones. A loop's seconds are those of its steps alone. Printed are the medians of the turns and the median of
their ratios.

    python tests/benchmarks/bench_strategy_cost.py [NAME ...] [--turns 5] [--epochs 4]
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import peft
import safetensors.torch
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.configs.augmenting import Augment
from mltrainer.tasks.images.augmentation import Levels, augment

WIDE = {"name": "mlp", "hidden": [1024, 1024]}
ROWS, BATCH, RATE, HEAT, EPSILON, STEPS, DECAY, EASY = 1400, 128, 1e-3, 2.0, 0.1, 5, 0.99, 0.3
AUGMENT: dict[str, Any] = {"crop": 1, "flip": "horizontal"}
BASE = "base.safetensors"
SHARES = (0.5, 0.75)
Loss = Callable[[Any, Tensor, Tensor], Tensor]  # from model, inputs and targets


class Both(mltrainer.Task):
    """The digit and the mean brightness, told by one perceptron."""

    terms = ("digit", "brightness")

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._y = x.flatten(1), torch.stack([y.float(), x.mean((1, 2, 3))], 1)

    def dataset(self, split: str) -> tuple[Tensor, ...] | None:
        """Return inputs and both targets, all of which are trained on."""
        rows = {"train": slice(None), "validation": slice(BATCH)}.get(split)
        return None if rows is None else (self._x[rows], self._y[rows])

    def model(self) -> nn.Module:
        """Return the perceptron."""
        return nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 11))

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return a loss for each target."""
        digit, brightness = both(outputs, targets)
        return {"digit": digit, "brightness": brightness}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return their mean."""
        return both(outputs, targets).mean()


def both(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the losses of digit and brightness."""
    digit = functional.cross_entropy(outputs[:, :10], targets[:, 0].long())
    return torch.stack([digit, functional.mse_loss(outputs[:, 10], targets[:, 1])])


def digits() -> tuple[Tensor, Tensor]:
    """Return the training rows' images and classes."""
    rows = np.load("train.npz")
    return torch.from_numpy(rows["x"])[:, None], torch.from_numpy(rows["y"])


def fit(epochs: int, task: Any = None, **keys: Any) -> mltrainer.Fit:
    """Train, and measure once, at the end."""
    given = {
        "data": {"source": "train.npz", "validation": "held.npz"},
        "split": {"validation": 0.2, "test": 0.0},
        "model": WIDE,
        "metric": {"name": "accuracy", "mode": "max"},
    }
    return mltrainer.fit(
        task or {"kind": "image_classification"},
        epochs=epochs,
        batch_size=BATCH,
        optimizer={"name": "adamw", "lr": RATE},
        early_stopping=None,
        evaluate={"every_n_epochs": epochs},
        signals=False,
        tell=lambda _event: None,
        **{**({} if task else given), **keys},
    )


# --- by hand ------------------------------------------------------------------------------------


@dataclass
class ByHand:
    """The strategy's part in a loop that is written by hand.

    Attributes:
        loss: Of a batch.
        beside: A module that is trained beside the model.
        stepped: Is called after each step.
        order: The rows that an epoch, from 0, reads.
    """

    loss: Loss
    beside: nn.Module = field(default_factory=nn.Identity)
    stepped: Callable[[], None] = lambda: None
    order: Callable[[int], Tensor] = lambda _epoch: torch.randperm(ROWS)


def entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy."""
    return functional.cross_entropy(model(x), y)


def plain(_model: nn.Module, _epochs: int) -> ByHand:
    """Train by the cross-entropy alone."""
    return ByHand(entropy)


def distillation(model: nn.Module, _epochs: int) -> ByHand:
    """Follow a teacher's soft targets."""
    return ByHand(softened(copy.deepcopy(model).eval().requires_grad_(False)))


def softened(teacher: nn.Module) -> Loss:
    """Return the loss with soft targets."""

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        outputs = model(x)
        with torch.no_grad():
            soft = functional.softmax(teacher(x) / HEAT, 1)
        distance = functional.kl_div(functional.log_softmax(outputs / HEAT, 1), soft, reduction="batchmean")
        return 0.5 * functional.cross_entropy(outputs, y) + 0.5 * HEAT * HEAT * distance

    return loss


def mean_teacher(model: nn.Module, _epochs: int) -> ByHand:
    """Follow the average of the model's own weights."""
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    average, own = [*teacher.parameters()], [*model.parameters()]

    def stepped() -> None:
        with torch.no_grad():
            torch._foreach_lerp_(average, own, 1 - DECAY)

    return ByHand(softened(teacher), stepped=stepped)


def lora(model: nn.Module, _epochs: int) -> ByHand:
    """Train adapters of peft."""
    peft.inject_adapter_in_model(peft.LoraConfig(r=8, target_modules=["hidden1", "hidden2", "output"]), model)
    return ByHand(entropy)


def adversarial(_model: nn.Module, _epochs: int) -> ByHand:
    """Train on inputs that PGD moved; of the given ones the model is asked, too, as a training's own metrics are theirs."""

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        model(x)
        model.eval()
        moved = torch.empty_like(x).uniform_(-EPSILON, EPSILON)
        for _ in range(STEPS):
            moved = moved.detach().requires_grad_()
            (slope,) = torch.autograd.grad(functional.cross_entropy(model((x + moved).clamp(0, 1)), y), moved)
            moved = (moved + 2.5 * EPSILON / STEPS * slope.sign()).clamp(-EPSILON, EPSILON)
        model.train()
        return functional.cross_entropy(model((x + moved.detach()).clamp(0, 1)), y)

    return ByHand(loss)


def curriculum(_model: nn.Module, epochs: int) -> ByHand:
    """Begin with the darkest digits."""
    easiest = digits()[0].mean((1, 2, 3)).argsort()

    def order(epoch: int) -> Tensor:
        pool = int(ROWS * min(1.0, EASY + (1 - EASY) * epoch / (epochs - 1)))
        return torch.cat([easiest[torch.randperm(pool)] for _ in range(-(-ROWS // pool))])[:ROWS]

    return ByHand(entropy, order=order)


def contrastive(_model: nn.Module, _epochs: int) -> ByHand:
    """Compare two views, beside a linear probe."""
    projection = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 64))
    altered = Augment(**AUGMENT)

    def draw(_what: str, count: int) -> np.ndarray:
        return np.random.rand(BATCH, count)

    def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        body, head = model[:-1], model[-1]
        views = [augment(x, altered, Levels(0.0, 1.0), lambda what, n: draw(what, n)[: len(x)]) for _ in range(2)]
        projected = functional.normalize(torch.cat([projection(body(view)) for view in views]), dim=1)
        similar = (projected @ projected.T / 0.5).fill_diagonal_(-torch.inf)
        apart = functional.cross_entropy(similar, torch.arange(2 * len(x)).roll(len(x)))
        return 0.5 * functional.cross_entropy(head(body(x).detach()), y) + 0.5 * apart

    return ByHand(loss, projection)


def masked(_model: nn.Module, _epochs: int) -> ByHand:
    """Tell hidden patches of 2x2 pixels, beside a linear probe."""
    decoder = nn.Linear(1024, 64)

    def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
        body, head = model[:-1], model[-1]
        is_hidden = (torch.rand(len(x), 1, 4, 4) < 0.6).repeat_interleave(2, 2).repeat_interleave(2, 3)
        told = decoder(body(torch.where(is_hidden, x.mean((2, 3), keepdim=True), x)))
        target = (x - x.mean()) / x.std(correction=0)
        off = torch.where(is_hidden.flatten(1), (told - target.flatten(1)).abs(), 0.0).sum() / is_hidden.sum()
        return 0.5 * functional.cross_entropy(head(body(x).detach()), y) + 0.5 * off

    return ByHand(loss, decoder)


def progressive(_model: nn.Module, epochs: int) -> ByHand:
    """Begin with smaller images, the full size in the last epoch."""
    steps, per_epoch = itertools.count(), -(-ROWS // BATCH)

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        stage = next(steps) // per_epoch * len(SHARES) // (epochs - 1)
        share = SHARES[stage] if stage < len(SHARES) else 1.0
        sides = [round(share * side) for side in x.shape[2:]]
        return entropy(model, x if share == 1 else functional.interpolate(x, sides, mode="bilinear", antialias=True), y)

    return ByHand(loss)


def quantization(model: Any, _epochs: int) -> ByHand:
    """Compute with weights and inputs rounded to 8 bits."""
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.forward = functools.partial(rounded, layer)
    return ByHand(entropy)


def rounded(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return a layer's outputs with rounded numbers."""
    scales = layer.weight.detach().abs().amax(1).clamp(min=1e-12) / 64
    weight = torch.fake_quantize_per_channel_affine(layer.weight, scales, torch.zeros_like(scales, dtype=torch.int32), 0, -64, 64)
    low, high = x.detach().aminmax()
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low).clamp(min=1e-12) / 255
    zero = (-low / scale).round().clamp(0, 255).to(torch.int32)
    return functional.linear(torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255), weight, layer.bias)


def equal(_model: nn.Module, _epochs: int) -> ByHand:
    """Learn two targets by the mean of their losses."""
    return ByHand(lambda model, x, targets: both(model(x), targets).mean())


def balancing(_model: nn.Module, _epochs: int) -> ByHand:
    """Learn two targets by log variances."""
    beside = nn.ParameterList([torch.zeros(2)])

    def loss(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        return (both(model(x), targets) * (-beside[0]).exp() + beside[0]).mean()

    return ByHand(loss, beside)


def seconds_by_hand(rows: tuple[Tensor, Tensor], make: Callable[[Any, int], ByHand], model: nn.Module, epochs: int) -> float:
    """Train as a loop of torch's own does, and return the seconds of its steps."""
    x, y = rows
    part = make(model, epochs)
    trained = [p for p in (*model.parameters(), *part.beside.parameters()) if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-ROWS // BATCH))
    model.train()
    begun = time.perf_counter()
    for epoch in range(epochs):
        for batch in part.order(epoch).split(BATCH):
            optimizer.zero_grad()
            part.loss(model, x[batch], y[batch]).backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            part.stepped()
    return time.perf_counter() - begun


# --- the comparison -----------------------------------------------------------------------------


@dataclass
class Case:
    """A strategy, in our config and by hand.

    Attributes:
        by_hand: Its part in a loop.
        keys: Of the config.
        has_two_targets: The task is the one of two targets.
    """

    by_hand: Callable[[Any, int], ByHand]
    keys: dict[str, Any] = field(default_factory=dict)
    has_two_targets: bool = False


def cases(epochs: int) -> dict[str, Case]:
    """Return the comparisons by name."""

    def one(by_hand: Callable[[Any, int], ByHand], keys: dict[str, Any] | None = None, **settings: Any) -> Case:
        return Case(by_hand, {"strategies": [settings], **(keys or {})}, by_hand is balancing)

    resnet = {"model": {"name": "resnet"}}
    return {
        "plain": Case(plain),
        "distillation": one(distillation, name="distillation", teacher={"weights": BASE}, temperature=HEAT),
        "kept": one(distillation, name="distillation", teacher={"weights": BASE}, temperature=HEAT, keep=True),
        "mean_teacher": one(mean_teacher, name="distillation", teacher={"ema": DECAY}, temperature=HEAT),
        "lora": one(lora, {"start": {"weights": BASE}}, name="lora", rank=8),
        "lora_4bits": one(lora, {"start": {"weights": BASE}}, name="lora", rank=8, base_bits=4),
        "lora_8bits": one(lora, {"start": {"weights": BASE}}, name="lora", rank=8, base_bits=8),
        "adversarial": one(adversarial, name="adversarial", epsilon=EPSILON, steps=STEPS),
        "curriculum": one(curriculum, name="curriculum", by="brightness", begin=EASY, epochs=epochs - 1),
        "contrastive": one(contrastive, name="contrastive", augment=AUGMENT),
        "masked": one(masked, name="masked", patch=2),
        "resnet": Case(plain, resnet),
        "progressive": one(progressive, resnet, name="progressive", shares=[*SHARES], epochs=epochs - 1),
        "quantization": one(quantization, name="quantization"),
        "two_targets": Case(equal, has_two_targets=True),
        "balancing": one(balancing, name="balancing"),
    }


def compared(name: str, case: Case, epochs: int, turns: int) -> str:
    """Return a line of the table."""
    ours, theirs = [], []
    x, y = digits()
    task = Both(x, y) if case.has_two_targets else None
    rows = task.dataset("train") if task else (x, y)
    assert rows is not None
    base = fit(1, task, **{key: value for key, value in case.keys.items() if key == "model"})
    safetensors.torch.save_file({n: t.contiguous() for n, t in base.model.state_dict().items()}, Path(BASE))
    for _ in range(turns):
        found = fit(epochs, task, **case.keys)
        ours.append(found.result["time_s"]["train"] / found.result["steps"])
        theirs.append(
            seconds_by_hand((rows[0], rows[1]), case.by_hand, copy.deepcopy(base.model), epochs) / found.result["steps"]
        )
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    return f"| {name} | {1e3 * statistics.median(ours):.2f} | {1e3 * statistics.median(theirs):.2f} | {ratio:.2f} |"


def main() -> None:
    """Print a line for each strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(cases(2)))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    shown = load_digits()
    x = (shown.images / 16).astype(np.float32)
    print("| strategy | ours, ms a step | by hand | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        np.savez("train.npz", x=x[:ROWS], y=shown.target[:ROWS])
        np.savez("held.npz", x=x[ROWS:], y=shown.target[ROWS:])
        for name, case in cases(asked.epochs).items():
            if not asked.names or name in asked.names:
                print(compared(name, case, asked.epochs, asked.turns), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
