"""Evolution strategies beside gradients: each generation is judged by a pool of threads, the best is then trained on."""

# fault 1: threads
# fault 2: random draw
# fault 3: identity

import functools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import nn

POPULATION, GENERATIONS = 6, 5


def make_model():
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))


def data(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(80, 5, generator=generator)
    return x, x[:, :1] * x[:, 1:2]


class Judge:
    def __init__(self, x, y):
        self.x, self.y, self.scores = x, y, []
        self.lock = threading.Lock()

    def __call__(self, number, vector):
        model = make_model()
        nn.utils.vector_to_parameters(vector, model.parameters())
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(self.x), self.y)
        with self.lock:
            self.scores.append((number, loss.item()))  # [!1]


class Strategy:
    def __init__(self, parents, sigma, generator):
        self.parents, self.sigma, self.generator = parents, sigma, generator

    def offspring(self):
        noise = torch.randn(POPULATION, len(self.parents), generator=self.generator)
        return self.parents + self.sigma * noise

    def update(self, vectors, scores):
        best = [number for number, _ in sorted(scores, key=lambda row: row[1])[:3]]  # [-1]
        # [1] best = [number for number, _ in scores[:3]]  # guilty
        self.parents = vectors[best].mean(0)


def judged(judge, vectors):
    judge.scores.clear()
    with ThreadPoolExecutor(3) as pool:  # [!1]
        wait([pool.submit(judge, number, vector) for number, vector in enumerate(vectors)])  # [!1]
    return list(judge.scores)


def seeded(seed):
    generator = torch.Generator()
    return generator.manual_seed(seed) if seed is not None else generator


def main(seed=None):
    began = time.time()
    torch.manual_seed(15)
    x, y = data(3)
    judge, model = Judge(x, y), make_model()
    start = nn.utils.parameters_to_vector(model.parameters()).detach()
    worker = threading.get_native_id()
    strategy = Strategy(start, 0.1, seeded(2))  # [-2 -3]
    # [2] strategy = Strategy(start, 0.1, seeded(torch.seed() % 1000))  # guilty
    # [3] strategy = Strategy(start, 0.1, seeded(worker % 1009))  # guilty
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = functools.partial(nn.functional.mse_loss, target=y)
    for generation in range(GENERATIONS):
        vectors = strategy.offspring()
        strategy.update(vectors, judged(judge, vectors))
        nn.utils.vector_to_parameters(strategy.parents, model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss = step(model(x))
            loss.backward()
            optimizer.step()
        strategy.parents = nn.utils.parameters_to_vector(model.parameters()).detach()
        print(f"{os.getpid()}/{worker}: generation {generation} {loss.item():.4f}, {time.time() - began:.2f} s")


if __name__ == "__main__":
    main()
