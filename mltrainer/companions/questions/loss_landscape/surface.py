"""The loss of a trained model as a function of its weights: values, gradients, and products with the Hessian."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tools.loading import check_data
from mltrainer.trainers.native.data.addresses import Batch, evaluation_batches
from mltrainer.trainers.native.objective import summed
from mltrainer.trainers.native.optimization.averages import measure_statistics
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.session import Session

Vector = list[Tensor]
Gradients = tuple[Tensor | None, ...]
STEP = 1e-3  # step of the finite differences, as a share of the weights' norm


def load_checkpoint(session: Session, folder: Path, expected: dict[str, str]) -> None:
    """Load the delivered weights of a run's checkpoint into a session's model.

    Raises:
        GateError: A file or the data differs from the run's record.
        InputError: The task's model has other tensors.
    """
    tree, manifest = load(folder, expected)
    check_data(session.task, manifest)
    try:
        session.model.load_state_dict(delivered(tree), strict=True)
    except RuntimeError as error:
        what = f"the task's model has other tensors: {error}"
        raise InputError(what, where=str(folder), hint="bring code and data back") from error
    session.task.strategies.release(session.model)  # adapters hold the delivered weights beside them


class Surface:
    """The mean loss over some samples, in evaluation mode and full precision.

    Args:
        session: Session whose model has the center's weights.
        samples: Number of training and of validation samples, evenly spaced.
    """

    def __init__(self, session: Session, samples: int) -> None:
        self._task, self.config, self.model = session.task.task, session.config, session.model
        self.model.eval()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.at = [p.detach().clone() for p in self.parameters]
        self._batches = {name: self._read(session, name, samples) for name in ("train", "validation")}
        self.samples = {name: len(session.task.split(name).spread(samples)) for name in self._batches}
        self.product = self.exact_product
        self.method = "double backward"

    def _read(self, session: Session, name: str, samples: int) -> list[Batch]:
        split = session.task.split(name)
        return list(evaluation_batches(split, split.spread(samples), self.config, name))

    @contextlib.contextmanager
    def moved(self, *by: tuple[float, Vector], renew: bool = False) -> Iterator[None]:
        """Move the weights along directions for a block; afterwards model and statistics are as before.

        Args:
            *by: Distance along each direction.
            renew: Measure the statistics of batch normalization again there: those of other weights do not fit.
        """
        # Cloned before anything moves: a new measurement of the statistics writes into these tensors.
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        try:
            with torch.no_grad():
                for nr, (p, start) in enumerate(zip(self.parameters, self.at, strict=True)):
                    p.copy_(sum((far * direction[nr] for far, direction in by), start))
            if renew:
                measure_statistics(self._task, self.model, self.config, self._batches["train"])
                self.model.eval()
            yield
        finally:
            with torch.no_grad():
                for p, start in zip(self.parameters, self.at, strict=True):
                    # Copied back, not subtracted: a subtraction would leave rounding errors.
                    p.copy_(start)
                for buffer, before in buffers:
                    buffer.copy_(before)

    @torch.no_grad()
    def loss(self, split: str = "train") -> float:
        """Return the mean loss over a split's samples."""
        parts = [(float(loss), items) for loss, items in self._losses(split)]
        return sum(loss for loss, _ in parts) / sum(items for _, items in parts)

    def _losses(self, split: str = "train") -> Iterator[tuple[Tensor, float]]:
        """Yield each batch's loss, summed over its items, and the number of items."""
        for number, batch in enumerate(self._batches[split]):
            # Seeded by the batch alone: the loss at two places differs by the weights, not by the task's draws.
            seeds.seed_everything(seeds.key(self.config.seed, "evaluate", number))
            output, target = self._task.forward(self.model, batch)
            items = self._task.loss_items(target)
            yield summed(self._task.loss(full(output), target).double(), items), float(items)

    def gradient(self) -> Vector:
        """Return the gradient of the mean loss over the training samples."""
        return self._mean_of(lambda loss: torch.autograd.grad(loss, self.parameters, allow_unused=True))

    def exact_product(self, vector: Vector) -> Vector:
        """Return the Hessian of the training loss times a vector, by differentiating twice (Pearlmutter, 1994)."""

        def along(loss: Tensor) -> Gradients:
            first: Gradients = torch.autograd.grad(loss, self.parameters, create_graph=True, allow_unused=True)
            # Gradients that depend on no weight any more, as of a linear part, add nothing to the second derivative.
            parts = [(g * v).sum() for g, v in zip(first, vector, strict=True) if g is not None and g.requires_grad]
            return torch.autograd.grad(torch.stack(parts).sum(), self.parameters, allow_unused=True) if parts else ()

        with sdpa_kernel(SDPBackend.MATH):  # the fused attentions have no second derivative
            return self._mean_of(along)

    def _mean_of(self, derivative: Callable[[Tensor], Gradients]) -> Vector:
        """Return the mean per item of a derivative of the batches' summed losses."""
        total, count = [torch.zeros_like(p) for p in self.parameters], 0.0
        with torch.enable_grad():
            for loss, items in self._losses():
                count += items
                for place, part in enumerate(derivative(loss)):
                    if part is not None:
                        total[place] += part.detach()
        return [part / count for part in total]

    def near_product(self, vector: Vector) -> Vector:
        """Return the Hessian's product by central differences of gradients, for operations without a second derivative."""
        # Relative to both lengths: a smaller step drowns in float32's rounding, a larger one leaves the neighbourhood.
        far = STEP * float(norm(self.at)) / float(norm(vector))
        with self.moved((far, vector)):
            after = self.gradient()
        with self.moved((-far, vector)):
            before = self.gradient()
        return [(a - b) / (2 * far) for a, b in zip(after, before, strict=True)]

    def choose_product(self) -> None:
        """Take the exact product where all operations can be differentiated twice."""
        try:
            once = self._is_differentiable_once()
            self.exact_product([torch.ones_like(p) for p in self.parameters])
        except (RuntimeError, NotImplementedError):
            once = True
        if once:
            self.product, self.method = self.near_product, "finite differences of gradients"

    def _is_differentiable_once(self) -> bool:
        """Return True where an operation has no second derivative: torch skips it silently where it leads to no weight."""
        loss, _ = next(self._losses())
        first: Gradients = torch.autograd.grad(loss, self.parameters, create_graph=True, allow_unused=True)
        nodes = [g.grad_fn for g in first if g is not None and g.grad_fn is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            if "Error" in node.name():
                return True
            more = {child for child, _ in node.next_functions if child is not None} - seen
            seen |= more
            nodes += more
        return False


def norm(vector: Vector) -> Tensor:
    """Return the Euclidean norm of all numbers of a vector together."""
    return torch.stack([part.double().square().sum() for part in vector]).sum().sqrt()


def drawn(like: Vector, *address: Any) -> Vector:
    """Return normal numbers of the same shapes, addressed by a seed, a purpose and a number; the same on every device."""
    generator = torch.Generator().manual_seed(seeds.key(*address))
    return [torch.randn(p.shape, generator=generator).to(p) for p in like]


def scaled_by_filter(direction: Vector, like: Vector) -> Vector:
    """Return a direction whose filters have the norms of the weights' (Li et al., 2018, arXiv 1712.09913, section 4).

    A filter is the weights of one unit: a row of a matrix, a kernel of a convolution. Biases and scales stay where they are.
    """
    return [_scaled(d, p) if p.dim() > 1 else torch.zeros_like(d) for d, p in zip(direction, like, strict=True)]


def _scaled(direction: Tensor, like: Tensor) -> Tensor:
    rows, weights = direction.flatten(1), like.flatten(1)
    factor: Tensor = torch.linalg.vector_norm(weights, dim=1, keepdim=True)
    factor = factor / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1e-12)
    return (rows * factor).view_as(direction)


def parameters_of(model: nn.Module) -> int:
    """Return the number of a model's trained parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
