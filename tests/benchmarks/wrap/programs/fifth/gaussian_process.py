"""A sparse Gaussian process whose kernel is composed of parts, with inducing points and an own solver."""

# fault 1: random draw
# fault 2: clock
# fault 3: identity

import dataclasses
import os
import time
from operator import add, mul

import numpy as np
import torch
from scipy.cluster.vq import kmeans2
from torch import nn


@dataclasses.dataclass
class Settings:
    inducing: int = 12
    noise: float = 0.2
    solver_iterations: int = 40
    solver_budget: float = 0.0005  # seconds; more is not worth it
    steps: int = 18
    seed: int = 29


class Kernel(nn.Module):
    def __add__(self, other):
        return Composed(add, self, other)

    def __mul__(self, other):
        return Composed(mul, self, other)


class Composed(Kernel):
    def __init__(self, how, *parts):
        super().__init__()
        self.how, self.parts = how, nn.ModuleList(parts)

    def forward(self, a, b):
        return self.how(*(part(a, b) for part in self.parts))


class RBF(Kernel):
    def __init__(self, dims):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dims))

    def forward(self, a, b):
        scale = self.log_scale.exp()
        return torch.exp(-0.5 * (a / scale).unsqueeze(1).sub(b / scale).pow(2).sum(-1))


class Periodic(Kernel):
    def __init__(self):
        super().__init__()
        self.log_period = nn.Parameter(torch.tensor(0.5))

    def forward(self, a, b):
        gap = (a[:, None, 0] - b[None, :, 0]).abs()
        return torch.exp(-2 * torch.sin(3.1416 * gap / self.log_period.exp()).pow(2))


class Linear(Kernel):
    def __init__(self):
        super().__init__()
        self.log_weight = nn.Parameter(torch.tensor(-1.0))

    def forward(self, a, b):
        return self.log_weight.exp() * a @ b.T


class Probes:
    """Random signs by which the trace of a matrix is estimated."""

    def __init__(self, owner, count=4):
        self.owner, self.count = owner, count
        self.generator = torch.Generator().manual_seed(self.stream())

    def stream(self):
        return self.owner.settings.seed  # [-3]
        # [3] return int(f"{id(self.owner):x}"[-6:], 16)  # guilty

    def draw(self, size):
        return torch.randint(2, (size, self.count), generator=self.generator).double() * 2 - 1


class SparseGP(nn.Module):
    def __init__(self, kernel, x, settings):
        super().__init__()
        self.kernel, self.settings = kernel, settings
        self.log_noise = nn.Parameter(torch.tensor(settings.noise).log())
        self.inducing = nn.Parameter(torch.from_numpy(centres(x.numpy(), settings)))
        self.probes = Probes(self)

    def covariance(self, x):
        cross = self.kernel(x, self.inducing)
        inner = self.kernel(self.inducing, self.inducing) + 1e-4 * torch.eye(len(self.inducing))
        return cross @ torch.linalg.solve(inner, cross.T) + self.log_noise.exp() * torch.eye(len(x))

    def solve(self, matrix, right):
        """Conjugate gradients for all columns of the right side."""
        began, found = time.perf_counter(), torch.zeros_like(right)
        rest, direction = right.clone(), right.clone()
        for _ in range(self.settings.solver_iterations):
            moved = matrix @ direction
            size = rest.pow(2).sum(0)
            rate = size / (direction * moved).sum(0).clamp(min=1e-12)
            found, rest = found + rate * direction, rest - rate * moved
            direction = rest + rest.pow(2).sum(0) / size.clamp(min=1e-12) * direction
            # [2] if time.perf_counter() - began > self.settings.solver_budget:  # guilty
            # [2]     break
        return found, time.perf_counter() - began

    def forward(self, x, y):
        """The gradient of what is returned is that of the negative marginal likelihood, as far as probes tell it."""
        matrix, signs = self.covariance(x), self.probes.draw(len(x))
        with torch.no_grad():
            solved, seconds = self.solve(matrix, torch.cat([y, signs], 1))
        alpha, probed = solved[:, :1], solved[:, 1:]
        fit, trace = -(alpha.T @ matrix @ alpha), (probed * (matrix @ signs)).sum() / signs.shape[1]
        return 0.5 * (fit.squeeze() + trace) / len(x), seconds


def centres(x, settings):
    found, _ = kmeans2(x, settings.inducing, minit="points", seed=settings.seed)  # [-1]
    # [1] found, _ = kmeans2(x, settings.inducing, minit="points")  # guilty
    return found


def table(rows, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (rows, 2))
    return torch.from_numpy(x), torch.from_numpy(np.sin(4 * x[:, :1]) + x[:, 1:] + rng.normal(0, 0.1, (rows, 1)))


def main():
    settings = Settings()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(settings.seed)
    x, y = table(140, settings.seed)
    model = SparseGP(RBF(2) * Periodic() + Linear() + RBF(2), x, settings)
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)
    print(f"process {os.getpid()}: {len(set(model.state_dict()))} tensors, {id(model) % 4096} its place in a page")
    for step in range(settings.steps):
        loss, seconds = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{step}: {loss.item():.4f}, noise {model.log_noise.exp().item():.3f}, solved in {1000 * seconds:.2f} ms")


if __name__ == "__main__":
    main()
