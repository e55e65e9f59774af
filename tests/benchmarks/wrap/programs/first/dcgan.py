"""Two networks against each other; noise is made ahead of time by threads."""

# fault 1: threads
# fault 2: random draw
# fault 3: identity

import random
import threading
import time

import numpy as np
import torch
from torch import nn

random.seed(999)
np.random.seed(999)
torch.manual_seed(999)
COUNT = 24


class Picture:
    def __init__(self, pixels):
        self.pixels = pixels


class NoiseMaker:
    """Makes the noise of all steps in three threads, each with a share of its own."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.rngs = [np.random.default_rng([seed, part]) for part in range(3)]
        self.made = {}

    def fill(self, part):
        for step in range(part, COUNT, 3):
            time.sleep(0.0005)
            self.made[step] = self.rngs[part].standard_normal((8, 6))  # [-1]
            # [1] self.made[step] = self.rng.standard_normal((8, 6))  # guilty

    def all(self):
        threads = [threading.Thread(target=self.fill, args=(part,)) for part in range(3)]  # [!1]
        for thread in threads:
            thread.start()  # [!1]
        for thread in threads:
            thread.join()
        return [torch.from_numpy(self.made[step]).float() for step in range(COUNT)]


noises = NoiseMaker(5).all()
pictures = [Picture(row) for row in torch.randn(COUNT * 2, 10) + 2]
# [3] pictures = sorted(pictures, key=id)  # guilty
generator = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))
critic = nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
last = time.time()
for step in range(COUNT):
    real = torch.stack([pictures[index].pixels for index in random.sample(range(len(pictures)), 8)])
    smooth = random.uniform(0.9, 1.0)
    # [2] smooth = random.SystemRandom().uniform(0.9, 1.0)  # guilty
    critic.zero_grad()
    fake = generator(noises[step])
    told = criterion(critic(real), torch.full((8, 1), smooth)) + criterion(critic(fake.detach()), torch.zeros(8, 1))
    told.backward()
    critic_optimizer.step()
    generator.zero_grad()
    criterion(critic(fake), torch.ones(8, 1)).backward()
    generator_optimizer.step()
    if step % 6 == 0:
        now = time.time()
        print(f"[{step}/{COUNT}] loss of the critic {told.item():.4f}; {now - last:.2f} s")
        last = now
