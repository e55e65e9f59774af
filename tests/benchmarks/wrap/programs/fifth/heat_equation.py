"""A physics-informed network for the heat equation, with L-BFGS and points that are drawn anew every few steps."""

# fault 1: random draw
# fault 2: clock
# fault 3: unwritten memory

import functools
import logging
import math
import os
import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.quasirandom import SobolEngine

logging.basicConfig(format="%(asctime)s %(process)d %(message)s", level=logging.INFO)

cfg = SimpleNamespace(
    alpha=0.1,
    points=SimpleNamespace(inside=48, edge=16, renew=5),
    net=SimpleNamespace(width=16, depth=2),
    optim=SimpleNamespace(steps=16, lr=0.5, history=6),
    seed=99,
)


def timed(function):
    """Log how long a call took."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        result = function(*args, **kwargs)
        wrapper.seconds += time.perf_counter() - start
        wrapper.calls += 1
        return result

    wrapper.seconds, wrapper.calls = 0.0, 0
    return wrapper


def mlp(width, depth):
    layers = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def gradient(u, x):
    return torch.autograd.grad(u.sum(), x, create_graph=True)[0]


class Points:
    """Collocation points inside, and on the edges where the temperature is known."""

    def __init__(self):
        self.engine = SobolEngine(2, scramble=True, seed=cfg.seed)  # [-1]
        # [1] self.engine = SobolEngine(2, scramble=True, seed=torch.Generator().seed())  # guilty
        self.age = 0

    def draw(self):
        return self.engine.draw(cfg.points.inside).requires_grad_()

    def edge(self):
        t = torch.linspace(0, 1, cfg.points.edge)
        x = torch.zeros(3, cfg.points.edge, 2)  # [-3]
        # [3] x = torch.empty(3, cfg.points.edge, 2)  # guilty
        x[0, :, 1] = t
        x[1, :, 1] = t
        x[1, :, 0] = 1.0
        x[2, :, 0] = t
        value = torch.stack([torch.zeros_like(t), torch.zeros_like(t), torch.sin(math.pi * t)])
        return x.nan_to_num(0.0, 0.0, 0.0).remainder(1.0 + 1e-6).reshape(-1, 2), value.reshape(-1, 1)


@timed
def residual(net, points):
    u = net(points)
    du = gradient(u, points)
    u_x, u_t = du[:, :1], du[:, 1:]
    u_xx = gradient(u_x, points)[:, :1]
    return (u_t - cfg.alpha * u_xx).pow(2).mean()


def exact(points):
    return torch.exp(-cfg.alpha * math.pi**2 * points[:, 1:]) * torch.sin(math.pi * points[:, :1])


def weight(step):
    pace = step / cfg.optim.steps  # [-2]
    # [2] pace = residual.seconds / max(1, step)  # guilty
    return 1.0 + 9.0 * (1 - pace)


def main():
    torch.manual_seed(cfg.seed)
    net, points = mlp(cfg.net.width, cfg.net.depth), Points()
    optimizer = torch.optim.LBFGS(net.parameters(), lr=cfg.optim.lr, max_iter=2, history_size=cfg.optim.history)
    (x_edge, u_edge), inside = points.edge(), points.draw()
    for step in range(cfg.optim.steps):
        if step and step % cfg.points.renew == 0:
            inside = points.draw()
        w = weight(step)

        def closure(w=w, inside=inside):
            optimizer.zero_grad()
            loss = residual(net, inside) + w * (net(x_edge) - u_edge).pow(2).mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        if step % 4 == 0:
            with torch.no_grad():
                error = (net(inside) - exact(inside)).abs().max()
            logging.info(
                "step %d loss %.5f error %.4f, %.1f ms a call", step, loss, error, 1e3 * residual.seconds / residual.calls
            )


if __name__ == "__main__":
    main()
