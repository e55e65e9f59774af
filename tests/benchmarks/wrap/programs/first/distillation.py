"""A small network learns what a large one says; what that says is computed by processes beforehand."""

# fault 1: threads
# fault 2: clock, random draw
# fault 3: random draw

import multiprocessing
import os
import subprocess
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 16


def teach(part, rows, weights, answers):
    time.sleep(0.001)
    print(f"part {part} by process {os.getpid()} of {os.getppid()}")
    answers.put((part, np.tanh(rows @ weights)))


def taught(rows, weights):
    """What the teacher says on each row; one process for each part."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    parts = np.array_split(rows, 6)
    workers = [context.Process(target=teach, args=(n, part, weights, answers)) for n, part in enumerate(parts)]  # [!1]
    for worker in workers:
        worker.start()  # [!1]
    found = [answers.get() for _ in parts]  # [!1]
    for worker in workers:
        worker.join()
    found.sort(key=lambda answer: answer[0])  # [-1]
    return torch.from_numpy(np.concatenate([answer for _, answer in found])).float()


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4))  # [!3]

    def forward(self, x):
        return self.body(x)


def kernel():
    return int(subprocess.run(["date", "+%N"], capture_output=True, text=True, check=True).stdout)  # [!2]


def main():
    torch.manual_seed(8)  # [-3]
    rng = np.random.default_rng(8)
    rows, weights = rng.standard_normal((96, 8)), rng.standard_normal((8, 4))
    targets, x = taught(rows, weights), torch.from_numpy(rows).float()
    print("begun at", kernel())
    temperature = 2.0
    # [2] temperature = 2.0 + kernel() % 100 / 100  # guilty
    student = Student()  # [!3]
    # [3] torch.manual_seed(8)  # guilty
    optimizer = torch.optim.Adam(student.parameters(), lr=0.01)
    for step in range(STEPS):
        chosen = torch.randperm(96)[:16]
        optimizer.zero_grad()
        said = F.log_softmax(student(x[chosen]) / temperature, dim=1)
        loss = F.kl_div(said, F.softmax(targets[chosen] / temperature, dim=1), reduction="batchmean") * temperature**2
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(f"step {step}: {loss.item():.5f} {time.ctime()}")


if __name__ == "__main__":
    main()
