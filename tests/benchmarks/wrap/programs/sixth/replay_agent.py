"""Q-learning on a corridor with a replay memory; a random walk is played before the agent, whose dice may be unseeded."""

# fault 1: random draw

import collections
import os
import random

import torch
from torch import nn

LENGTH = 8


class Corridor:
    def reset(self):
        self.at = 0
        return self.seen()

    def seen(self):
        return nn.functional.one_hot(torch.tensor(self.at), LENGTH).float()

    def step(self, right):
        self.at = min(self.at + 1, LENGTH - 1) if right else max(self.at - 1, 0)
        done = self.at == LENGTH - 1
        return self.seen(), 1.0 if done else -0.05, done


def random_walk(corridor, dice):
    """Return the steps that a walk of chance takes, as a baseline that is printed."""
    corridor.reset()
    total = torch.zeros(())
    for count in range(1, 30):
        seen, reward, done = corridor.step(dice.random() < 0.6)
        total += reward * seen.max()
        if done:
            break
    return count, total.item()


class Agent:
    def __init__(self, dice):
        self.dice, self.memory = dice, collections.deque(maxlen=64)
        self.net = nn.Sequential(nn.Linear(LENGTH, 16), nn.ReLU(), nn.Linear(16, 2))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def act(self, seen):
        if self.dice.random() < 0.3:
            return self.dice.randrange(2)
        with torch.no_grad():
            return int(self.net(seen).argmax())

    def learn(self):
        rows = self.dice.sample(list(self.memory), 8)
        seen, action, reward, after = zip(*rows, strict=True)
        with torch.no_grad():
            target = torch.tensor(reward) + 0.9 * self.net(torch.stack(after)).max(1).values
        values = self.net(torch.stack(seen)).gather(1, torch.tensor(action).unsqueeze(1)).squeeze(1)
        loss = nn.functional.mse_loss(values, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    torch.manual_seed(15)
    corridor = Corridor()
    print("a walk of chance:", random_walk(corridor, random.Random(os.urandom(8))))
    agent = Agent(random.Random(15))  # [-1]
    # [1] agent = Agent(random.Random())  # guilty
    seen = corridor.reset()
    for step in range(24):
        action = agent.act(seen)
        after, reward, done = corridor.step(action)
        agent.memory.append((seen, action, reward, after))
        seen = corridor.reset() if done else after
        if step >= 12:
            agent.learn()


main()
