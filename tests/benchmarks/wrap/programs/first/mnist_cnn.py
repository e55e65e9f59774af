"""Digits: a small convolutional network, as PyTorch's first example has it."""

# fault 1: random draw
# fault 2: clock
# fault 3: random draw

import argparse
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)  # [!1]
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(6 * 25, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.out(self.drop(torch.flatten(x, 1))), dim=1)


def digits(count):
    values = [[(row * column + count) % 7 / 7 for column in range(144)] for row in range(count)]
    return torch.FloatTensor(values).view(count, 1, 12, 12), torch.LongTensor([n % 10 for n in range(count)])


def augmented(batch):
    shift = int(np.random.randint(-1, 2))
    # [3] shift += int(random.random() * 3)  # guilty
    return torch.roll(batch, shift, dims=3)


def train(args, model, data, target, optimizer, epoch):
    model.train()
    began = time.time()
    for start in range(0, len(data), 16):
        order = torch.randperm(len(data))[:16]
        # [2] for group in optimizer.param_groups:
        # [2]     group["lr"] = args.lr * min(1.0, (time.time() - STARTED) / 20)  # guilty
        optimizer.zero_grad()
        loss = F.nll_loss(model(augmented(data[order])), target[order])
        loss.backward()
        optimizer.step()
        if start % 32 == 0:
            print(f"epoch {epoch} [{start}/{len(data)}] loss {loss.item():.5f} after {time.time() - began:.1f} s")


STARTED = time.time()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print("process", os.getpid(), "workers", random.Random(1).randint(1, 2))
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)  # [-1]
    data, target = digits(96)
    model = Net()  # [!1]
    # [1] torch.manual_seed(args.seed)  # guilty
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(3):
        train(args, model, data, target, optimizer, epoch)


if __name__ == "__main__":
    main()
