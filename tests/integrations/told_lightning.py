"""A program that trains by `lightning.Trainer`, and prints what the module itself saw: `told_lightning.py CASE ...`."""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mltrainer.integrations.reporting_lightning import TellingCallback
from tests.integrations.hearing import heard_in

warnings.simplefilter("ignore")  # advice on what this small training does not use


class Net(lightning.LightningModule):
    """A module with dropout, which notes its losses and what its validations measured."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        self.losses: list[float] = []
        self.measured: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(float(loss))
        self.log("train_loss", loss)
        self.log("train_epoch", loss, on_step=False, on_epoch=True)
        return {"loss": loss}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        found = (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
        if not self.trainer.sanity_checking:
            self.measured.append(float(found))
        self.log_dict({"val_acc": found, "val/constant": 1.0})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Manual(Net):
    """A module that makes two steps of each batch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        found = {}
        for _ in range(2):
            found = super().training_step(batch, batch_idx)
            self.optimizers().zero_grad()
            self.manual_backward(found["loss"])
            self.optimizers().step()
        return found


def main(case: str) -> dict[str, Any]:
    """Train, and return what came of it."""
    lightning.seed_everything(3)
    rows = TensorDataset(torch.randn(20, 4), torch.arange(20) % 2)
    module = Manual() if case == "manual" else Net()
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    accumulated = {} if case == "manual" else {"accumulate_grad_batches": 2}
    callbacks = [] if case == "bare" else [TellingCallback()]
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", callbacks=callbacks, **quiet, **accumulated)
    trainer.fit(module, DataLoader(rows, batch_size=4, shuffle=True), DataLoader(rows, batch_size=20))
    weights = hashlib.sha256(b"".join(value.numpy().tobytes() for value in module.state_dict().values())).hexdigest()
    return {"weights": weights, "losses": module.losses, "measured": module.measured}


if __name__ == "__main__":
    print(json.dumps({case: main(case) for case in heard_in(Path.cwd(), sys.argv[1:])}))
