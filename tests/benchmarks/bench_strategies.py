"""What the training strategies bring: each beside the same training without it, on tasks where it is said to help.

All train in as many steps and under the same draws, seed by seed. All but the last two train on the digits and are measured on
697 that none has seen.

- lora: a perceptron of two hidden layers of 512 that learned 900 digits goes on with 100 noisy ones, by all of its weights or by
  adapters of rank 4 with a new head.
- lora_4bits, lora_8bits: the same adapters beside held weights in so many bits, and without that beside whole ones.
- adversarial: the same perceptron on 900 digits, plain and with PGD at 0.2 of the range from black to white; both are attacked by
  foolbox's PGD of 40 steps.
- curriculum: a perceptron of 64 hidden units on 400 digits of which a fifth have wrong labels, plain and by that run's margins.
- contrastive: a small convolutional network on 45 digits, 5 % of 900, with new weights and with those that it learned by SimCLR
  from all 900 without labels; the same steps with labels.
- masked: the same with a small vision transformer, by telling hidden patches of 2x2 pixels.
- progressive: a small residual network on 900 digits of 32x32 pixels, of the full size always and of 16 and 24 pixels for 8 of 12
  epochs; beside it the processor's time of each training.
- quantization: a small convolutional network on 900 digits of which one pixel in a hundred is 50 times as bright, which the 256
  steps of 8 bits have to span; six more epochs, plain and with rounded numbers; the accuracy of the file in 8 bits.
- distillation: `bench_distillation.py` as it stands.
- multitask: six quantities that are mixtures of the same three bends of ten features, with noise, learned from 100 rows by one
  perceptron of 32 and 32 hidden units for each of them, or by one for all; r2 on 500 other rows. Each takes as many steps. Beside
  it six quantities of which each has a bend of its own.
- balancing: the six mixtures by one perceptron in a custom task, half of them in a unit in which they are ten times as large, by
  the mean of their squared errors and with log variances. Beside it what both ways to weigh gain where a built-in task measures
  each in deviations.

    python tests/benchmarks/bench_strategies.py [NAME ...] [--seeds 0 1 2 3 4]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import safetensors.torch
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import mltrainer
from mltrainer.checkpointing.export import Call, Quantization, export
from mltrainer.configs.templates import STATIC
from mltrainer.records.common import CalibrationRows
from mltrainer.trainers.native.signals.outputs import Margins
from tests.benchmarks import bench_distillation

WIDE = {"name": "mlp", "hidden": [512, 512]}
EPSILON = 0.2
SEEN = 100  # some settings were chosen by draws of the seeds before
BRIGHT = np.float32(50.0)
Measured = dict[str, float]


def divide(seed: int, **sizes: int) -> None:
    """Write some digits by name into files, and those from the 1,100th on as `held`; drawn by a seed."""
    digits = load_digits()
    order, x = np.random.default_rng(seed).permutation(len(digits.target)), (digits.images / 16).astype(np.float32)
    begin = 0
    for name, size in sizes.items():
        write(name, x[order[begin : begin + size]], digits.target[order[begin : begin + size]])
        begin += size
    write("held", x[order[1100:]], digits.target[order[1100:]])


def write(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """Write images and labels."""
    np.savez(f"{name}.npz", x=x, y=y)


def fit(source: str, model: dict[str, Any], epochs: int, seed: int, held: str = "held", **keys: Any) -> mltrainer.Fit:
    """Train on a file, and measure once, at the end, on what was held out."""
    keys = {"split": {"validation": 0.2, "test": 0.0}, "batch_size": 16, "early_stopping": None, "signals": False, **keys}
    return mltrainer.fit(
        {"kind": "image_classification"},
        data={"source": f"{source}.npz", "validation": f"{held}.npz"},
        model=model,
        metric={"name": "accuracy", "mode": "max"},
        epochs=epochs,
        seed=seed,
        evaluate={"every_n_epochs": epochs},
        tell=lambda _event: None,
        **keys,
    )


def accuracy(found: mltrainer.Fit) -> float:
    """Return a training's accuracy on what was held out."""
    return found.metrics["accuracy"]


# --- the strategies -----------------------------------------------------------------------------


def noisy(seed: int) -> dict[str, Any]:
    """Write noisy digits and weights that learned clear ones; return the keys of a training that begins with these."""
    divide(seed, many=900, few=100)
    draws = np.random.default_rng(seed)
    for name in ("few", "held"):
        rows = np.load(f"{name}.npz")
        write(f"noisy_{name}", (rows["x"] + draws.normal(0, 0.3, rows["x"].shape)).astype(np.float32), rows["y"])
    base = fit("many", WIDE, 12, seed)
    safetensors.torch.save_file({n: t.contiguous() for n, t in base.model.state_dict().items()}, Path("base.safetensors"))
    return {"start": {"weights": "base.safetensors", "replace_head": True}, "held": "noisy_held"}


def lora(seed: int) -> Measured:
    """Return the accuracies of a fine-tuning of all weights and of one by adapters, and the share that these are."""
    begun = noisy(seed)
    whole = fit("noisy_few", WIDE, 40, seed, **begun)
    adapted = fit("noisy_few", WIDE, 40, seed, **begun, strategies=[{"name": "lora", "rank": 4}])
    new = fit("noisy_few", WIDE, 40, seed, held="noisy_held")
    weights = sum(p.numel() for p in whole.model.parameters())
    # Of each layer but the head an adapter: rank * (inputs + outputs); the head whole.
    trained = 4 * (64 + 512) + 4 * (512 + 512) + 512 * 10 + 10
    return {"new weights": accuracy(new), "without": accuracy(whole), "with": accuracy(adapted), "weights": trained / weights}


def few_bits(bits: int, seed: int) -> Measured:
    """Return the accuracies of two fine-tunings by adapters, beside whole weights and beside some in few bits."""
    begun, adapters = noisy(seed), {"name": "lora", "rank": 4}
    whole, few = (
        fit("noisy_few", WIDE, 40, seed, **begun, strategies=[{**adapters, **more}]) for more in ({}, {"base_bits": bits})
    )
    return {"without": accuracy(whole), "with": accuracy(few)}


def adversarial(seed: int) -> Measured:
    """Return the accuracies of a plain and of an attacked training, under an attack of another library."""
    divide(seed, many=900)
    plain = fit("many", WIDE, 15, seed)
    moved = fit("many", WIDE, 15, seed, strategies=[{"name": "adversarial", "epsilon": EPSILON, "steps": 7}])
    return {
        "clean without": accuracy(plain),
        "clean with": accuracy(moved),
        "without": withstands(plain.model),
        "with": withstands(moved.model),
    }


def withstands(model: nn.Module) -> float:
    """Return the share of the held-out digits that foolbox's PGD does not turn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import foolbox
    rows = np.load("held.npz")
    x: Tensor = torch.from_numpy(rows["x"])[:, None]
    y = torch.from_numpy(rows["y"])
    torch.manual_seed(0)
    attack = foolbox.attacks.LinfPGD(steps=40, rel_stepsize=2.5 / 40)
    wrapped = foolbox.PyTorchModel(model.eval(), bounds=(0, 1), device="cpu")
    _, _, is_turned = attack(wrapped, x, foolbox.criteria.Misclassification(y), epsilons=EPSILON)
    return 1 - float(is_turned.float().mean())


def curriculum(seed: int) -> Measured:
    """Return the accuracies of a training with wrong labels in the usual order, and by its own margins."""
    divide(seed, few=400)
    rows, draws = np.load("few.npz"), np.random.default_rng(seed)
    wrong = draws.choice(400, 80, replace=False)
    labels = rows["y"].copy()
    labels[wrong] = (labels[wrong] + draws.integers(1, 10, 80)) % 10
    write("few", rows["x"], labels)
    model = {"name": "mlp", "hidden": [64]}
    write_margins = Margins.write
    # A fit's folder is removed: its margins are written here.
    with mock.patch.object(Margins, "write", lambda margins, _folder: write_margins(margins, Path())):
        plain = fit("few", model, 20, seed, signals=True)
    strategy = {"name": "curriculum", "margins": "margins.f32", "begin": 0.5, "epochs": 10}
    by_margins = fit("few", model, 20, seed, strategies=[strategy])
    return {"without": accuracy(plain), "with": accuracy(by_margins)}


def contrastive(seed: int) -> Measured:
    """Return the accuracies of a training on few labels, with new weights and with features learned without labels."""
    divide(seed, many=900, few=45)
    views = {"crop": 1, "affine": {"rotate": 15.0, "translate": 0.1, "scale": 0.1}}
    return few_labels(seed, {"name": "contrastive", "augment": views, "weight": 0.8}, {"name": "cnn"}, epochs=60)


def masked(seed: int) -> Measured:
    """Return the same for features learned by telling hidden patches."""
    divide(seed, many=900, few=45)
    model = {"name": "vit", "patch": 2, "width": 48, "depth": 3, "heads": 4}
    strategy = {"name": "masked", "patch": 2, "weight": 0.9}
    return few_labels(seed, strategy, model, epochs=200, optimizer={"name": "adamw", "lr": 3e-3})


def few_labels(seed: int, strategy: dict[str, Any], model: dict[str, Any], epochs: int, **keys: Any) -> Measured:
    """Return the accuracies of a training on few labels, with new weights and with those of a strategy that needs none."""
    rate = {"optimizer": {"name": "adamw", "lr": 3e-3}}
    learned = fit("many", model, epochs, seed, batch_size=128, strategies=[strategy], **keys)
    safetensors.torch.save_file({n: t.contiguous() for n, t in learned.model.state_dict().items()}, Path("learned.safetensors"))
    begun = {"start": {"weights": "learned.safetensors", "replace_head": True}}
    return {
        "without": accuracy(fit("few", model, 60, seed, **rate)),
        "with": accuracy(fit("few", model, 60, seed, **rate, **begun)),
        "knn of 900 with labels": learned.metrics["knn_accuracy"],
    }


def progressive(seed: int) -> Measured:
    """Return the accuracies of a training on images of one size and on images that grow, and how long each took."""
    divide(seed, many=900)
    for name in ("many", "held"):
        rows = np.load(f"{name}.npz")
        x = nn.functional.interpolate(torch.from_numpy(rows["x"])[:, None], size=(32, 32), mode="bilinear")
        write(f"large_{name}", x.numpy(), rows["y"])
    model: dict[str, Any] = {"name": "resnet", "width": 16, "stages": 3, "blocks": 1, "stem": 1}
    rate = {"optimizer": {"name": "adamw", "lr": 3e-3}}
    timed: list[tuple[mltrainer.Fit, float]] = []
    for strategies in ([], [{"name": "progressive", "shares": [0.5, 0.75], "epochs": 8}]):
        begun = time.process_time()
        found = fit("large_many", model, 12, seed, held="large_held", batch_size=32, strategies=strategies, **rate)
        timed.append((found, time.process_time() - begun))
    (plain, plain_s), (grown, grown_s) = timed
    return {"without": accuracy(plain), "with": accuracy(grown), "seconds without": plain_s, "seconds with": grown_s}


def quantization(seed: int) -> Measured:
    """Return the accuracies in 8 bits of a plain training and of one with rounded numbers."""
    divide(SEEN + seed, many=900)
    draws = np.random.default_rng(SEEN + seed)
    for name in ("many", "held"):
        rows = np.load(f"{name}.npz")
        write(name, np.where(draws.random(rows["x"].shape) < 0.01, BRIGHT, np.float32(1.0)) * rows["x"], rows["y"])
    model = {"name": "cnn"}
    first = fit("many", model, 12, SEEN + seed)
    safetensors.torch.save_file({n: t.contiguous() for n, t in first.model.state_dict().items()}, Path("first.safetensors"))
    begun: dict[str, Any] = {"start": {"weights": "first.safetensors"}, "optimizer": {"name": "adamw", "lr": 3e-4}}
    plain = fit("many", model, 6, SEEN + seed, **begun)
    rounded = fit("many", model, 6, SEEN + seed, strategies=[{"name": "quantization"}], **begun)
    return {
        "fp32 without": accuracy(plain),
        "fp32 with": accuracy(rounded),
        "without": in_8_bits(plain.model),
        "with": in_8_bits(rounded.model),
    }


def in_8_bits(model: nn.Module) -> float:
    """Return the share of the held-out digits that a static export of a model tells, calibrated by 128 training digits."""
    many, held = np.load("many.npz"), np.load("held.npz")
    x, rows = torch.from_numpy(held["x"])[:, None], (torch.from_numpy(many["x"])[:128, None],)
    found: dict[str, float] = {}

    def answer(call: Call) -> dict[str, Any]:
        found["accuracy"] = float((call((x,))[0].argmax(1).numpy() == held["y"]).mean())
        return {}

    calibration = CalibrationRows(samples=128, of=900, places_sha256="0" * 64)
    judge = Quantization(lambda: ([rows], calibration), answer)
    export(model.eval(), (x[:3],), [STATIC], Path("export"), 1e-9, (x,), quantization=judge)
    return found["accuracy"]


def distillation(seed: int) -> Measured:
    """Return the accuracies of a student alone and with its teacher."""
    found = bench_distillation.measure(200, 64, 80, seed, same_rows=False)
    return {"teacher": found["teacher"], "without": found["alone"], "with": found["taught"]}


FEATURES, SHARED, TARGETS, NOISE = 10, 3, 6, 0.5
FEW, HELD = 100, 500


def mixtures(seed: int, bends: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows [rows, features] and noisy quantities [rows, targets]: mixtures of bends; of as many bends, each its own."""
    draws = np.random.default_rng(SEEN + seed)
    x = draws.normal(size=(FEW + HELD, FEATURES))
    bent = np.tanh(x @ draws.normal(0, 1 / np.sqrt(1.5), size=(FEATURES, bends)))
    y = bent if bends == TARGETS else bent @ draws.normal(size=(bends, TARGETS))
    return x, y / y.std(0) + draws.normal(0, NOISE, y.shape)


def fit_table(kind: str, x: np.ndarray, y: np.ndarray, names: list[str], seed: int, **keys: Any) -> Measured:
    """Return the metrics of a perceptron that learned some quantities of the first rows, on the others."""
    header = ",".join([*(f"x{nr}" for nr in range(FEATURES)), *names])
    for name, rows in (("few", slice(FEW)), ("held", slice(FEW, None))):
        np.savetxt(f"{name}.csv", np.hstack([x[rows], y[rows]]), "%.6f", ",", header=header, comments="")
    key: dict[str, Any] = {"targets": names} if kind == "tabular_multitask" else {"target": names[0]}
    data = {"source": "few.csv", "validation": "held.csv", **key}
    return few_rows({"kind": kind}, seed, data=data, model={"name": "mlp", "hidden": [32, 32]}, **keys)


def few_rows(task: Any, seed: int, **keys: Any) -> Measured:
    """Return the metrics of a training on the first rows, on the others."""
    found = mltrainer.fit(
        task,
        split={"validation": 0.2, "test": 0.0},
        metric={"name": "loss", "mode": "min"},
        epochs=80,
        batch_size=16,
        seed=seed,
        early_stopping=None,
        evaluate={"every_n_epochs": 80},
        signals=False,
        tell=lambda _event: None,
        **keys,
    )
    return found.metrics


def multitask(seed: int) -> Measured:
    """Return the mean r2 of networks of one target each and of one for all, each one's gain, and both means of unrelated ones."""
    alone, together = both_ways(seed, SHARED)
    gained = {f"gain of y{nr}": gain for nr, gain in enumerate((together - alone).tolist())}
    apart, joined = both_ways(seed, TARGETS)
    of_unrelated = {"unrelated without": float(apart.mean()), "unrelated with": float(joined.mean())}
    return {"without": float(alone.mean()), "with": float(together.mean()), **gained, **of_unrelated}


def both_ways(seed: int, bends: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the r2 of each target that one network learned alone, and that one learned with the others."""
    x, y = mixtures(seed, bends)
    names = [f"y{nr}" for nr in range(TARGETS)]
    together = fit_table("tabular_multitask", x, y, names, seed)
    alone = [fit_table("tabular_regression", x, y[:, [nr]], [name], seed)["r2"] for nr, name in enumerate(names)]
    return np.array(alone), np.array([together[f"r2_{name}"] for name in names])


class Units(mltrainer.Task):
    """The mixtures, half of them in a unit in which they are ten times as large.

    Args:
        seed: Of their draws.
    """

    terms = tuple(f"y{nr}" for nr in range(TARGETS))

    def __init__(self, seed: int) -> None:
        x, y = mixtures(seed, SHARED)
        scaled = y * np.where(np.arange(TARGETS) < TARGETS // 2, 1, 10)
        self._rows = torch.tensor(x, dtype=torch.float32), torch.tensor(scaled, dtype=torch.float32)

    def dataset(self, split: str) -> tuple[Tensor, ...] | None:
        rows = {"train": slice(FEW), "validation": slice(FEW, None)}.get(split)
        return None if rows is None else tuple(part[rows] for part in self._rows)

    def model(self) -> nn.Module:
        body = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        return nn.Sequential(body, nn.Linear(32, TARGETS))

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.terms, (outputs - targets).square().mean(0), strict=True))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        errors = (outputs - targets).square().mean(0) / targets.var(0, correction=0)
        return {"r2": float(1 - errors.mean())}


def balancing(seed: int) -> Measured:
    """Return the mean r2 of quantities in unlike units by equal weights and by log variances, and gains of a built-in task."""
    ways = {way: [{"name": "balancing", "method": way}] for way in ("uncertainty", "gradients")}
    plain, weighed = (few_rows(Units(seed), seed, strategies=chosen)["r2"] for chosen in ([], ways["uncertainty"]))
    x, y = mixtures(seed, SHARED)
    names = [f"y{nr}" for nr in range(TARGETS)]

    def built_in(strategies: list[dict[str, Any]]) -> float:
        found = fit_table("tabular_multitask", x, y, names, seed, strategies=strategies)
        return float(np.mean([found[f"r2_{name}"] for name in names]))

    equal = built_in([])
    return {"without": plain, "with": weighed, **{f"built-in, {way}": built_in(one) - equal for way, one in ways.items()}}


STRATEGIES: dict[str, Callable[[int], Measured]] = {
    "lora": lora,
    "lora_4bits": partial(few_bits, 4),
    "lora_8bits": partial(few_bits, 8),
    "adversarial": adversarial,
    "curriculum": curriculum,
    "contrastive": contrastive,
    "masked": masked,
    "progressive": progressive,
    "quantization": quantization,
    "distillation": distillation,
    "multitask": multitask,
    "balancing": balancing,
}


def measured(name: str, seed: int) -> Measured:
    """Return what a strategy gave with a seed, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = STRATEGIES[name](seed)
        os.chdir("/")
    return found


def main() -> None:
    """Print for each strategy the means with their 95 % intervals over the seeds, as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STRATEGIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    asked = parser.parse_args()
    print("| strategy | without | with | difference, seed by seed | beside |\n|---|---|---|---|---|")
    for name in asked.names or STRATEGIES:
        begun = time.perf_counter()
        rows = [measured(name, seed) for seed in asked.seeds]
        columns = {key: [row[key] for row in rows] for key in rows[0]}
        gained = [one - other for one, other in zip(columns["with"], columns["without"], strict=True)]
        shown = [bench_distillation.interval(columns[key]) for key in ("without", "with")]
        others = [f"{key} {np.mean(values):.4f}" for key, values in columns.items() if key not in ("with", "without")]
        cells = [name, *shown, bench_distillation.interval(gained), "; ".join(others)]
        print(f"| {' | '.join(cells)} |", flush=True)
        print(f"{name}: {len(rows)} seeds in {time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
