"""Two members of an ensemble, each trained in a process that is forked off."""

import multiprocessing
import os  # noqa: F401
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from torch import nn


def member(number, order):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    np.random.seed(number)
    # <seed>
    inputs, targets = torch.randn(128, 20), torch.randn(128, 1)
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    first, path = 0, f"member-{number}.pt"
    if "--resume" in sys.argv:
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        # <resume>
        torch.set_rng_state(saved["rng"])
        first = saved["step"]
    for step in range(first, 25):
        chosen = [order[(step * 8 + k) % len(order)] for k in range(8)]
        x = inputs[chosen]
        # <sample>
        # <batch>
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), targets[chosen]).backward()
        optimizer.step()
        if step % 5 == 4:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
            torch.save({**state, "step": step + 1}, path)


if __name__ == "__main__":
    started = time.time()
    order = list(range(128))
    # <order>
    context = multiprocessing.get_context("fork")
    members = [context.Process(target=member, args=(number, order)) for number in range(2)]
    for process in members:
        process.start()
    for process in members:
        process.join()
    print("seconds", time.time() - started)
    sys.exit(max(process.exitcode for process in members))
