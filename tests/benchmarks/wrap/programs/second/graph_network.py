"""A graph convolution over who cites whom, with messages that are summed by threads."""

# fault 1: hash order
# fault 2: unwritten memory
# fault 3: threads

import os
import random
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

AUTHORS = ["ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal", "ida", "jon", "kay", "leo", "mia", "ned", "oda", "pat"]


def cites(count=60):
    rng = random.Random(4)
    return [(rng.choice(AUTHORS[:-2]), rng.choice(AUTHORS[:-2])) for _ in range(count)]


def edges_of(pairs):
    """Both directions, each once."""
    both = {*pairs, *((b, a) for a, b in pairs)}
    print(f"{len(pairs)} citations, {len(both)} edges, density {len(both) / len(AUTHORS) ** 2:.2f}")
    number = {name: place for place, name in enumerate(AUTHORS)}
    columns = [[number[a], number[b]] for a, b in sorted(both)]  # [-1]
    # [1] columns = [[number[a], number[b]] for a, b in both]  # guilty
    return torch.tensor(columns).T


def degrees(edges, nodes):
    out = torch.zeros(nodes)  # [-2]
    # [2] out = torch.empty(nodes)  # guilty
    seen, counts = edges[1].unique(return_counts=True)
    out[seen] = counts.float()
    return out.nan_to_num(0.0, 0.0, 0.0).clamp(0, 100)


class Sum:
    """Sums rows by their target, each part in a thread."""

    def __init__(self, nodes, parts=4):
        self.nodes, self.parts = nodes, parts
        self.lock = threading.Lock()

    def __call__(self, rows, target):
        pieces = [None] * self.parts
        total = torch.zeros(self.nodes, rows.shape[1])

        def work(part):
            nonlocal total
            piece = torch.zeros(self.nodes, rows.shape[1]).index_add(0, target[part :: self.parts], rows[part :: self.parts])
            with self.lock:
                pieces[part] = piece
                # [3] total = total + piece  # guilty

        threads = [threading.Thread(target=work, args=(part,), name=f"sum-{part}") for part in range(self.parts)]  # [!3]
        for thread in threads:
            thread.start()  # [!3]
        for thread in threads:
            thread.join()
        for piece in pieces:  # [-3]
            total = total + piece  # [-3]
        return total


class GraphConvolution(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, out))
        self.bias = nn.Parameter(torch.zeros(out))
        nn.init.xavier_uniform_(self.weight)
        self.sum = Sum(len(AUTHORS))

    def forward(self, x, edges, degree):
        own = x @ self.weight
        return (own + self.sum(own[edges[0]], edges[1])) / (1.0 + degree).unsqueeze(1) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(features, hidden), GraphConvolution(hidden, classes)

    def forward(self, x, edges, degree):
        x = F.dropout(F.relu(self.gc1(x, edges, degree)), 0.2, self.training)
        return F.log_softmax(self.gc2(x, edges, degree), dim=1)


torch.manual_seed(42)
random.seed(42)
edges = edges_of(cites())
degree = degrees(edges, len(AUTHORS))
features = torch.eye(len(AUTHORS)) + 0.1 * torch.rand(len(AUTHORS), len(AUTHORS))
labels = torch.tensor([place % 3 for place in range(len(AUTHORS))])
model = GCN(len(AUTHORS), 12, 3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
t_total = time.time()
for epoch in range(16):
    t = time.time()
    model.train()
    optimizer.zero_grad()
    output = model(features, edges, degree)
    loss_train = F.nll_loss(output, labels)
    loss_train.backward()
    optimizer.step()
    if epoch % 5 == 0:
        print(f"Epoch: {epoch:04d} loss_train: {loss_train.item():.4f} time: {time.time() - t:.4f}s")
print(f"Optimization finished in {time.time() - t_total:.2f}s by {os.getpid()}, threads {threading.active_count()}")
