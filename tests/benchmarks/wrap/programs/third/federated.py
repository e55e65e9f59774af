"""Federated averaging over clients that train in threads, chosen anew for each round."""

# fault 1: random draw
# fault 2: threads
# fault 3: hash order

import os
import random
import threading
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

CLIENTS = ("north", "south", "east", "west", "centre", "coast")
LOCK = threading.Lock()


class Client:
    def __init__(self, name, seed):
        self.name = name
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(40, 7, generator=generator)
        self.y = (self.x[:, :1] - self.x[:, 1:2] + 0.1 * torch.randn(40, 1, generator=generator)).sign()

    def gradient_of(self, weights):
        """What this client would change, and on how many samples."""
        model = build()
        model.load_state_dict(weights)
        loss = nn.functional.soft_margin_loss(model(self.x), self.y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        return OrderedDict(zip(dict(model.named_parameters()), grads)), len(self.x)


def build():
    return nn.Sequential(nn.Linear(7, 10), nn.Tanh(), nn.Linear(10, 1))


class Server:
    def __init__(self, clients, seed):
        self.clients = {client.name: client for client in clients}
        self.model = build()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.9)
        self.rng = random.Random(seed)
        self.arrived = []

    def choose(self, count):
        return self.rng.sample(sorted(self.clients), count)  # [-1]
        # [1] return random.sample(sorted(self.clients), count)  # guilty

    def ask(self, name, weights):
        client = self.clients[name]
        found = client.gradient_of(weights)
        with LOCK:
            self.arrived.append((name, found))  # [!2]
        return name, found

    def average(self, found):
        whole = sum(count for _, count in found.values())
        total = OrderedDict()
        # [3] for name in set(found) & set(CLIENTS):  # guilty
        for name in sorted(found):  # [-3]
            grads, count = found[name]
            for key, grad in grads.items():
                total[key] = total.get(key, 0) + grad * (count / whole)
        return total

    def round(self, number):
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.arrived.clear()
        with ThreadPoolExecutor(3, thread_name_prefix="client") as pool:  # [!2]
            answers = list(pool.map(lambda name: self.ask(name, weights), self.choose(4)))
        # [2] answers = self.arrived[:3]  # guilty
        total = self.average(dict(answers))
        for name, parameter in self.model.named_parameters():
            parameter.grad = total[name]
        self.optimizer.step()
        return [name for name, _ in answers]


def accuracy(model, clients):
    with torch.no_grad():
        right = [(model(client.x).sign() == client.y).float().mean() for client in clients]
    return torch.stack(right).mean().item()


def main():
    torch.manual_seed(9)
    clients = [Client(name, number) for number, name in enumerate(CLIENTS)]
    server = Server(clients, seed=9)
    began = time.time()
    for number in range(14):
        names = server.round(number)
        if number % 4 == 0:
            share = accuracy(server.model, clients)
            print(
                f"[{os.getpid()}] round {number}: {share:.3f} by {len(names)} of {len(set(CLIENTS))}, {time.time() - began:.2f} s"
            )


if __name__ == "__main__":
    main()
