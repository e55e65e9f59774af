"""A program that trains by `transformers.Trainer`, and prints what the trainer itself knows: `told_transformers.py CASE ...`."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

from mltrainer.integrations.reporting_transformers import TellingCallback
from tests.integrations.hearing import heard_in

warnings.simplefilter("ignore")  # advice on what this small training does not use
ARGUMENTS: dict[str, Any] = {
    "output_dir": "out",
    "use_cpu": True,
    "num_train_epochs": 2,
    "per_device_train_batch_size": 4,
    "eval_strategy": "epoch",
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "logging_steps": 1,
}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"gradient_accumulation_steps": 2},
    "again": {"gradient_accumulation_steps": 2},
    "bare": {"gradient_accumulation_steps": 2},
    "other order": {"gradient_accumulation_steps": 2, "data_seed": 7},
    "own module": {"gradient_accumulation_steps": 2},
    "validated each step": {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 1},
    "smoothing": {"label_smoothing_factor": 0.1},
    "own loss": {},
}


class Own(nn.Module):
    """A module that takes no arguments for its loss: the trainer takes the mean over accumulated batches."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Dropout(0.3), nn.Linear(48, 2))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.net(input_ids)
        return nn.functional.cross_entropy(logits, labels), logits


class OwnLoss(Trainer):
    """A trainer that leaves the model's loss where it is."""

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **others: Any) -> Any:
        outputs = model(**inputs)
        loss = nn.functional.multi_margin_loss(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss


def model(case: str) -> nn.Module:
    """Return a small model with drawn weights."""
    if case == "own module":
        return Own()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(vocab_size=20, max_position_embeddings=8, **sizes))


def accuracy(given: Any) -> dict[str, float]:
    """Return what `compute_metrics` does."""
    return {"accuracy": float((given.predictions.argmax(-1) == given.label_ids).mean())}


def main(case: str) -> dict[str, Any]:
    """Train, and return what came of it."""
    set_seed(3)
    rows = [{"input_ids": torch.randint(0, 20, (6,)), "labels": number % 2} for number in range(22)]
    arguments = TrainingArguments(**{**ARGUMENTS, **CASES[case]})
    net = model(case)
    sets = {"train_dataset": rows, "eval_dataset": rows[:6]}
    trainer = (OwnLoss if case == "own loss" else Trainer)(net, arguments, **sets, compute_metrics=accuracy)
    if case != "bare":
        trainer.add_callback(TellingCallback())
    trainer.train()
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in net.state_dict().values())).hexdigest()
    return {"weights": weights, "history": trainer.state.log_history}


if __name__ == "__main__":
    print(json.dumps({case: main(case) for case in heard_in(Path.cwd(), sys.argv[1:])}))
