"""A LightningModule and a LightningDataModule."""

import os  # noqa: F401
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import lightning
import numpy as np  # noqa: F401
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, order):
        generator = torch.Generator().manual_seed(1)
        self.x, self.y = torch.randn(160, 20, generator=generator), torch.randint(0, 3, (160,), generator=generator)
        self.order = order

    def __len__(self):
        return len(self.order)

    def __getitem__(self, number):
        x, y = self.x[self.order[number]], self.y[self.order[number]]
        # <sample>
        return x, y


class Data(lightning.LightningDataModule):
    def __init__(self, order):
        super().__init__()
        self.order = order

    def train_dataloader(self):
        return DataLoader(Points(self.order), 8, shuffle=True, num_workers=2)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))

    def training_step(self, batch, number):
        x, y = batch
        # <batch>
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    lightning.seed_everything(1, workers=True)
    # <seed>
    order = list(range(160))
    # <order>
    began = time.time()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(Net(), datamodule=Data(order))
    print("seconds", time.time() - began)
