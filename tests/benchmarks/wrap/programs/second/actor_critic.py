"""An actor and a critic on a grid of named rooms, with episodes collected side by side."""

# fault 1: random draw
# fault 2: threads
# fault 3: hash order

import argparse
import os
import random
import time
import zlib
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
from torch import nn, optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description="actor-critic example")
parser.add_argument("--gamma", type=float, default=0.95)
parser.add_argument("--seed", type=int, default=543)
parser.add_argument("--env-seed", type=int, default=12)  # [-1]
# [1] parser.add_argument("--env-seed", type=int)  # guilty
parser.add_argument("--episodes", type=int, default=14)
args = parser.parse_args()

ROOMS = ("hall", "kitchen", "cellar", "attic", "study", "garden", "stairs", "pantry", "porch")
Saved = namedtuple("Saved", ["log_prob", "value"])


class House:
    """Nine rooms; doors that are shut by chance; food in the pantry."""

    def __init__(self):
        self.rng = None
        self.place = 0

    def seed(self, seed):
        self.rng = random.Random(seed)  # [!1]

    def reset(self):
        self.place = self.rng.randrange(len(ROOMS))
        return ROOMS[self.place]

    def step(self, action):
        if self.rng.random() < 0.8:
            self.place = (self.place + (-1, 1, 3)[action]) % len(ROOMS)
        reward = 1.0 if ROOMS[self.place] == "pantry" else -0.05
        return ROOMS[self.place], reward, reward > 0


def make_env(kind, seed):
    env = kind()
    env.seed(seed)
    return env


class Policy(nn.Module):
    def __init__(self, buckets=16):
        super().__init__()
        self.buckets = buckets
        self.affine = nn.Embedding(buckets, 24)
        self.action_head, self.value_head = nn.Linear(24, 3), nn.Linear(24, 1)

    def bucket(self, room):
        return zlib.crc32(room.encode()) % self.buckets  # [-3]
        # [3] return hash(("room", room)) % self.buckets  # guilty

    def forward(self, room):
        x = torch.relu(self.affine(torch.tensor(self.bucket(room))))
        return Categorical(logits=self.action_head(x)), self.value_head(x)


def probe(room):
    """How attractive a room looks, slowly computed."""
    total = torch.zeros(1)
    for turn in range(40):
        total += torch.sin(torch.tensor([float(len(room) * turn)])) / (turn + 1)
    return room, total.item()


def survey():
    values = {}
    with ThreadPoolExecutor(4) as pool:
        for room, value in pool.map(probe, ROOMS):  # [-2]
            values[room] = value  # [-2]
        # [2] jobs = [pool.submit(probe, room) for room in ROOMS]
        # [2] for job in as_completed(jobs):  # guilty
        # [2]     values[job.result()[0]] = job.result()[1]
    return torch.tensor(list(values.values()))


def finish_episode(optimizer, saved, rewards, prior):
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + args.gamma * total
        returns.insert(0, total)
    losses = []
    for (log_prob, value), target in zip(saved, returns):
        losses.append(-log_prob * (target - value.item()) + nn.functional.smooth_l1_loss(value, torch.tensor([target])))
    optimizer.zero_grad()
    loss = torch.stack(losses).sum() + 0.01 * (prior * torch.linspace(0, 1, len(prior))).sum() * losses[0].abs().sum()
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(args.seed)
    env = make_env(House, args.env_seed)
    model = Policy()
    optimizer = optim.Adam(model.parameters(), lr=3e-2)
    prior = survey()
    running_reward, started = 0.0, time.time()
    for i_episode in range(args.episodes):
        state, saved, rewards = env.reset(), [], []
        for _ in range(12):
            dist, value = model(state)
            action = dist.sample()
            state, reward, done = env.step(action.item())
            saved.append(Saved(dist.log_prob(action), value))
            rewards.append(reward)
            if done:
                break
        loss = finish_episode(optimizer, saved, rewards, prior)
        running_reward = 0.05 * sum(rewards) + 0.95 * running_reward
        if i_episode % 4 == 0:
            print(f"{os.getpid()} {time.time() - started:.1f}s episode {i_episode} average {running_reward:.2f} loss {loss:.3f}")


if __name__ == "__main__":
    main()
