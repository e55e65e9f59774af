"""What the training strategies cost: a training's steps with each, beside a loop written by hand with the same libraries.

Both train a perceptron of two hidden layers of 1,024 on 1,400 digits in batches of 128, with AdamW, clipping and a cosine, on one
thread of a CPU, in turns; ours also takes gradient norms, the chain of fingerprints and seeds for each step. A loop's seconds are
those of its steps alone. Printed are the medians of the turns and the median of their ratios.

    python tests/benchmarks/bench_strategy_cost.py [NAME ...] [--turns 5] [--epochs 4]
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
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

MODEL = {"name": "mlp", "hidden": [1024, 1024]}
ROWS, BATCH, RATE, HEAT, EPSILON, STEPS = 1400, 128, 1e-3, 2.0, 0.1, 5
AUGMENT: dict[str, Any] = {"crop": 1, "flip": "horizontal"}
BASE = "base.safetensors"
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "distillation": {"strategies": [{"name": "distillation", "teacher": {"weights": BASE}, "temperature": HEAT}]},
    "lora": {"strategies": [{"name": "lora", "rank": 8}], "start": {"weights": BASE}},
    "adversarial": {"strategies": [{"name": "adversarial", "epsilon": EPSILON, "steps": STEPS}]},
    "contrastive": {"strategies": [{"name": "contrastive", "augment": AUGMENT}]},
    "masked": {"strategies": [{"name": "masked", "patch": 2}]},
}


def fit(epochs: int, **keys: Any) -> mltrainer.Fit:
    """Train, and measure once, at the end."""
    return mltrainer.fit(
        {"kind": "image_classification"},
        data={"source": "train.npz", "validation": "held.npz"},
        split={"validation": 0.2, "test": 0.0},
        model=MODEL,
        metric={"name": "accuracy", "mode": "max"},
        epochs=epochs,
        batch_size=BATCH,
        optimizer={"name": "adamw", "lr": RATE},
        early_stopping=None,
        evaluate={"every_n_epochs": epochs},
        signals=False,
        tell=lambda _event: None,
        **keys,
    )


# --- by hand ------------------------------------------------------------------------------------

Term = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]  # from model, inputs, targets and outputs to the loss


def plain(_model: nn.Module, _x: Tensor, y: Tensor, outputs: Tensor) -> Tensor:
    """Return the cross-entropy."""
    return functional.cross_entropy(outputs, y)


def distilled(teacher: nn.Module) -> Term:
    """Return the loss with soft targets."""

    def loss(_model: nn.Module, x: Tensor, y: Tensor, outputs: Tensor) -> Tensor:
        with torch.no_grad():
            soft = functional.softmax(teacher(x) / HEAT, 1)
        distance = functional.kl_div(functional.log_softmax(outputs / HEAT, 1), soft, reduction="batchmean")
        return 0.5 * functional.cross_entropy(outputs, y) + 0.5 * HEAT * HEAT * distance

    return loss


def attacked(model: nn.Module, x: Tensor, y: Tensor, _outputs: Tensor) -> Tensor:
    """Return the loss of inputs that PGD moved."""
    model.eval()
    moved = torch.empty_like(x).uniform_(-EPSILON, EPSILON)
    for _ in range(STEPS):
        moved = moved.detach().requires_grad_()
        (slope,) = torch.autograd.grad(functional.cross_entropy(model((x + moved).clamp(0, 1)), y), moved)
        moved = (moved + 2.5 * EPSILON / STEPS * slope.sign()).clamp(-EPSILON, EPSILON)
    model.train()
    return functional.cross_entropy(model((x + moved.detach()).clamp(0, 1)), y)


def contrasted(projection: nn.Module) -> Term:
    """Return the loss of two views beside that of a linear probe."""
    altered = Augment(**AUGMENT)

    def draw(_what: str, count: int) -> np.ndarray:
        return np.random.rand(BATCH, count)

    def loss(model: Any, x: Tensor, y: Tensor, _outputs: Tensor) -> Tensor:
        body, head = model[:-1], model[-1]
        views = [augment(x, altered, Levels(0.0, 1.0), lambda what, n: draw(what, n)[: len(x)]) for _ in range(2)]
        projected = functional.normalize(torch.cat([projection(body(view)) for view in views]), dim=1)
        similar = (projected @ projected.T / 0.5).fill_diagonal_(-torch.inf)
        apart = functional.cross_entropy(similar, torch.arange(2 * len(x)).roll(len(x)))
        return 0.5 * functional.cross_entropy(head(body(x).detach()), y) + 0.5 * apart

    return loss


def unmasked(decoder: nn.Module) -> Term:
    """Return the loss of hidden patches of 2x2 pixels beside that of a linear probe."""

    def loss(model: Any, x: Tensor, y: Tensor, _outputs: Tensor) -> Tensor:
        body, head = model[:-1], model[-1]
        is_hidden = (torch.rand(len(x), 1, 4, 4) < 0.6).repeat_interleave(2, 2).repeat_interleave(2, 3)
        told = decoder(body(torch.where(is_hidden, x.mean((2, 3), keepdim=True), x)))
        target = (x - x.mean()) / x.std(correction=0)
        off = torch.where(is_hidden.flatten(1), (told - target.flatten(1)).abs(), 0.0).sum() / is_hidden.sum()
        return 0.5 * functional.cross_entropy(head(body(x).detach()), y) + 0.5 * off

    return loss


def by_hand(name: str, model: nn.Module, epochs: int) -> float:
    """Train as a loop of torch's own does, and return the seconds of its steps."""
    rows = np.load("train.npz")
    x, y = torch.from_numpy(rows["x"])[:, None], torch.from_numpy(rows["y"])
    teacher, beside = copy.deepcopy(model).eval().requires_grad_(False), nn.Identity()
    if name == "lora":
        peft.inject_adapter_in_model(peft.LoraConfig(r=8, target_modules=["hidden1", "hidden2", "output"]), model)
    if name == "contrastive":
        beside = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 64))
    if name == "masked":
        beside = nn.Linear(1024, 64)
    terms: dict[str, Term] = {
        "distillation": distilled(teacher),
        "adversarial": attacked,
        "contrastive": contrasted(beside),
        "masked": unmasked(beside),
    }
    loss = terms.get(name, plain)
    trained = [p for p in (*model.parameters(), *beside.parameters()) if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, RATE, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * -(-ROWS // BATCH))
    model.train()
    begun = time.perf_counter()
    for batch in batches(epochs):
        optimizer.zero_grad()
        # What these steps compute of the given inputs is within their losses.
        outputs = model(x[batch]) if name not in ("contrastive", "masked") else x[batch]
        loss(model, x[batch], y[batch], outputs).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
    return time.perf_counter() - begun


def batches(epochs: int) -> Iterator[Tensor]:
    """Yield the places of each step's rows."""
    for _ in range(epochs):
        yield from torch.randperm(ROWS).split(BATCH)


# --- the comparison -----------------------------------------------------------------------------


def compared(name: str, epochs: int, turns: int) -> str:
    """Return a line of the table."""
    ours, theirs = [], []
    base = fit(1)
    safetensors.torch.save_file({n: t.contiguous() for n, t in base.model.state_dict().items()}, Path(BASE))
    for _ in range(turns):
        found = fit(epochs, **SETTINGS[name])
        ours.append(found.result["time_s"]["train"] / found.result["steps"])
        theirs.append(by_hand(name, copy.deepcopy(base.model), epochs) / found.result["steps"])
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    return f"| {name} | {1e3 * statistics.median(ours):.2f} | {1e3 * statistics.median(theirs):.2f} | {ratio:.2f} |"


def main() -> None:
    """Print a line for each strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SETTINGS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)
    print("| strategy | ours, ms a step | by hand | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        np.savez("train.npz", x=x[:ROWS], y=digits.target[:ROWS])
        np.savez("held.npz", x=x[ROWS:], y=digits.target[ROWS:])
        for name in asked.names or SETTINGS:
            print(compared(name, asked.epochs, asked.turns), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
