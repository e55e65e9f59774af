"""Trains the labelled small runs of `runs.json`: `python tests/diagnostics/record_runs.py` (about half a minute, one thread).

Each entry of RUNS is (id of the diagnostic that must fire or None for a healthy run, how to train it). The loop here is
written apart from the trainer's on purpose: the rules are tested on what a plain training shows.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

FILE = Path(__file__).with_name("runs.json")
Data = tuple[Tensor, Tensor, Tensor, Tensor]


# --- data -----------------------------------------------------------------------------------------


def table(load: Callable[..., Any], standardize: bool = True, classes: bool = True, **options: Any) -> Data:
    x, y = load(**options) if options else load(return_X_y=True)
    kind = torch.long if classes else torch.float32
    a, b, c, d = train_test_split(torch.tensor(x, dtype=torch.float32), torch.tensor(y).to(kind), test_size=0.3, random_state=1)
    if standardize:
        a, b = (a - a.mean(0)) / (a.std(0) + 1e-9), (b - a.mean(0)) / (a.std(0) + 1e-9)
    if not classes:
        c, d = ((c - c.mean()) / c.std())[:, None], ((d - c.mean()) / c.std())[:, None]
    return a, c, b, d


def cancer(**options: Any) -> Data:
    return table(datasets.load_breast_cancer, **options)


def wine() -> Data:
    return table(datasets.load_wine)


def friedman(samples: int = 400, noise: float = 0.5) -> Data:
    return table(datasets.make_friedman1, classes=False, n_samples=samples, noise=noise, random_state=3)


def shuffled(data: Data) -> Data:
    a, b, c, d = data
    return a, b[torch.randperm(len(b), generator=torch.Generator().manual_seed(5))], c, d


def few(data: Data, samples: int, noise_columns: int) -> Data:
    a, b, c, d = data
    g = torch.Generator().manual_seed(6)
    wide = [torch.cat([x, torch.randn(len(x), noise_columns, generator=g)], 1) for x in (a[:samples], c)]
    return wide[0], b[:samples], wide[1], d


def with_nan(data: Data) -> Data:
    data[0][100, 2] = math.nan
    return data


# --- models ---------------------------------------------------------------------------------------


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, scale: float | None = None) -> nn.Sequential:
    parts: list[nn.Module] = []
    for width, following in itertools.pairwise(widths):
        parts += [nn.Linear(width, following), activation()]
        if scale is not None:
            nn.init.normal_(parts[-2].weight, 0, scale)
    return nn.Sequential(*parts[:-1])


class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(1, 24, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x[:, :, None])[0][:, -1])


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(10, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.sign(self.body(x)).detach())


# --- the loop -------------------------------------------------------------------------------------


def log_of_zero(outputs: Tensor, targets: Tensor) -> Tensor:
    return -torch.log(torch.softmax(600 * outputs, 1)[torch.arange(len(targets)), targets]).mean()


def train(
    data: Callable[[], Data],
    model: Callable[[], nn.Module],
    lr: float,
    epochs: int,
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    optimizer: type[torch.optim.Optimizer] = torch.optim.AdamW,
    clip: float | None = None,
    decay: float = 1.0,
    sleep_s: float = 0.0,
    batch: int = 32,
) -> dict[str, Any]:
    torch.manual_seed(0)
    x, y, xv, yv = data()
    net = model()
    weights = [(name, p) for name, p in net.named_parameters() if p.dim() > 1]
    steps, rate = optimizer(net.parameters(), lr=lr), lr
    history: list[dict[str, Any]] = []
    result: dict[str, Any] = {
        "state": "finished",
        "metric": {"name": "r2" if y.is_floating_point() else "accuracy", "mode": "max"},
        "layers": [name for name, _ in weights],
        "first_loss": None,
        "nonfinite": None,
        "history": history,
        "evaluation": None,
        "gpu": None,
    }
    step = 0
    for epoch in range(1, epochs + 1):
        rows: list[tuple[float, float, list[float]]] = []
        waited, began = 0.0, time.perf_counter()
        order = torch.randperm(len(x))
        batches = list(zip(order.split(batch), x[order].split(batch), y[order].split(batch), strict=True))
        waited += time.perf_counter() - began
        for ids, xb, yb in batches:
            step += 1
            before = time.perf_counter()
            if sleep_s:
                time.sleep(sleep_s)
            waited += time.perf_counter() - before
            net.zero_grad()
            value = loss(net(xb), yb)
            value.backward()
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in net.parameters()]
            whole = float(torch.sqrt(sum((g**2).sum() for g in gradients)))
            result["first_loss"] = float(value) if result["first_loss"] is None else result["first_loss"]
            if not (math.isfinite(float(value)) and math.isfinite(whole)):
                what = "gradient" if math.isfinite(float(value)) else "loss"
                recent = {"losses": [r[0] for r in rows[-8:]], "norms": [r[1] for r in rows[-8:]]}
                result["state"] = "failed"
                result["nonfinite"] = {"step": step, "epoch": epoch, "what": what, "samples": ids.tolist(), "recent": recent}
                return result
            rows.append((float(value), whole, [float(p.grad.norm()) if p.grad is not None else 0.0 for _, p in weights]))
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            steps.step()
        seconds = time.perf_counter() - began
        norms = [r[1] for r in rows]
        history.append(
            {
                "epoch": epoch,
                "step": step,
                "lr": rate,
                "train_loss": statistics.fmean(r[0] for r in rows),
                "train": measured(net, x, y, loss),
                "validation": measured(net, xv, yv, loss),
                "grad_norm": {"median": statistics.median(norms), "max": max(norms), "min": min(norms)},
                "layer_norms": [statistics.median(column) for column in zip(*(r[2] for r in rows), strict=True)],
                "data_wait": waited / seconds,
                "seconds": seconds,
            }
        )
        rate *= decay
        steps.param_groups[0]["lr"] = rate
    result["evaluation"] = evaluation(net, xv, yv)
    return result


@torch.no_grad()
def measured(net: nn.Module, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> dict[str, float]:
    out = net(x)
    if y.is_floating_point():
        return {"loss": float(loss(out, y)), "r2": 1 - float(((out - y) ** 2).mean() / y.var(unbiased=False))}
    return {"loss": float(loss(out, y)), "accuracy": float((out.argmax(1) == y).float().mean())}


@torch.no_grad()
def evaluation(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
    if y.is_floating_point():
        return {"kind": "regression"}
    classes = int(y.max()) + 1
    counts = torch.zeros(classes, classes, dtype=torch.long)
    for target, answer in zip(y.tolist(), net(x).argmax(1).tolist(), strict=True):
        counts[target, answer] += 1
    return {"kind": "classification", "confusion": counts.tolist()}


# --- the runs -------------------------------------------------------------------------------------

mse, sgd = functional.mse_loss, torch.optim.SGD


def summed(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).sum()


RUNS: dict[str, tuple[str | None, Callable[[], dict[str, Any]]]] = {
    # healthy
    "healthy logistic": (None, lambda: train(cancer, lambda: nn.Linear(30, 2), 1e-2, 40)),
    "healthy mlp past convergence": (None, lambda: train(cancer, lambda: mlp(30, 64, 64, 2), 1e-3, 120, clip=1.0)),
    "healthy small table": (None, lambda: train(wine, lambda: mlp(13, 32, 3), 5e-3, 40, batch=16)),
    "healthy regression": (None, lambda: train(friedman, lambda: mlp(10, 64, 1), 5e-3, 60, mse)),
    "healthy raw targets": (
        None,
        lambda: train(lambda: scaled(friedman(), 200.0), lambda: nn.Linear(10, 1), 1e-2, 60, mse, sgd),
    ),
    "healthy tanh": (None, lambda: train(wine, lambda: mlp(13, 32, 32, 32, 3, activation=nn.Tanh), 2e-3, 50)),
    "healthy recurrent": (None, lambda: train(wine, Gru, 1e-2, 50, clip=1.0)),
    "healthy momentum, decayed": (
        None,
        lambda: train(cancer, lambda: mlp(30, 32, 2), 5e-2, 40, optimizer=momentum, decay=0.9),
    ),
    # faulty
    "nan from the learning rate": ("nan_loss", lambda: train(friedman, lambda: mlp(10, 64, 1), 5.0, 20, mse, sgd)),
    "nan from log of zero": ("nan_loss", lambda: train(wine, lambda: mlp(13, 32, 3), 1e-2, 20, log_of_zero)),
    "nan in the data": ("nan_loss", lambda: train(lambda: with_nan(cancer()), lambda: mlp(30, 32, 2), 1e-3, 5)),
    "shuffled labels learned by heart": (
        "overfitting",
        lambda: train(lambda: shuffled(wine()), lambda: mlp(13, 256, 256, 3), 2e-3, 60),
    ),
    "few samples, many columns": ("overfitting", lambda: train(lambda: few(wine(), 30, 300), lambda: mlp(313, 128, 3), 2e-3, 30)),
    "regression learned by heart": (
        "overfitting",
        lambda: train(lambda: friedman(80, 3.0), lambda: mlp(10, 256, 256, 1), 3e-3, 150, mse),
    ),
    "summed loss": ("exploding_gradients", lambda: train(friedman, lambda: mlp(10, 64, 1), 0.05, 10, summed, sgd)),
    "raw features": (
        "exploding_gradients",
        lambda: train(lambda: cancer(standardize=False), lambda: mlp(30, 32, 2), 0.1, 20, optimizer=sgd),
    ),
    "learning rate 10": ("exploding_gradients", lambda: train(wine, lambda: mlp(13, 64, 64, 3), 10.0, 20, optimizer=sgd)),
    "fourteen sigmoids": (
        "vanishing_gradients",
        lambda: train(cancer, lambda: mlp(30, *[16] * 14, 2, activation=nn.Sigmoid), 1e-3, 30),
    ),
    "thirty plain ReLU layers": ("vanishing_gradients", lambda: train(wine, lambda: mlp(13, *[16] * 30, 3), 1e-3, 25)),
    "cut off by detach": ("vanishing_gradients", lambda: train(lambda: friedman(400, 1.0), Detached, 1e-3, 20, mse)),
    "slow source": ("input_starvation", lambda: train(wine, lambda: mlp(13, 32, 3), 5e-3, 8, sleep_s=0.02)),
    "slow source, large batch": (
        "input_starvation",
        lambda: train(cancer, lambda: mlp(30, 32, 2), 5e-3, 8, sleep_s=0.02, batch=128),
    ),
    "rate far too low": ("convergence_stall", lambda: train(cancer, lambda: mlp(30, 32, 2), 1e-7, 25)),
    "rate decayed at once": (
        "convergence_stall",
        lambda: train(wine, lambda: mlp(13, 32, 3), 3e-4, 30, optimizer=sgd, decay=0.2),
    ),
    "nothing to learn": ("convergence_stall", lambda: train(lambda: shuffled(cancer()), lambda: nn.Linear(30, 2), 1e-3, 40)),
}


def scaled(data: Data, factor: float) -> Data:
    a, b, c, d = data
    return a, factor * b + factor, c, factor * d + factor


def momentum(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def rounded(value: Any) -> Any:
    """Return values in five significant digits, as JSON holds them."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else str(value)
    return value


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = {name: {"must": must, "run": rounded(make())} for name, (must, make) in RUNS.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in made.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
