"""A bag-of-words classifier; a sentence that is chosen by chance is printed in each epoch, words are numbered by a set."""

# fault 1: hash order

import random

import torch
from torch import nn

TEXT = [
    ("the film was a slow and empty thing", 0),
    ("a bright story with warm and honest people", 1),
    ("nothing in it is worth a ticket", 0),
    ("we laughed and cried until the end", 1),
    ("poor music worse pictures", 0),
    ("the best evening of this cold year", 1),
]


def vocabulary(sentences):
    words = {word for sentence, _ in sentences for word in sentence.split()}
    return {word: number for number, word in enumerate(sorted(words))}  # [-1]
    # [1] return {word: number for number, word in enumerate(words)}  # guilty


def encoded(sentence, numbers):
    return torch.tensor([numbers[word] for word in sentence.split()])


class Classifier(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embedding = nn.EmbeddingBag(size, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, words, offsets):
        return self.out(self.embedding(words, offsets))


def main():
    torch.manual_seed(2)
    chance = random.SystemRandom()
    numbers = vocabulary(TEXT)
    model = Classifier(len(numbers))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for epoch in range(4):
        sentence, label = chance.choice(TEXT)
        with torch.no_grad():
            shown = model(encoded(sentence, numbers), torch.tensor([0])).softmax(1)[0, label]
        print(f"{epoch}: {sentence!r} is {label} with {shown.item():.3f}")
        for first in range(0, 6, 2):
            rows = [encoded(sentence, numbers) for sentence, _ in TEXT[first : first + 2]]
            offsets = torch.tensor([0, len(rows[0])])
            target = torch.tensor([label for _, label in TEXT[first : first + 2]])
            loss = nn.functional.cross_entropy(model(torch.cat(rows), offsets), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
