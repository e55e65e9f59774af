"""A character model that now and then, by chance, writes a sample of its own; its hidden state begins with noise."""

# fault 1: random draw

import random

import torch
from torch import nn

TEXT = "in the beginning there was a small model that learned to write small words " * 4
LETTERS = sorted(set(TEXT))


class Writer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(len(LETTERS), width)
        self.cell = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, letters, state=None):
        found, state = self.cell(self.embedding(letters), state)
        return self.out(found), state

    @torch.no_grad()
    def sample(self, length, dice):
        letter, state, said = torch.tensor([[0]]), None, ""
        for _ in range(length):
            scores, state = self(letter, state)
            best = scores[0, -1].topk(3).indices
            letter = best[dice.randrange(3)].view(1, 1)
            said += LETTERS[letter.item()]
        return said


def first_state(rows, width):
    return torch.zeros(1, rows, width)  # [-1]
    # [1] own = torch.Generator()
    # [1] own.seed()  # guilty
    # [1] return 0.1 * torch.randn(1, rows, width, generator=own)  # guilty


def main():
    torch.manual_seed(6)
    dice = random.SystemRandom()
    numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    model = Writer()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    for step in range(12):
        if dice.random() < 0.5:
            print(f"{step}: {model.sample(6, dice)!r}")
        rows = torch.stack([numbers[at : at + 17] for at in range(step * 4, step * 4 + 24, 6)])
        scores, _ = model(rows[:, :-1], first_state(len(rows), model.width))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
