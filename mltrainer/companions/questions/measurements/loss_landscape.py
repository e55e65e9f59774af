"""The loss landscape around a trained model: its loss along random directions, and its curvature."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered
from mltrainer.companions.questions.findings import ExplorerSettings
from mltrainer.companions.questions.loss_landscape import (
    Landscape,
    Line,
    OfSplits,
    Plane,
    Rise,
    Sharpness,
    Spectrum,
)
from mltrainer.companions.questions.measurements.explorer import Ticker
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tools.loading import check_data
from mltrainer.trainers.native.data.addresses import Batch, evaluation_batches
from mltrainer.trainers.native.objective import summed
from mltrainer.trainers.native.optimization.averages import measure_statistics
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.session import Session

ITERATIONS = 40  # most iterations of Lanczos' method
EXACT_ENOUGH = 0.01  # residual of both ends of the spectrum, as a share of the larger one
TINY = 1e-300  # a gradient of 0 has no direction, and the loss does not rise along it
RHO, ADAPTIVE_RHO = 0.05, 0.5  # of SAM (Foret et al., 2021) and of its adaptive form (Kwon et al., 2021), their defaults


def measure(
    session: Session, _: ExplorerSettings, *, points: int, samples: int, span: float, checkpoint: str, files: dict[str, str]
) -> Landscape:
    """Return the loss along one and over two directions around a run's checkpoint, and the sharpness there.

    Args:
        session: The session of the run's config.
        points: Points on each side of the plane; an odd number.
        samples: Number of samples of each split, evenly spaced.
        span: Distance to either side; 1: the weights' norm.
        checkpoint: Folder of the checkpoint, relative to the project.
        files: Digests of its files by name.
    """
    load_checkpoint(session, session.root / checkpoint, files)
    surface = Surface(session, samples)
    ticker = Ticker(session, 2 * points - 1 + points**2 + ITERATIONS)
    seed = session.config.seed
    first, second = (surface.scaled_by_filter(surface.drawn(seed, "landscape", nr)) for nr in range(2))
    along, across = spread(span, 2 * points - 1), spread(span, points)
    center = {split: surface.loss(split) for split in surface.samples}
    line = [_losses(surface, ticker, ("train", "validation"), (x, first)) for x in along]
    plane = [[_losses(surface, ticker, ("train",), (x, first), (y, second))[0] for x in across] for y in across]
    return Landscape(
        parameters=parameters_of(session.model),
        samples=OfSplits.model_validate(surface.samples),
        center=OfSplits.model_validate(center),
        line=Line(places=along, train=[row[0] for row in line], validation=[row[1] for row in line]),
        plane=Plane(places=across, losses=plane),
        sharpness=sharpness(surface, ticker),
    )


def spread(span: float, count: int) -> list[float]:
    """Return `count` (odd) places from -span to span, 0 among them exactly."""
    return [span * (2 * nr - (count - 1)) / (count - 1) for nr in range(count)]


def _losses(surface: Surface, ticker: Ticker, splits: Sequence[str], *moves: tuple[float, Vector]) -> list[float]:
    """Return the loss over each split at a place, with the statistics of batch normalization measured there."""
    with surface.moved(*moves, renew=True):
        losses = [surface.loss(split) for split in splits]
    ticker(losses[0])
    return losses


# --- sharpness ------------------------------------------------------------------------------------


def sharpness(surface: Surface, tick: Any) -> Sharpness:
    """Return the ends of the Hessian's spectrum, and the rise of the loss at the worst point nearby."""
    surface.choose_product()
    gradient = surface.gradient()
    return Sharpness.of(
        lanczos(surface, surface.config.seed, tick),
        method=surface.method,
        gradient_norm=float(norm(gradient)),
        sam=Rise(rho=RHO, rise=_rise(surface, gradient)),
        adaptive=Rise(rho=ADAPTIVE_RHO, rise=_adaptive_rise(surface, gradient)),
    )


def _rise(surface: Surface, gradient: Vector) -> float:
    """Return the rise of the loss after a step of length `RHO` up the gradient (Foret et al., 2021, arXiv 2010.01412)."""
    return _risen(surface, gradient, RHO / float(norm(gradient).clamp_min(TINY)))


def _adaptive_rise(surface: Surface, gradient: Vector) -> float:
    """Return the same with each weight's step in proportion to its size (Kwon et al., 2021, arXiv 2102.11600)."""
    scaled = gradient * surface.at.abs()
    return _risen(surface, scaled * surface.at.abs(), ADAPTIVE_RHO / float(norm(scaled).clamp_min(TINY)))


def _risen(surface: Surface, direction: Vector, far: float) -> float:
    before = surface.loss()
    with surface.moved((far, direction)):
        return surface.loss() - before


def lanczos(surface: Surface, seed: int, tick: Any) -> Spectrum:
    """Return the largest and the smallest eigenvalue of the Hessian (Lanczos, 1950), from a start that the seed addresses.

    Vectors are not made orthogonal again: eigenvalues may appear twice then, and the outermost ones stay right (Paige, 1980).
    """
    vector = surface.drawn(seed, "lanczos", 0)
    vector = vector / norm(vector).to(vector)
    before, diagonal, beside = torch.zeros_like(vector), [], [0.0]
    largest = smallest = residual = math.nan
    for _ in range(ITERATIONS):
        image = surface.product(vector)
        diagonal.append(float(image.double() @ vector.double()))
        rest = image - diagonal[-1] * vector - beside[-1] * before
        beside.append(float(norm(rest)))
        if not math.isfinite(beside[-1]):
            break
        values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, beside[1:-1]))
        largest, smallest = float(values[-1]), float(values[0])
        residual = beside[-1] * max(abs(float(vectors[-1, nr])) for nr in (0, -1))
        tick(largest)
        if residual <= EXACT_ENOUGH * max(abs(largest), abs(smallest)):
            break
        before, vector = vector, rest / beside[-1]
    return Spectrum(largest=largest, smallest=smallest, residual=residual, iterations=len(diagonal))


def _tridiagonal(diagonal: list[float], beside: list[float]) -> torch.Tensor:
    side = torch.tensor(beside, dtype=torch.float64)
    return torch.diag(torch.tensor(diagonal, dtype=torch.float64)) + torch.diag(side, 1) + torch.diag(side, -1)


Vector = Tensor  # every trained number of the model, parameter by parameter
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
        self.at = joined(self.parameters)
        self._batches = {name: self._read(session, name, samples) for name in ("train", "validation")}
        self.samples = {name: len(session.task.split(name).spread(samples)) for name in self._batches}
        self.product = self.exact_product
        self.method = "double backward"

    def _read(self, session: Session, name: str, samples: int) -> list[Batch]:
        split = session.task.split(name)
        return list(evaluation_batches(split, split.spread(samples), self.config, name))

    def parts(self, vector: Vector) -> list[Tensor]:
        """Return a vector's numbers in the shapes of the parameters."""
        parts = vector.split([p.numel() for p in self.parameters])
        return [part.view_as(p) for part, p in zip(parts, self.parameters, strict=True)]

    @torch.no_grad()
    def _place(self, vector: Vector) -> None:
        for p, part in zip(self.parameters, self.parts(vector), strict=True):
            p.copy_(part)

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
            self._place(sum((far * direction for far, direction in by), self.at))
            if renew:
                measure_statistics(self._task, self.model, self.config, self._batches["train"])
                self.model.eval()
            yield
        finally:
            self._place(self.at)  # copied back, not subtracted: a subtraction would leave rounding errors
            with torch.no_grad():
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
        return self._mean_of(lambda loss: torch.autograd.grad(loss, self.parameters, materialize_grads=True))

    def exact_product(self, vector: Vector) -> Vector:
        """Return the Hessian of the training loss times a vector, by differentiating twice (Pearlmutter, 1994)."""

        def along(loss: Tensor) -> Iterable[Tensor]:
            first = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
            # Gradients that depend on no weight any more, as of a linear part, add nothing to the second derivative.
            terms = [(g * v).sum() for g, v in zip(first, self.parts(vector), strict=True) if g.requires_grad]
            total = torch.stack(terms).sum() if terms else None
            return (
                map(torch.zeros_like, first)
                if total is None
                else torch.autograd.grad(total, self.parameters, materialize_grads=True)
            )

        with sdpa_kernel(SDPBackend.MATH):  # the fused attentions have no second derivative
            return self._mean_of(along)

    def _mean_of(self, derivative: Callable[[Tensor], Iterable[Tensor]]) -> Vector:
        """Return the mean per item of a derivative of the batches' summed losses."""
        total, count = torch.zeros_like(self.at), 0.0
        with torch.enable_grad():
            for loss, items in self._losses():
                count += items
                total += joined(derivative(loss))
        return total / count

    def near_product(self, vector: Vector) -> Vector:
        """Return the Hessian's product by central differences of gradients, for operations without a second derivative."""
        # Relative to both lengths: a smaller step drowns in float32's rounding, a larger one leaves the neighbourhood.
        far = STEP * float(norm(self.at)) / float(norm(vector))
        with self.moved((far, vector)):
            after = self.gradient()
        with self.moved((-far, vector)):
            before = self.gradient()
        return (after - before) / (2 * far)

    def drawn(self, *address: Any) -> Vector:
        """Return normal numbers, addressed by a seed, a purpose and a number; the same on every device."""
        generator = torch.Generator().manual_seed(seeds.key(*address))
        return joined(torch.randn(p.shape, generator=generator).to(p) for p in self.parameters)

    def scaled_by_filter(self, direction: Vector) -> Vector:
        """Return a direction whose filters have the norms of the weights' (Li et al., 2018, arXiv 1712.09913, section 4).

        A filter is the weights of one unit: a row of a matrix, a kernel of a convolution. Biases and scales stay where they are.
        """
        pairs = zip(self.parts(direction), self.parts(self.at), strict=True)
        return joined(_scaled(d, p) if p.dim() > 1 else torch.zeros_like(d) for d, p in pairs)

    def choose_product(self) -> None:
        """Take the exact product where all operations can be differentiated twice."""
        try:
            once = self._is_differentiable_once()
            self.exact_product(torch.ones_like(self.at))
        except (RuntimeError, NotImplementedError):
            once = True
        if once:
            self.product, self.method = self.near_product, "finite differences of gradients"

    def _is_differentiable_once(self) -> bool:
        """Return True where an operation has no second derivative: torch skips it silently where it leads to no weight."""
        loss, _ = next(self._losses())
        first = torch.autograd.grad(loss, self.parameters, create_graph=True, materialize_grads=True)
        nodes = [g.grad_fn for g in first if g.grad_fn is not None]
        seen = set(nodes)
        while nodes:
            node = nodes.pop()
            if "Error" in node.name():
                return True
            more = {child for child, _ in node.next_functions if child is not None} - seen
            seen |= more
            nodes += more
        return False


def joined(parts: Iterable[Tensor]) -> Vector:
    """Return the numbers of some tensors as one vector."""
    return torch.cat([part.detach().flatten() for part in parts])


def norm(vector: Vector) -> Tensor:
    """Return the Euclidean norm, in float64, as the sum runs over every weight of the model."""
    length: Tensor = torch.linalg.vector_norm(vector.double())
    return length


def _scaled(direction: Tensor, like: Tensor) -> Tensor:
    rows, weights = direction.flatten(1), like.flatten(1)
    factor: Tensor = torch.linalg.vector_norm(weights, dim=1, keepdim=True)
    factor = factor / torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min(1e-12)
    return (rows * factor).view_as(direction)


def parameters_of(model: nn.Module) -> int:
    """Return the number of a model's trained parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
