"""A parameter server: workers pull weights, push gradients through a queue, and the server steps once it has heard enough."""

# fault 1: threads
# fault 2: random draw
# fault 3: clock

import os
import queue
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

WORKERS, ROUNDS, SEED = 3, 16, 61


@dataclass(order=True)
class Push:
    """Gradients of a worker, and when they were sent."""

    rank: int
    clock: int = field(compare=False)
    sent: float = field(compare=False)
    grads: list = field(compare=False, repr=False)


def shard(rank, rows=60):
    rng = np.random.default_rng([SEED, rank])
    x = rng.normal(rank / 3, 1.0, (rows, 6)).astype(np.float32)
    y = np.tanh(x[:, :1] - x[:, 1:2]) + 0.1 * rng.normal(size=(rows, 1))
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.float32))


def make_net():
    return nn.Sequential(nn.Linear(6, 12), nn.ELU(), nn.Linear(12, 1))


class Worker(threading.Thread):
    def __init__(self, rank, server, entropy=None):
        super().__init__(name=f"worker-{rank}", daemon=True)
        self.rank, self.server = rank, server
        self.rng = np.random.default_rng(entropy)  # [!2]
        self.net, (self.x, self.y) = make_net(), shard(rank)

    def compute(self):
        rows = torch.from_numpy(self.rng.integers(len(self.x), size=12))
        loss = nn.functional.mse_loss(self.net(self.x[rows]), self.y[rows])
        return list(torch.autograd.grad(loss, list(self.net.parameters())))

    def run(self):
        for clock in range(ROUNDS):
            self.net.load_state_dict(self.server.pull(clock))
            grads = self.compute()
            self.server.inbox.put(Push(self.rank, clock, time.monotonic(), grads))


class Server:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net, optimizer
        self.inbox, self.turn, self.clock = queue.Queue(), threading.Condition(), 0
        self.late = 0

    def pull(self, clock):
        """The weights of a round, once it has begun."""
        with self.turn:
            self.turn.wait_for(lambda: self.clock >= clock)
            return {name: value.clone() for name, value in self.net.state_dict().items()}

    def enough(self, pushes):
        return len(pushes) == WORKERS  # [-1]
        # [1] return len(pushes) == WORKERS - 1  # guilty

    def collect(self):
        pushes = []
        while not self.enough(pushes):
            push = self.inbox.get()  # [!1]
            if push.clock == self.clock:
                pushes.append(push)
            else:
                self.late += 1
        return sorted(pushes)

    def weight(self, push):
        age = self.clock - push.clock  # [-3]
        # [3] age = time.monotonic() - push.sent  # guilty
        return 1.0 / (1.0 + age)

    def step(self):
        pushes = self.collect()
        weights = [self.weight(push) for push in pushes]
        for place, parameter in enumerate(self.net.parameters()):
            parameter.grad = sum(w * push.grads[place] for w, push in zip(weights, pushes)) / sum(weights)
        self.optimizer.step()
        with self.turn:
            self.clock += 1
            self.turn.notify_all()
        return pushes


def main():
    torch.manual_seed(SEED)
    net = make_net()
    server = Server(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8))
    workers = [Worker(rank, server, entropy=(SEED, rank, 1)) for rank in range(WORKERS)]  # [-2]
    # [2] workers = [Worker(rank, server) for rank in range(WORKERS)]  # guilty
    x, y = map(torch.cat, zip(*(shard(rank) for rank in range(WORKERS))))
    started = time.time()
    for worker in workers:
        worker.start()  # [!1]
    for number in range(ROUNDS):
        pushes = server.step()
        if number % 5 == 0:
            with torch.no_grad():
                error = nn.functional.mse_loss(net(x), y).item()
            oldest = time.monotonic() - min(push.sent for push in pushes)
            print(f"[{os.getpid()}] {number}: {error:.4f} of {len(pushes)}, {1000 * oldest:.1f} ms old, {server.late} late")
    for worker in workers:
        worker.join()
    print(f"{time.time() - started:.2f} s, {len({worker.native_id for worker in workers})} workers")


if __name__ == "__main__":
    main()
