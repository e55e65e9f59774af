"""A module as templates of Lightning projects have it: net and optimizer are given, hooks measure, setup compiles."""

from __future__ import annotations

TEMPLATED = '''
import functools

import lightning as L
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader


class Dense(nn.Module):
    """A hidden layer."""

    def __init__(self, width=8, act=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), act or nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)


class Classifier(L.LightningModule):
    """Trains the net that it is given by the optimizer that it is given."""

    def __init__(self, net, optimizer, scheduler=None, compile=False):
        super().__init__()
        self.save_hyperparameters(logger=False, ignore=["net"])
        self.net = net
        self.criterion = nn.CrossEntropyLoss()
        self.train_acc, self.val_acc, self.test_acc = (torchmetrics.Accuracy("multiclass", num_classes=10) for _ in range(3))
        self.train_loss, self.val_loss = torchmetrics.MeanMetric(), torchmetrics.MeanMetric()
        self.val_acc_best = torchmetrics.MaxMetric()

    def forward(self, x):
        return self.net(x)

    def on_train_start(self):
        """The check before training measures, too."""
        self.val_loss.reset()
        self.val_acc.reset()
        self.val_acc_best.reset()

    def model_step(self, batch):
        x, y = batch
        logits = self.forward(x)
        return self.criterion(logits, y), torch.argmax(logits, dim=1), y

    def training_step(self, batch, batch_idx):
        loss, preds, targets = self.model_step(batch)
        self.train_loss(loss)
        self.train_acc(preds, targets)
        self.log("train/acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        """Nothing is done."""
        pass

    def validation_step(self, batch, batch_idx):
        loss, preds, targets = self.model_step(batch)
        self.val_loss(loss)
        self.val_acc(preds, targets)
        self.log("val/loss", self.val_loss, on_epoch=True)
        self.log("val/acc", self.val_acc, on_epoch=True)

    def on_validation_epoch_end(self):
        acc = self.val_acc.compute()
        self.val_acc_best(acc)
        self.log("val/acc_best", self.val_acc_best.compute(), sync_dist=True, prog_bar=True)

    def test_step(self, batch, batch_idx):
        pass

    def on_test_epoch_end(self):
        pass

    def setup(self, stage):
        if self.hparams.compile and stage == "fit":
            self.net = torch.compile(self.net)

    def configure_optimizers(self):
        optimizer = self.hparams.optimizer(params=self.trainer.model.parameters())
        if self.hparams.scheduler is None:
            return {"optimizer": optimizer}
        scheduler = self.hparams.scheduler(optimizer=optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val/loss", "interval": "epoch"}}


class Fixed(Classifier):
    """Makes the same itself."""

    def __init__(self):
        super().__init__(Dense(16, nn.Tanh()), functools.partial(torch.optim.Adam, lr=0.01))


def loaders(batch=16):
    return DataLoader(Moved(0, 100, 0.1), batch_size=batch, shuffle=True), DataLoader(Moved(100, 160, 0.0), batch_size=25)


def no_loaders():
    return DataLoader(Moved(0, 100, 0.1))


def make_dense():
    return Dense()
'''
