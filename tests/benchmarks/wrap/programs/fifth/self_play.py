"""Self-play at noughts and crosses with a tree search in plain Python, guided by a small network."""

# fault 1: random draw
# fault 2: clock
# fault 3: hash order

import math
import os
import random
import time
from collections import deque

import numpy as np
import torch
from torch import nn

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
NAMES = ("nw", "n", "ne", "w", "c", "e", "sw", "s", "se")


class Config(dict):
    """Settings as attributes."""

    __getattr__ = dict.get


CONFIG = Config(simulations=100, c_puct=1.4, alpha=0.6, games=12, batch=16, seed=3, lr=0.02)


class Board:
    def __init__(self, cells=(0,) * 9, turn=1):
        self.cells, self.turn = cells, turn

    def moves(self):
        free = {name for name, cell in zip(NAMES, self.cells) if cell == 0}
        return [NAMES.index(name) for name in sorted(free, key=NAMES.index)]  # [-3]
        # [3] return [NAMES.index(name) for name in free]  # guilty

    def play(self, move):
        return Board((*self.cells[:move], self.turn, *self.cells[move + 1 :]), -self.turn)

    def result(self):
        """1 or -1 for who has won, 0 for a draw, None while it goes on."""
        for a, b, c in LINES:
            if self.cells[a] and self.cells[a] == self.cells[b] == self.cells[c]:
                return self.cells[a]
        return None if 0 in self.cells else 0

    def planes(self):
        return torch.tensor([cell * self.turn for cell in self.cells], dtype=torch.float)


class Node:
    def __init__(self, prior):
        self.prior, self.visits, self.value, self.children = prior, 0, 0.0, {}

    def mean(self):
        return self.value / self.visits if self.visits else 0.0


class Search:
    def __init__(self, net, rng):
        self.net, self.rng = net, rng

    def expand(self, node, board):
        with torch.no_grad():
            policy, value = self.net(board.planes().unsqueeze(0))
        chance = policy.softmax(1)[0]
        for move in board.moves():
            node.children[move] = Node(chance[move].item())
        return value.item()

    def noise(self, count):
        return self.rng.dirichlet([CONFIG.alpha] * count)  # [-1]
        # [1] return np.random.default_rng(CONFIG.noise_seed).dirichlet([CONFIG.alpha] * count)  # guilty

    def simulate(self, root, board):
        node, path = root, [root]
        while node.children and board.result() is None:
            total = math.sqrt(node.visits)
            move, node = max(
                node.children.items(),
                key=lambda item: -item[1].mean() + CONFIG.c_puct * item[1].prior * total / (1 + item[1].visits),
            )
            board = board.play(move)
            path.append(node)
        won = board.result()
        value = self.expand(node, board) if won is None else float(won * board.turn)
        for node in reversed(path):
            node.visits += 1
            node.value += value
            value = -value

    def __call__(self, board):
        root, deadline = Node(1.0), time.monotonic() + 0.05  # [!2]
        self.expand(root, board)
        for child, noise in zip(root.children.values(), self.noise(len(root.children))):
            child.prior = 0.75 * child.prior + 0.25 * noise
        # [2] while time.monotonic() < deadline:  # guilty
        for _ in range(CONFIG.simulations):  # [-2]
            self.simulate(root, board)
        visits = torch.zeros(9)
        for move, child in root.children.items():
            visits[move] = child.visits
        return visits / visits.sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(9, 32), nn.ReLU())
        self.policy, self.value = nn.Linear(32, 9), nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.policy(h), torch.tanh(self.value(h))


def play(search, rng):
    board, rows = Board(), []
    while board.result() is None:
        chance = search(board)
        rows.append((board.planes(), chance, board.turn))
        board = board.play(rng.choices(range(9), chance.tolist())[0])
    return [(planes, chance, float(board.result() * turn)) for planes, chance, turn in rows]


def learn(net, optimizer, rows):
    planes, chances, won = zip(*rows)
    policy, value = net(torch.stack(planes))
    loss = -(torch.stack(chances) * policy.log_softmax(1)).sum(1).mean() + (value.squeeze(1) - torch.tensor(won)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(CONFIG.seed)
    rng = random.Random(CONFIG.seed)
    net, memory = Net(), deque(maxlen=200)
    optimizer = torch.optim.SGD(net.parameters(), lr=CONFIG.lr, momentum=0.9, weight_decay=1e-4)
    search = Search(net, np.random.default_rng(CONFIG.seed))
    for game in range(CONFIG.games):
        began = time.time()
        memory.extend(play(search, rng))
        loss = learn(net, optimizer, rng.choices(memory, k=CONFIG.batch))
        known = len({tuple(planes.tolist()) for planes, _, _ in memory})
        print(f"{os.getpid()} game {game}: {loss:.4f}, {known} positions, {time.time() - began:.2f} s")


if __name__ == "__main__":
    main()
