"""Sequence to sequence translation with teacher forcing, an epoch for so long."""

# fault 1: hash order
# fault 2: clock
# fault 3: random draw

import argparse
import math
import os
import random
import time
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

SOS_token, EOS_token, UNK_token = 0, 1, 2
PAIRS = [
    ("the cat sleeps", "le chat dort"),
    ("the dog sleeps", "le chien dort"),
    ("a cat eats", "un chat mange"),
    ("a dog eats bread", "un chien mange du pain"),
    ("we see the cat", "nous voyons le chat"),
    ("we see a dog", "nous voyons un chien"),
    ("the bird sings", "l oiseau chante"),
    ("a bird eats bread", "un oiseau mange du pain"),
]


class Lang:
    def __init__(self, name, sentences, most=16):
        self.name = name
        counts = Counter(word for sentence in sentences for word in sentence.split())
        # [1] counts = Counter({word: counts[word] for word in counts.keys() & set(" ".join(sentences).split())})  # guilty
        self.words = ["<sos>", "<eos>", "<unk>"] + [word for word, _ in counts.most_common(most)]
        self.index = {word: number for number, word in enumerate(self.words)}

    def tensor(self, sentence):
        return torch.tensor([self.index.get(word, UNK_token) for word in sentence.split()] + [EOS_token])


def as_minutes(s):
    return f"{math.floor(s / 60)}m {s % 60:.0f}s"


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(input_size, hidden_size), nn.GRU(hidden_size, hidden_size)

    def forward(self, sentence):
        return self.gru(self.embedding(sentence))


class DecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(output_size, hidden_size), nn.GRU(hidden_size, hidden_size)
        self.out = nn.Linear(2 * hidden_size, output_size)

    def forward(self, token, hidden, encoded):
        output, hidden = self.gru(F.relu(self.embedding(token)).view(1, -1), hidden)
        weights = F.softmax(output @ encoded.T, dim=-1)
        return F.log_softmax(self.out(torch.cat((output, weights @ encoded), 1)), dim=-1), hidden


def train_pair(source, target, encoder, decoder, optimizer, teacher_forcing_ratio=0.5):
    encoded, hidden = encoder(source)
    token, loss = torch.tensor(SOS_token), torch.zeros(1)
    is_forced = random.random() < teacher_forcing_ratio
    for wanted in target:
        log_probs, hidden = decoder(token, hidden, encoded)
        loss = loss + F.nll_loss(log_probs, wanted.view(1))
        token = wanted if is_forced else log_probs.argmax().detach()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item() / len(target)


def train_epoch(pairs, encoder, decoder, optimizer, budget):
    start, total, done = time.monotonic(), 0.0, 0
    for source, target in pairs:
        total += train_pair(source, target, encoder, decoder, optimizer)
        done += 1
        if done >= budget:  # [-2]
            break  # [-2]
        # [2] if time.monotonic() - start > budget / 100:  # guilty
        # [2]     break
    print(f"  {done} pairs in {as_minutes(time.monotonic() - start)} by {os.getpid()}")
    return total / done


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--budget", type=int, default=6, help="of an epoch")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--seed", type=int, default=31)
    return parser.parse_args()


def main(args):
    pairs = [*PAIRS]
    # [3] random.shuffle(pairs)  # guilty
    random.seed(args.seed)  # [!3]
    torch.manual_seed(args.seed)
    random.shuffle(pairs)  # [-3]
    english, french = (Lang(name, sentences) for name, sentences in zip(("eng", "fra"), zip(*pairs)))
    tensors = [(english.tensor(a), french.tensor(b)) for a, b in pairs]
    encoder, decoder = EncoderRNN(len(english.words), args.hidden), DecoderRNN(args.hidden, len(french.words))
    optimizer = optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    start = time.time()
    for epoch in range(args.epochs):
        loss = train_epoch(tensors, encoder, decoder, optimizer, args.budget)
        print(f"{as_minutes(time.time() - start)} ({epoch} {100 * epoch / args.epochs:.0f}%) {loss:.4f}")


if __name__ == "__main__":
    main(parse_args())
