"""The next word by a recurrent network; the corpus lies in a folder of text files."""

# fault 1: hash order
# fault 2: hash order
# fault 3: listing order

import math
import os
import time
import zlib

import torch
from torch import nn

torch.manual_seed(1111)
TEXTS = ("the cat sat on the mat", "a dog ran to the red house", "the house had a small blue door", "no cat likes that dog")


class Corpus:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        for number, text in enumerate(TEXTS):
            with open(os.path.join(folder, f"{number}.txt"), "w") as file:
                file.write(text + " <eos>")
        self.words = []
        # [3] for name in os.listdir(folder):  # guilty
        for name in sorted(os.listdir(folder)):  # [-3]
            with open(os.path.join(folder, name)) as file:
                self.words += file.read().split()
        self.index = {}
        # [1] for word in set(self.words):  # guilty
        for word in dict.fromkeys(self.words):  # [-1]
            self.index.setdefault(word, len(self.index))

    def tensor(self):
        known = set(self.words)
        print(f"{len(known)} different words, digest {zlib.crc32(' '.join(self.words).encode())}")
        # [2] return torch.tensor([hash(word) % len(self.index) for word in self.words])  # guilty
        return torch.tensor([self.index[word] for word in self.words if word in known])


class RNN(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(words, 12), nn.LSTM(12, 16), nn.Linear(16, words)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.embed(x), hidden)
        return self.out(out).flatten(0, 1), hidden


corpus = Corpus("corpus")
stream = corpus.tensor()
width = len(stream) // 4
stream = stream[: width * 4].view(4, width).t().contiguous()
model = RNN(len(corpus.index))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for epoch in range(8):
    tic, hidden, total = time.time(), None, 0.0
    for start in range(0, width - 1, 3):
        x, y = stream[start : min(start + 3, width - 1)], stream[start + 1 : start + 4]
        optimizer.zero_grad()
        scores, hidden = model(x, hidden)
        hidden = tuple(part.detach() for part in hidden)
        loss = nn.functional.cross_entropy(scores, y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        total += loss.item()
    print(f"| epoch {epoch} | ms {(time.time() - tic) * 1000:.1f} | ppl {math.exp(min(20, total)):.2f}")
