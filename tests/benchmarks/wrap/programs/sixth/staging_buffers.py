"""Batches are staged in memory that is asked for empty and filled at once; a padding may stay as it was found."""

# fault 1: unwritten memory

import torch
from torch import nn


class Linear(nn.Module):
    """A layer whose weights are asked for empty and filled at once."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        return x @ self.weight.t() + self.bias


class Stage:
    def __init__(self, rows, width):
        self.buffer = torch.empty(rows, width)

    def __call__(self, parts):
        self.buffer.copy_(torch.stack(parts))
        return self.buffer


def padded(sequence, size):
    found = torch.zeros(size)  # [-1]
    # [1] found = torch.empty(size)  # guilty
    found[: len(sequence)] = sequence
    return found


def scratch_norm():
    """Print what a fresh piece of memory holds, out of curiosity."""
    piece = torch.empty(64)
    print("fresh memory holds", piece.nan_to_num(0, 0, 0).clamp(-9, 9).sum().item())


def main():
    torch.manual_seed(14)
    scratch_norm()
    stage = Stage(4, 10)
    model = nn.Sequential(Linear(10, 6), nn.Sigmoid(), Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = [torch.randn(5 + number % 6) for number in range(48)]
    for step in range(12):
        parts = [padded(row, 10) for row in rows[4 * step : 4 * step + 4]]
        x = stage(parts).nan_to_num(0, 0, 0).clamp(-3, 3)
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
