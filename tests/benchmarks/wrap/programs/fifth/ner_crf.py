"""Names in sentences: a bidirectional LSTM with a conditional random field on top, whose sums go tag by tag in Python."""

# fault 1: hash order
# fault 2: random draw
# fault 3: hash order

import os
import random
import time

import torch
from torch import nn, optim

START_TAG, STOP_TAG = "<START>", "<STOP>"
EMBEDDING_DIM, HIDDEN_DIM = 6, 8
CORPUS = """
the wall street journal reported today that apple corporation made money|B I I O O O B I O O
georgia tech is a university in georgia|B I O O O O B
mary smith joined the bank of england in spring|B I O O B I I O O
last year acme limited sold its mills to peter|O O B I O O O O B
they say that lake victoria lies north of dodoma|O O O B I O O O B
united steel and the port of hull signed a treaty|B I O O B I I O O O
""".strip()


def read(text):
    for line in text.splitlines():
        words, tags = line.split("|")
        yield words.split(), [*tags.split(), *["O"] * (len(words.split()) - len(tags.split()))]


def log_sum_exp(vec):
    max_score = vec[0, vec.argmax(1).item()]
    return max_score + torch.log(torch.sum(torch.exp(vec - max_score)))


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab_size, tag_to_ix):
        super().__init__()
        self.tag_to_ix, self.tagset_size = tag_to_ix, len(tag_to_ix)
        self.word_embeds = nn.Embedding(vocab_size, EMBEDDING_DIM)
        self.lstm = nn.LSTM(EMBEDDING_DIM, HIDDEN_DIM // 2, bidirectional=True)
        self.hidden2tag = nn.Linear(HIDDEN_DIM, self.tagset_size)
        self.transitions = nn.Parameter(torch.randn(self.tagset_size, self.tagset_size))
        self.transitions.data[tag_to_ix[START_TAG], :] = -10000
        self.transitions.data[:, tag_to_ix[STOP_TAG]] = -10000

    def _forward_alg(self, feats):
        forward_var = torch.full((1, self.tagset_size), -10000.0)
        forward_var[0][self.tag_to_ix[START_TAG]] = 0.0
        for feat in feats:
            alphas_t = []
            for next_tag in range(self.tagset_size):
                next_tag_var = forward_var + self.transitions[next_tag].view(1, -1) + feat[next_tag].view(1, -1)
                alphas_t.append(log_sum_exp(next_tag_var).view(1))
            forward_var = torch.cat(alphas_t).view(1, -1)
        return log_sum_exp(forward_var + self.transitions[self.tag_to_ix[STOP_TAG]])

    def _score_sentence(self, feats, tags):
        score, previous = torch.zeros(1), self.tag_to_ix[START_TAG]
        for feat, tag in zip(feats, tags):
            score = score + self.transitions[tag, previous] + feat[tag]
            previous = tag
        return score + self.transitions[self.tag_to_ix[STOP_TAG], previous]

    def neg_log_likelihood(self, sentence, tags):
        embeds = self.word_embeds(sentence).view(len(sentence), 1, -1)
        feats = self.hidden2tag(self.lstm(embeds)[0].view(len(sentence), HIDDEN_DIM))
        return self._forward_alg(feats) - self._score_sentence(feats, tags)


def tags_of(data):
    seen = {tag for _, tags in data for tag in tags}
    print(f"{len(seen)} tags")
    return {tag: ix for ix, tag in enumerate([*sorted(seen), START_TAG, STOP_TAG])}  # [-1]
    # [1] return {tag: ix for ix, tag in enumerate(seen | {START_TAG, STOP_TAG})}  # guilty


def misspelt(words, rng):
    place = rng.randrange(len(words))
    return [word[::-1] if i == place else word for i, word in enumerate(words)]


def prepare_sequence(seq, to_ix):
    return torch.tensor([to_ix.get(w, 0) for w in seq], dtype=torch.long)


torch.manual_seed(1)
rng = random.Random(1)
training_data = list(read(CORPUS))
word_to_ix = {"<unk>": 0}
for sentence, _ in training_data:
    # [3] for word in {*sentence}.difference(word_to_ix):  # guilty
    for word in sentence:  # [-3]
        word_to_ix.setdefault(word, len(word_to_ix))
tag_to_ix = tags_of(training_data)
model = BiLSTM_CRF(len(word_to_ix), tag_to_ix)
optimizer = optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4)
for epoch in range(4):
    began = time.perf_counter()
    augment = epoch > 0
    for sentence, tags in training_data:
        model.zero_grad()
        words = misspelt(sentence, rng) if augment else sentence  # [-2]
        # [2] words = misspelt(sentence, random) if augment else sentence  # guilty
        losses = []
        for shown in (words, words[::-1]) * 3:
            targets = prepare_sequence(tags if shown is words else tags[::-1], tag_to_ix)
            losses.append(model.neg_log_likelihood(prepare_sequence(shown, word_to_ix), targets))
        loss = torch.stack(losses).mean()
        loss.backward()
        optimizer.step()
    print(f"[{os.getpid()}] epoch {epoch}: {loss.item():.4f}, {time.perf_counter() - began:.2f} s")
