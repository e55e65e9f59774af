"""A program that trains by itself, as its user wrote it, and a project whose task it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mltrainer.workspace import Project

PROGRAM = """import argparse, json, os, time
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--resume", action="store_true")
asked = parser.parse_args()
torch.manual_seed(asked.seed)


def points(name):
    rows = torch.tensor([[float(cell) for cell in line.split(",")] for line in open(name)])
    return rows[:, :2], rows[:, 2].long()


x, y = points("train.csv")
model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=asked.lr, momentum=0.9)
first = 0
if asked.resume:
    saved = torch.load("checkpoint.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    first = saved["epoch"]


def measured(x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


for epoch in range(first, asked.epochs):
    for rows in torch.randperm(len(x)).split(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    found = {"epoch": epoch + 1, "train_accuracy": measured(x, y), "accuracy": measured(*points("validation.csv"))}
    with open("metrics.jsonl", "a" if epoch else "w") as file:
        file.write(json.dumps(found) + "\\n")
    held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
    torch.save({**held, "rng": torch.get_rng_state()}, "checkpoint.pt")
torch.save(model.state_dict(), "model.pt")
"""
TASK: dict[str, Any] = {
    "script": "python train.py --seed {seed}",
    "arguments": {"lr": 0.1, "epochs": 4},
    "metrics": "metrics.jsonl",
    "outputs": ["model.pt"],
}


def write_program(folder: Path, text: str = PROGRAM, acceptance: float = 0.8, **task: Any) -> Project:
    """Write a project whose task is a program.

    Args:
        folder: Its folder.
        text: The program.
        acceptance: The accuracy that is required.
        task: Keys of the task that differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(text)
    for name, count in (("train.csv", 120), ("validation.csv", 60)):
        numbers = ((i, i * 37 % 101 / 50 - 1, i * 53 % 97 / 48 - 1) for i in range(count))
        (folder / name).write_text("".join(f"{a:.3f},{b:.3f},{int(a + b > 0)}\n" for _, a, b in numbers))
    values = {
        "name": "program",
        "task": {**TASK, **task},
        "metric": {"name": "accuracy", "mode": "max"},
        "acceptance": {"accuracy": f">= {acceptance}"},
        "budget": {"minutes": 10},
    }
    (folder / "mltrainer.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return Project(folder)
