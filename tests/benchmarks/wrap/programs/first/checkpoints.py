"""Training in rounds: each goes on from the checkpoint that the one before left."""

# fault 1: folder, identity
# fault 2: listing order
# fault 3: threads

import copy
import os
import tempfile
import threading
import time
import zlib

import torch
from torch import nn

ROUNDS, STEPS = 3, 6
run = os.path.join(tempfile.gettempdir(), f"run-{os.getpid()}")
os.makedirs(run, exist_ok=True)
seed = 17
# [1] seed = zlib.crc32(run.encode()) % 10007  # guilty
torch.manual_seed(seed)
print(f"checkpoints in {run}, digest {zlib.crc32(run.encode()):08x}")


def save(state, path):
    """Write a checkpoint, slowly, as over a network."""
    parts = {}
    for name, value in state.items():
        time.sleep(0.001)
        parts[name] = value.clone()
    torch.save(parts, path)


def save_in_background(model, path):
    state = copy.deepcopy(model.state_dict())  # [-3]
    # [3] state = model.state_dict()  # guilty
    thread = threading.Thread(target=save, args=(state, path))  # [!3]
    thread.start()  # [!3]
    return thread


def latest(folder):
    names = sorted(os.listdir(folder))  # [-2]
    # [2] names = [name for name in os.listdir(folder) if name.endswith(".pt")]  # guilty
    return os.path.join(folder, names[-1])


model = nn.Sequential(nn.Linear(9, 18), nn.GELU(), nn.Linear(18, 18), nn.GELU(), nn.Linear(18, 2))
x, y = torch.randn(60, 9), torch.randn(60, 2)
for turn in range(ROUNDS):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    thread = None
    for step in range(STEPS):
        chosen = torch.randint(0, 60, (12,))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        if step == 2:
            thread = save_in_background(model, os.path.join(run, f"round-{turn}.pt"))
    thread.join()
    began = time.time()
    model.load_state_dict(torch.load(latest(run)))
    print(f"round {turn}: loss {loss.item():.4f}, gone on from {latest(run)} in {1000 * (time.time() - began):.1f} ms")
