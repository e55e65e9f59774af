"""A loop written by hand, a loader with worker processes, dropout, a schedule, a checkpoint at each epoch's end."""

import os  # noqa: F401
import sys
import threading  # noqa: F401
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, COUNT = 3, 160


class Points(Dataset):
    def __init__(self, order):
        generator = torch.Generator().manual_seed(1)
        self.x, self.y = torch.randn(COUNT, 20, generator=generator), torch.randint(0, 3, (COUNT,), generator=generator)
        self.order = order

    def __len__(self):
        return len(self.order)

    def __getitem__(self, number):
        index = self.order[number]
        x, y = self.x[index], self.y[index]
        # <sample>
        return x, y


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    # <seed>
    order = list(range(COUNT))
    # <order>
    data = Points(order)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    first = 0
    if "--resume" in sys.argv:
        saved = torch.load("checkpoint.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        # <resume>
        torch.set_rng_state(saved["rng"])
        first = saved["epoch"]
    for epoch in range(first, EPOCHS):
        began = time.time()
        loader = DataLoader(data, 16, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(epoch))
        for x, y in loader:
            # <batch>
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        schedule.step()
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        torch.save({**saved, "rng": torch.get_rng_state(), "epoch": epoch + 1}, "checkpoint.pt")
        print(f"epoch {epoch}: loss {loss.item():.4f} in {time.time() - began:.2f} s")


if __name__ == "__main__":
    main()
