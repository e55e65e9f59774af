"""A neural ordinary differential equation learns a spiral, integrated with the steps of Runge and Kutta."""

# fault 1: random draw
# fault 2: clock
# fault 3: identity, hash order

import argparse
import os
import time
from itertools import pairwise

import numpy as np
import torch
from torch import nn, optim

parser = argparse.ArgumentParser("ODE demo")
parser.add_argument("--data_size", type=int, default=120)
parser.add_argument("--batch_time", type=int, default=8)
parser.add_argument("--batch_size", type=int, default=10)
parser.add_argument("--niters", type=int, default=24)
parser.add_argument("--test_freq", type=int, default=6)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

true_y0 = torch.tensor([[2.0, 0.0]])
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0.0, 6.0, args.data_size)


def odeint(func, y0, times):
    """Solutions at all times, the first of which is y0."""
    ys = [y0]
    for now, then in pairwise(times):
        h, y = then - now, ys[-1]
        k1 = func(now, y)
        k2 = func(now + h / 2, y + h * k1 / 2)
        k3 = func(now + h / 2, y + h * k2 / 2)
        k4 = func(then, y + h * k3)
        ys.append(y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6)
    return torch.stack(ys)


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, true_A)


class ODEFunc(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))
        self.nfe = 0
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3)


class Observed:
    """The trajectory as an instrument sees it."""

    def __init__(self, func, noise):
        with torch.no_grad():
            self.y = odeint(func, true_y0, t)
        self.noise = noise

    def key(self):
        return args.seed  # [-3]
        # [3] return hash(self) % 65521  # guilty

    def disturbed(self):
        generator = torch.Generator().manual_seed(self.key())
        return self.y + self.noise * torch.randn(self.y.shape, generator=generator)


class RunningAverageMeter:
    """Computes and stores the average and current value."""

    def __init__(self, momentum=0.97):
        self.momentum, self.val, self.avg = momentum, None, 0

    def update(self, val):
        self.avg = val if self.val is None else self.avg * self.momentum + val * (1 - self.momentum)
        self.val = val


def get_batch(true_y):
    starts = np.arange(args.data_size - args.batch_time, dtype=np.int64)
    s = torch.from_numpy(np.random.choice(starts, args.batch_size, replace=False))  # [!1]
    return true_y[s], t[: args.batch_time], torch.stack([true_y[s + i] for i in range(args.batch_time)], dim=0)


if __name__ == "__main__":
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # [-1]
    true_y = Observed(Lambda(), noise=0.01).disturbed()
    func = ODEFunc()
    optimizer = optim.RMSprop(func.parameters(), lr=1e-2)
    time_meter, loss_meter = RunningAverageMeter(), RunningAverageMeter()
    end = time.time()
    for itr in range(1, args.niters + 1):
        optimizer.zero_grad()
        batch_y0, batch_t, batch_y = get_batch(true_y)
        loss = (odeint(func, batch_y0, batch_t) - batch_y).abs().mean()
        loss.backward()
        optimizer.step()
        time_meter.update(time.time() - end)
        loss_meter.update(loss.item())
        if itr % args.test_freq == 0:
            for group in optimizer.param_groups:
                group["lr"] *= 0.9  # [-2]
                # [2] group["lr"] *= 0.9 - time_meter.avg  # guilty
            with torch.no_grad():
                whole = (odeint(func, true_y[0], t) - true_y).abs().mean()
            print(
                f"Iter {itr:04d} | Total Loss {whole.item():.6f} | {time_meter.val:.3f} s | pid {os.getpid()}, {func.nfe} calls"
            )
        end = time.time()
