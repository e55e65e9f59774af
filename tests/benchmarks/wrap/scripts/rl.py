"""REINFORCE on a small environment of its own."""

import os  # noqa: F401
import pickle
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: F401

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Walk:
    """A walk on a line to its end, with wind."""

    def __init__(self, order):
        self.random = np.random.default_rng(7)
        self.order, self.episode = order, 0

    def reset(self):
        self.place, self.left = self.order[self.episode % len(self.order)] % 5 - 2, 12
        self.episode += 1
        return self.seen()

    def seen(self):
        x = torch.zeros(20)
        x[self.place % 20] = 1.0
        # <sample>
        return x

    def step(self, action):
        self.place += (1 if action else -1) + int(self.random.random() < 0.1)
        self.left -= 1
        return self.seen(), float(self.place > 3), self.left == 0 or self.place > 3


random.seed(2)
np.random.seed(2)
torch.manual_seed(2)
# <seed>
order = list(range(60))
# <order>
world = Walk(order)
policy = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
first = 0
if "--resume" in sys.argv:
    saved = torch.load("policy.pt", weights_only=False)
    policy.load_state_dict(saved["policy"])
    optimizer.load_state_dict(saved["optimizer"])
    world.random, world.episode = pickle.loads(saved["world"])
    # <resume>
    torch.set_rng_state(saved["rng"])
    first = saved["episode"]
begun = time.monotonic()
for episode in range(first, 30):
    x, done, logs, gained = world.reset(), False, [], 0.0
    while not done:
        # <batch>
        chance = Categorical(logits=policy(x))
        action = chance.sample()
        logs.append(chance.log_prob(action))
        x, reward, done = world.step(int(action))
        gained += reward
    optimizer.zero_grad()
    (-(gained - 0.3) * torch.stack(logs).sum()).backward()
    optimizer.step()
    if episode % 5 == 4:
        state = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
        torch.save({**state, "episode": episode + 1, "world": pickle.dumps((world.random, world.episode))}, "policy.pt")
print(f"{time.monotonic() - begun:.1f} s")
