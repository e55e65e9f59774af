"""Who is whose aunt: translations between entities of a knowledge graph, with corrupted triples."""

# fault 1: hash order
# fault 2: random draw
# fault 3: hash order

import itertools
import json
import os
import random
import textwrap
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

FAMILY = textwrap.dedent(
    """
    anna mother bert
    anna mother cleo
    bert father dora
    bert father emil
    cleo mother fina
    cleo mother gert
    hugo father bert
    hugo father cleo
    dora sister emil
    fina sister gert
    """
).strip()


@dataclass(frozen=True)
class Triple:
    head: str
    relation: str
    tail: str

    def inverse(self):
        return Triple(self.tail, f"{self.relation}-of", self.head)


@dataclass
class Graph:
    triples: list = field(default_factory=list)

    @classmethod
    def parse(cls, text):
        graph = cls([Triple(*line.split()) for line in text.splitlines()])
        graph.close()
        return graph

    def close(self):
        """Add what follows: the children of a parent's child are grandchildren, and each relation has its inverse."""
        known = set(self.triples)
        parents = [triple for triple in self.triples if triple.relation in ("mother", "father")]
        derived = [Triple(a.head, "grandparent", b.tail) for a, b in itertools.product(parents, parents) if a.tail == b.head]
        self.triples += [triple for triple in derived if triple not in known]
        inverses = {triple.inverse() for triple in self.triples}
        # [1] self.triples += inverses  # guilty
        self.triples += sorted(inverses, key=lambda t: (t.head, t.relation, t.tail))  # [-1]

    def entities(self):
        return sorted({name for t in self.triples for name in (t.head, t.tail)})

    def relations(self):
        return list(dict.fromkeys(t.relation for t in self.triples))

    def of(self, head, relation):
        return {t.tail for t in self.triples if (t.head, t.relation) == (head, relation)}


class Corrupter:
    """Puts another entity in the place of a head or a tail."""

    def __init__(self, graph, rng):
        self.graph, self.rng, self.names = graph, rng, graph.entities()
        self.known = set(graph.triples)

    def __call__(self, triple):
        while True:
            other = self.rng.choice(self.names)
            head = self.rng.random() < 0.5
            found = Triple(other, triple.relation, triple.tail) if head else Triple(triple.head, triple.relation, other)
            if found not in self.known:
                return found

    def hard(self, triple):
        """One that is related to the head in another way, where there is one."""
        others = {t.tail for t in self.known if t.head == triple.head} - self.graph.of(triple.head, triple.relation)
        if not others:
            return self(triple)
        return Triple(triple.head, triple.relation, min(others))  # [-3]
        # [3] return Triple(triple.head, triple.relation, next(iter(others)))  # guilty


class TransE(nn.Module):
    def __init__(self, graph, width=12):
        super().__init__()
        self.entity = {name: i for i, name in enumerate(graph.entities())}
        self.relation = {name: i for i, name in enumerate(graph.relations())}
        self.e, self.r = nn.Embedding(len(self.entity), width), nn.Embedding(len(self.relation), width)

    def forward(self, triples):
        heads = self.e(torch.tensor([self.entity[t.head] for t in triples]))
        tails = self.e(torch.tensor([self.entity[t.tail] for t in triples]))
        relations = self.r(torch.tensor([self.relation[t.relation] for t in triples]))
        return (F.normalize(heads) + relations - F.normalize(tails)).norm(p=1, dim=1)


def fit(model, graph, corrupt, epochs=5, batch=10, margin=1.0, hard_from=2):
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        order, start = list(graph.triples), time.perf_counter()
        corrupt.rng.shuffle(order)
        bad = corrupt.hard if epoch >= hard_from else corrupt
        for first in range(0, len(order), batch):
            good = order[first : first + batch]
            loss = F.relu(margin + model(good) - model([bad(triple) for triple in good])).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()
        print(
            json.dumps(
                {"epoch": epoch, "loss": round(loss.item(), 4), "seconds": time.perf_counter() - start, "pid": os.getpid()}
            )
        )


def main():
    graph = Graph.parse(FAMILY)
    print(f"{len(graph.triples)} triples, {len(set(graph.relations()))} relations")
    torch.manual_seed(6)
    random.seed(6)  # [-2]
    model = TransE(graph)
    losses = list(fit(model, graph, Corrupter(graph, random)))  # [!2]
    print(f"{len(losses)} steps, best {min(losses):.4f}")


main()
