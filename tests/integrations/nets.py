"""A Lightning module with dropout and batch norm, over digits that are altered by draws, in the file of a small project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NET = '''
import random

import lightning as L
import numpy as np
import torch
import torchmetrics
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset


class Moved(Dataset):
    """Digits, those of training made noisy by draws from three generators."""

    def __init__(self, first, last, noise):
        x, y = load_digits(return_X_y=True)
        self.x, self.y, self.noise = x[first:last].astype(np.float32) / 16, y[first:last], noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = torch.tensor(self.x[i] + self.noise * (np.random.normal() + random.gauss(0, 1)), dtype=torch.float32)
        return x + self.noise * torch.randn(64), int(self.y[i])


class Digits(L.LightningDataModule):
    def __init__(self, noise=0.1, batch_size=16):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage):
        self.parts = Moved(0, 100, self.hparams.noise), Moved(100, 160, 0.0), Moved(160, 200, 0.0)

    def train_dataloader(self):
        return DataLoader(self.parts[0], batch_size=self.hparams.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.parts[1], batch_size=25)

    def test_dataloader(self):
        return DataLoader(self.parts[2], batch_size=25)


class Net(L.LightningModule):
    def __init__(self, schedule="one_cycle", dropout=0.2, norm=True):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32) if norm else nn.Identity(), nn.ReLU(),
                                 nn.Dropout(dropout), nn.Linear(32, 10))
        self.f1 = torchmetrics.F1Score("multiclass", num_classes=10, average="macro")
        self.train_f1 = torchmetrics.F1Score("multiclass", num_classes=10, average="macro")

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.train_f1(logits, y)
        self.log("train/f1", self.train_f1)
        weight = 1 + 0.1 * self.current_epoch + 0.01 * self.global_step
        return {"loss": weight * nn.functional.cross_entropy(logits, y)}

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.f1.update(logits, y)
        self.log_dict({"val/f1": self.f1, "val/loss": nn.functional.cross_entropy(logits, y)}, prog_bar=True)

    def configure_optimizers(self):
        groups = [{"params": self.net[0].parameters(), "lr": 0.02}, {"params": self.net[1:].parameters()}]
        optimizer = torch.optim.SGD(groups, lr=0.05, momentum=0.9)
        kind = self.hparams.schedule
        if kind == "none":
            return optimizer
        if kind == "one_cycle":
            total = self.trainer.estimated_stepping_batches
            scheduler = lr_scheduler.OneCycleLR(optimizer, [0.02, 0.05], total_steps=total)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
        if kind == "step":
            return [optimizer], [lr_scheduler.StepLR(optimizer, 1, 0.5)]
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)  # a loss that falls
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val/loss"}


class Collected(Net):
    """Its metrics are a collection of torchmetrics, which share what they add up."""

    def __init__(self):
        super().__init__()
        kinds = {"f1": torchmetrics.F1Score, "recall": torchmetrics.Recall, "precision": torchmetrics.Precision}
        made = {name: kind("multiclass", num_classes=10, average="macro") for name, kind in kinds.items()}
        self.many = torchmetrics.MetricCollection(made, prefix="val/")

    def validation_step(self, batch, batch_idx):
        self.many.update(self(batch[0]), batch[1])
        self.log_dict(self.many)


class Summed(Net):
    """Its metric is logged at the end of an evaluation, as are the best so far and a mean of its own lists."""

    def __init__(self):
        super().__init__()
        self.best = torchmetrics.MaxMetric()
        self.gathered = []

    def on_train_start(self):
        self.f1.reset()
        self.best.reset()

    def on_train_epoch_end(self):
        pass

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        self.f1.update(logits, batch[1])
        self.gathered.append(nn.functional.cross_entropy(logits, batch[1], reduction="sum"))

    def on_validation_epoch_end(self):
        self.best(self.f1.compute())
        self.log("val/f1", self.f1.compute(), prog_bar=True)
        self.log("val/f1_best", self.best.compute(), sync_dist=True)
        self.log("val/nll", torch.stack(self.gathered).sum().item() / 60)
        self.gathered.clear()


class Manual(Net):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Two(Net):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters()), torch.optim.SGD(self.parameters())]


class Hooked(Net):
    def on_train_epoch_start(self):
        self.net[3].p = 0.5

    def on_train_start(self):
        """Nothing."""

    def optimizer_step(self, *args, **kwargs):
        pass


class Counting(Net):
    seen = 0

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.seen += 1

    @property
    def beta(self):
        return min(1.0, self.seen / 1000)


class Naming(Net):
    seen = 0

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.seen += 1

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx)["loss"] * getattr(self, "seen")


class Doubling(Net):
    def on_fit_start(self):
        self.net.double()


class Skipping(Net):
    def training_step(self, batch, batch_idx):
        return None


class Maximum(Net):
    def validation_step(self, batch, batch_idx):
        self.log("most", batch[0].max(), reduce_fx="max")


class Blind(Net):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {"optimizer": optimizer, "lr_scheduler": lr_scheduler.ReduceLROnPlateau(optimizer)}


class Wondering(Net):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {"optimizer": optimizer, "lr_scheduler": lr_scheduler.ReduceLROnPlateau(optimizer), "monitor": "val/accuracy"}


class Asking(Net):
    def training_step(self, batch, batch_idx):
        return self.trainer.strategy.backward(batch)


class Weighted(Digits):
    def train_dataloader(self):
        sampler = torch.utils.data.WeightedRandomSampler([1.0] * 100, 100)
        return DataLoader(self.parts[0], batch_size=8, sampler=sampler)


class Repeated(Digits):
    def train_dataloader(self):
        sampler = torch.utils.data.RandomSampler(self.parts[0], replacement=True, num_samples=100)
        return DataLoader(self.parts[0], batch_size=8, sampler=sampler)


class Some(Digits):
    def train_dataloader(self):
        return DataLoader(self.parts[0], batch_size=8, sampler=torch.utils.data.SequentialSampler(range(10)))


class Several(Digits):
    def val_dataloader(self):
        return [super().val_dataloader(), super().val_dataloader()]


class Moving(Digits):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch[0] * 2, batch[1]


class NotLightning:
    pass
'''
TASK: dict[str, Any] = {"use": "mltrainer.integrations.lightning:Lightning"}


def make(root: Path) -> Path:
    """Write module and data module into a folder, under the name of the module that `digits_runs` imports anew."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "digits_task.py").write_text(NET)
    return root


def keys(module: str = "Net", data: str = "Digits", **options: Any) -> dict[str, Any]:
    """Return the config's keys of a training of a module."""
    given = {"module": f"digits_task:{module}", "data": f"digits_task:{data}", "module_options": options}
    return {
        "task": {**TASK, "options": given},
        "metric": {"name": "val_f1", "mode": "max"},
        "optimizer": {"name": "own"},
        "schedule": {"name": "own"},
        "clip": None,
        "batch_size": 16,
        "accumulate": 1,
    }
