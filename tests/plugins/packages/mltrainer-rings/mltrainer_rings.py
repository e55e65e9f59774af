"""A task about two rings of points."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import mltrainer


class Rings(mltrainer.Task):
    """Which of two rings a point lies on."""

    def __init__(self, n: int = 300) -> None:
        self.n = n

    def samples(self) -> TensorDataset:
        """Return points and their rings."""
        angle, ring = torch.linspace(0, 40, self.n), torch.arange(self.n) % 2
        return TensorDataset(torch.stack([angle.cos(), angle.sin()], 1) * (1 + ring[:, None]), ring)

    def model(self) -> nn.Module:
        """Return a small network."""
        return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
