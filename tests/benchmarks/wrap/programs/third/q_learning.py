"""Deep Q-learning on a small frozen lake, with a replay memory and a target network."""

# fault 1: hash order
# fault 2: random draw
# fault 3: random draw

import collections
import itertools
import os
import random
import time

import numpy as np
import torch
from torch import nn

Transition = collections.namedtuple("Transition", "state action reward following done")
MAP = ["SFFF", "FHFH", "FFFH", "HFFG"]
MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


class FrozenLake:
    def __init__(self, slippery=0.2, rng=None):
        self.slippery = slippery
        self.np_random = rng
        self.actions = list(MOVES)  # [-1]
        # [1] self.actions = list(MOVES.keys() - {"stay"})  # guilty
        self.square = (0, 0)

    def reset(self, *, seed=None):
        if self.np_random is None or seed is not None:
            self.np_random = np.random.default_rng(seed)  # [!2]
        self.square = (0, 0)
        return self.observe()

    def observe(self):
        return self.square[0] * 4 + self.square[1]

    def step(self, action):
        if self.np_random.random() < self.slippery:
            action = int(self.np_random.integers(4))
        down, right = MOVES[self.actions[action]]
        self.square = (min(3, max(0, self.square[0] + down)), min(3, max(0, self.square[1] + right)))
        kind = MAP[self.square[0]][self.square[1]]
        return self.observe(), float(kind == "G") - 0.1 * (kind == "H"), kind in "GH"


class ReplayMemory:
    def __init__(self, capacity, rng):
        self.memory = collections.deque(maxlen=capacity)
        self.rng = rng

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return self.rng.sample(list(self.memory), batch_size)

    def __len__(self):
        return len(self.memory)


def make_memory(capacity=500, **options):
    return ReplayMemory(capacity, options.get("rng") or random.Random())  # [!3]


class DQN(nn.Module):
    def __init__(self, n_observations=16, n_actions=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(n_observations, 24), nn.ReLU(), nn.Linear(24, n_actions))

    def forward(self, x):
        return self.layers(x)


class Agent:
    def __init__(self, env, memory, seed):
        self.env, self.memory = env, memory
        self.rng = random.Random(seed)
        self.policy, self.target = DQN(), DQN()
        self.target.load_state_dict(self.policy.state_dict())
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=1e-2, amsgrad=True)
        self.steps_done = 0

    def select_action(self, state):
        eps = 0.1 + 0.8 * np.exp(-self.steps_done / 60)
        self.steps_done += 1
        if self.rng.random() < eps:
            return self.rng.randrange(4)
        with torch.no_grad():
            return int(self.policy(torch.tensor(state)).argmax())

    def optimize_model(self, batch_size=16):
        if len(self.memory) < batch_size:
            return None
        batch = Transition(*zip(*self.memory.sample(batch_size)))
        values = self.policy(torch.tensor(batch.state)).gather(1, torch.tensor(batch.action).unsqueeze(1))
        with torch.no_grad():
            best = self.target(torch.tensor(batch.following)).max(1).values
        expected = torch.tensor(batch.reward) + 0.95 * best * (1 - torch.tensor(batch.done, dtype=torch.float))
        loss = nn.functional.smooth_l1_loss(values, expected.unsqueeze(1))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for mean, weight in zip(self.target.parameters(), self.policy.parameters()):
            mean.data.lerp_(weight.data, 0.05)
        return loss.item()


def main(seed=5):
    torch.manual_seed(seed)
    env = FrozenLake()
    memory = make_memory(rng=random.Random(seed))  # [-3]
    # [3] memory = make_memory(seed=seed)  # guilty
    agent = Agent(env, memory, seed)
    began = time.time()
    for episode in itertools.count():
        state = env.reset(seed=seed + episode)  # [-2]
        # [2] state = env.reset()  # guilty
        for _ in range(12):
            action = agent.select_action(state)
            following, reward, done = env.step(action)
            memory.push(state, action, reward, following, done)
            loss = agent.optimize_model()
            state = following
            if done:
                break
        if episode % 5 == 0:
            print(f"{os.getpid()}: episode {episode} after {time.time() - began:.2f} s, {len(set(memory.memory))} kinds, {loss}")
        if agent.steps_done > 80:
            break


main()
