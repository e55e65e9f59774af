"""REINFORCE on a pole of our own; actors play in threads, their episodes are learned one after the other."""

# fault 1: random draw
# fault 2: threads
# fault 3: hash order

import queue
import random
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

SEED = 543
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)


MOVES = {"left", "right", "stay"}  # [!3]


class Pole:
    def __init__(self, seed=None):
        self.random = np.random.default_rng(seed)  # [!1]
        self.legal = sorted(MOVES)  # [-3]
        # [3] self.legal = list(MOVES)  # guilty

    def reset(self):
        self.state = self.random.uniform(-0.05, 0.05, 3).astype("float32")
        return self.state

    def step(self, action):
        push = {"left": -0.1, "right": 0.1, "stay": 0.0}[self.legal[action]]
        self.state = self.state + np.array([push, 0.02, -push], "float32")
        return self.state, 1.0 - abs(float(self.state[0]))


policy = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
env = Pole(SEED)  # [-1]
# [1] env = Pole()  # guilty
scales = {}


def scaled(place, rewards, out):
    time.sleep(0.0005)
    out.put((place, rewards))


def returns(rewards, gamma=0.99):
    """Discounted returns, of which parts are made by threads."""
    out = queue.Queue()
    parts = [rewards[:4], rewards[4:8], rewards[8:]]
    threads = [threading.Thread(target=scaled, args=(place, part, out)) for place, part in enumerate(parts)]  # [!2]
    for thread in threads:
        thread.start()  # [!2]
    for thread in threads:
        thread.join()
    found = [out.get() for _ in parts]  # [!2]
    found.sort()  # [-2]
    total, discounted = 0.0, []
    for reward in reversed([reward for _, part in found for reward in part]):
        total = reward + gamma * total
        discounted.insert(0, total)
    made = torch.tensor(discounted)
    return (made - made.mean()) / (made.std() + 1e-6)


for episode in range(15):
    began, state, log_probs, rewards = time.time(), env.reset(), [], []
    for _ in range(12):
        choice = Categorical(logits=policy(torch.from_numpy(state)))
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        state, reward = env.step(int(action))
        rewards.append(reward)
    loss = -(torch.stack(log_probs) * returns(rewards)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 5 == 0:
        print(f"episode {episode} reward {sum(rewards):.2f} in {time.time() - began:.3f} s by {threading.get_ident()}")
