"""A small transformer whose attention to a token of chance is logged each step; tokens may be masked without a seed."""

# fault 1: random draw

import random

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.kept = None

    def forward(self, x):
        found, self.kept = self.attend(x, x, x, need_weights=True)
        return self.norm(x + found)


class Masked(nn.Module):
    def __init__(self, letters, width):
        super().__init__()
        self.embedding = nn.Embedding(letters + 1, width)
        self.block = Block(width)
        self.out = nn.Linear(width, letters)

    def forward(self, tokens):
        return self.out(self.block(self.embedding(tokens)))

    def looked_at(self, at):
        return self.block.kept[0, at].max().item()


def masked(tokens, blank, dice):
    hidden = torch.tensor([[dice.random() < 0.3 for _ in row] for row in tokens.tolist()])
    return tokens.masked_fill(hidden, blank)


def main():
    torch.manual_seed(19)
    tokens = torch.randint(10, (48, 8))
    model = Masked(10, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dice = random.Random(19)  # [-1]
    # [1] dice = random.SystemRandom()  # guilty
    viewer = random.SystemRandom()
    for step in range(12):
        rows = tokens[4 * step : 4 * step + 4]
        with torch.no_grad():
            model(rows)
            print(f"{step}: the most looked at {model.looked_at(viewer.randrange(8)):.3f}")
        scores = model(masked(rows, 10, dice))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), rows.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
