"""Adversarial training: a model learns from inputs that were moved, within a bound, to where its loss is larger.

FGSM takes one step along the gradient's sign (Goodfellow et al., 2015, arXiv 1412.6572), PGD several from a random start (Madry
et al., 2018, arXiv 1706.06083); TRADES penalizes other predictions for moved inputs (Zhang et al., 2019, arXiv 1901.08573).
The bound is on each number of the input (the maximum norm).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.companions.strategies.inputs import input_of, with_input
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.strategy import Forward, MicroBatch, Strategy, Training
from mltrainer.tasks.structures import mapped
from mltrainer.tasks.task import Task

STEP_SHARE = 2.5  # largest sum of all steps, in bounds (Madry et al., 2018, the challenge's settings)
TRADES_START = 0.001  # deviation of the start around the given inputs, as in the paper's code, in units of the scale
Objective = Callable[[Any, Any], Tensor]


class Adversarial(Strategy[configs.Adversarial]):
    """Inputs that are moved to where the loss is larger."""

    name = "adversarial"
    _attack: Attack

    def __init__(self, settings: configs.Adversarial, key: str, root: Path) -> None:
        super().__init__(settings, key, root)
        self.share = settings.beta if settings.method == "trades" else settings.weight

    @property
    def left(self) -> float:
        """The factor of the loss of the given inputs: all of it beside the term of TRADES."""
        return 1.0 if self.settings.method == "trades" else super().left

    def begin(self, training: Training) -> str:
        """Return a line on the attack."""
        self._attack = self._made(training)
        steps = 1 if self.settings.method == "fgsm" else self.settings.steps
        return f"learns from {self._attack.place.parts_name} moved by {self.settings.method}, {steps} steps"

    def _made(self, training: Training) -> Attack:
        recurrent = any(isinstance(module, nn.RNNBase) for module in training.model.modules())
        if recurrent and training.config.device == "cuda":  # a limit of cuDNN, whose own message does not help
            what = "inputs are moved in evaluation mode, in which cuDNN gives no gradient of recurrent layers"
            raise InputError(what, where=self.key, hint="device: cpu, or a model without recurrent layers")
        return Attack(training, _place(training, self.settings, self.key), self.key)

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the loss of the moved inputs; for TRADES the distance between the predictions of moved and given inputs."""
        attack, settings = self._attack, self.settings
        with torch.autocast(attack.device, enabled=False):
            moved = self._moved(micro.batch)
        outputs, targets = attack.forward(micro.batch, moved)
        if settings.method != "trades":
            return attack.task.loss(_full(outputs), targets)
        return _distance(_full(outputs), functional.softmax(self._scores(micro.outputs), dim=1))

    def _moved(self, batch: Any) -> Tensor:
        attack, settings = self._attack, self.settings
        if settings.method == "fgsm":
            return attack.climb(batch, 1, 1.0, attack.zeros(batch), attack.loss)
        if settings.method == "pgd":
            return attack.pgd(batch, settings.steps, self._step)
        with evaluating(attack.model), torch.no_grad():
            given = functional.softmax(self._scores(attack.forward(batch, attack.zeros(batch))[0]), dim=1)
        zeros = attack.zeros(batch)
        start = torch.randn_like(zeros) * TRADES_START / settings.epsilon
        return attack.climb(batch, settings.steps, self._step, start, lambda outputs, _: _distance(self._scores(outputs), given))

    @property
    def _step(self) -> float:
        """The length of a step, as a share of the bound."""
        size = self.settings.step_size
        return STEP_SHARE / self.settings.steps if size is None else size / self.settings.epsilon

    def _scores(self, outputs: Any) -> Tensor:
        """Return outputs that are scores of classes.

        Raises:
            InputError: The outputs are not scores of classes.
        """
        if not isinstance(outputs, Tensor) or outputs.dim() != 2 or outputs.shape[1] < 2:
            what = "trades compares scores of classes [samples, classes], and the model's outputs are none"
            raise InputError(what, where=f"{self.key}.method", hint="method: pgd")
        return outputs.float()

    def views(self, training: Training) -> dict[str, Forward]:
        """Return the model's forward pass on inputs that PGD moved, under `robust`."""
        attack = self._made(training)

        def forward(batch: Any) -> tuple[Any, Any]:
            with torch.autocast(attack.device, enabled=False):
                moved = attack.pgd(batch, self.settings.steps, self._step)
            return attack.forward(batch, moved)

        return {"robust": forward}


def _distance(outputs: Tensor, given: Tensor) -> Tensor:
    """Return KL(given || outputs), the mean over the samples."""
    return functional.kl_div(functional.log_softmax(outputs, dim=1), given, reduction="batchmean")


def _full(outputs: Any) -> Any:
    return mapped(lambda t: t.float() if t.is_floating_point() else t, outputs)


# --- the attack ---------------------------------------------------------------------------------------


class Attack:
    """A search for inputs with a larger loss; a move is counted in bounds, from -1 to 1 for each number.

    Args:
        training: The training with the model and its task.
        place: The moved inputs or embeddings.
        key: Config key of the strategy.
    """

    def __init__(self, training: Training, place: Place, key: str) -> None:
        self.task, self.model, self.place, self._key = training.task, training.model, place, key
        self.device = training.config.device
        self._copies = training.config.task.use is not None

    def forward(self, batch: Any, moved: Tensor) -> tuple[Any, Any]:
        """Return outputs and targets of a batch with its inputs moved."""
        # A custom task may change its batch, which is used again.
        batch = mapped(Tensor.clone, batch) if self._copies else batch
        return self.place.forward(self.task, self.model, batch, moved)

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """Return the task's loss; draws in it do not change the model's later draws."""
        with seeds.kept():
            return self.task.loss(outputs, targets)

    def zeros(self, batch: Any) -> Tensor:
        """Return no move."""
        batch = mapped(Tensor.clone, batch) if self._copies else batch
        return self.place.zeros(self.task, self.model, batch)

    def pgd(self, batch: Any, steps: int, size: float) -> Tensor:
        """Return the move of projected gradient ascent on the task's loss from a random start."""
        return self.climb(batch, steps, size, torch.empty_like(self.zeros(batch)).uniform_(-1, 1), self.loss)

    def climb(self, batch: Any, steps: int, size: float, start: Tensor, objective: Objective) -> Tensor:
        """Return the move after some steps along the sign of an objective's gradient, each kept within the bound.

        Raises:
            InputError: The objective does not depend on the inputs.
        """
        moved = self.place.kept(self.task, batch, start)
        # In evaluation mode: no dropout hides the gradient, and no statistics are taken of inputs on their way.
        with evaluating(self.model), torch.enable_grad():
            for _ in range(steps):
                moved = moved.detach().requires_grad_()
                outputs, targets = self.forward(batch, moved)
                loss = objective(_full(outputs), targets)
                if not loss.requires_grad:
                    raise self._unreached()
                (slope,) = torch.autograd.grad(loss, moved, allow_unused=True)
                if slope is None:
                    raise self._unreached()
                moved = self.place.kept(self.task, batch, (moved.detach() + size * slope.sign()).clamp(-1, 1))
        return moved.detach()

    def _unreached(self) -> InputError:
        what = "the loss has no gradient by the model's inputs"
        return InputError(what, where=self._key, hint="let forward() compute with the batch's tensors, the moved one among them")


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluate for a block; module by module, as one that was held in evaluation stays so."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


# --- the moved inputs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """The first tensor of a batch.

    Attributes:
        bound: Largest move of a number; one bound for all, or one for each column.
        limits: Smallest and largest allowed input; None: no limits.
        key: Config key of the strategy.
    """

    bound: Tensor
    limits: Sequence[float] | None
    key: str
    parts_name = "inputs"

    def _found(self, task: Task, batch: Any) -> tuple[Any, Tensor]:
        """Return the moved tensor's place in a batch, and the tensor.

        Raises:
            InputError: The batch has no tensor of numbers.
        """
        place, part = input_of(task, batch)
        if not isinstance(part, Tensor) or not (part.is_floating_point() or part.dtype == torch.uint8):
            kind = str(part.dtype).removeprefix("torch.") if isinstance(part, Tensor) else type(part).__name__
            found = f"{kind}, such as tokens," if isinstance(part, Tensor) else kind
            hint = "let a batch be a tuple or a dict of tensors, the input first, or name the embedding under layer"
            raise InputError(f"a batch begins with {found} which cannot be moved", where=self.key, hint=hint)
        return place, part

    def zeros(self, task: Task, _model: nn.Module, batch: Any) -> Tensor:
        """Return no move."""
        _, x = self._found(task, batch)
        return torch.zeros(x.shape, dtype=_wide(x).dtype, device=x.device)

    def kept(self, task: Task, batch: Any, moved: Tensor) -> Tensor:
        """Return a move that leads nowhere beyond the limits."""
        if self.limits is None:
            return moved
        given, bound = _wide(self._found(task, batch)[1]), self.bound.to(moved.device)
        return torch.where(bound > 0, (self._limited(given, given + moved * bound) - given) / bound, 0.0)

    def _limited(self, given: Tensor, x: Tensor) -> Tensor:
        """Return inputs clamped to the limits, or to given values beyond them."""
        assert self.limits is not None
        low, high = self.limits
        return torch.minimum(torch.maximum(x, given.clamp(max=low)), given.clamp(min=high))

    def forward(self, task: Task, model: nn.Module, batch: Any, moved: Tensor) -> tuple[Any, Any]:
        """Return outputs and targets of a batch with its inputs moved."""
        place, given = self._found(task, batch)
        given = _wide(given)
        x = given + moved * self.bound.to(moved.device)
        if self.limits is not None:
            # Without the gradient of a clamp, which is 0 where rounding leads beyond a limit: the next step could not lead back.
            x = x + (self._limited(given, x) - x).detach()
        return task.forward(model, with_input(batch, place, x))


def _wide(x: Tensor) -> Tensor:
    """Return inputs in fp32, or fp64 where they are given so."""
    return x if x.dtype == torch.float64 else x.float()


@dataclass(frozen=True)
class Embeddings:
    """The outputs of a model's token embedding.

    Attributes:
        module: Embedding module.
        bound: Largest move of a number, in standard deviations of the weights.
        key: Config key of the strategy.
    """

    module: nn.Embedding
    bound: float
    key: str
    parts_name = "embeddings"

    def zeros(self, task: Task, model: nn.Module, batch: Any) -> Tensor:
        """Return no move."""
        seen: list[Tensor] = []
        with self._watched(lambda given: seen.append(given)), torch.no_grad():
            task.forward(model, batch)
        if not seen:
            what = "the embedding is not called by the model's forward pass"
            raise InputError(what, where=self.key, hint="name another one under layer")
        return torch.zeros_like(seen[0])

    def kept(self, _task: Task, _batch: Any, moved: Tensor) -> Tensor:
        """Return the move: embeddings have no limits."""
        return moved

    def forward(self, task: Task, model: nn.Module, batch: Any, moved: Tensor) -> tuple[Any, Any]:
        """Return outputs and targets of a batch with its embeddings moved."""
        bound = self.bound * self.module.weight.detach().std()
        with self._watched(lambda given: given + moved * bound):
            return task.forward(model, batch)

    @contextlib.contextmanager
    def _watched(self, change: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
        """Pass the embedding's first output to a function, and replace it by the function's result."""
        is_first = True

        def hook(_module: nn.Module, _inputs: Any, given: Tensor) -> Tensor | None:
            nonlocal is_first
            changed, is_first = (change(given) if is_first else None), False
            return changed

        handle = self.module.register_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()


Place = Inputs | Embeddings


def _place(training: Training, settings: configs.Adversarial, key: str) -> Place:
    """Return the place of the moved inputs in a task's batches.

    Raises:
        InputError: There is no such column, or no input that can be moved.
    """
    task = training.task
    movable = task.movable() if isinstance(task, BuiltinTask) else None
    if settings.columns is not None and not any(movable.numbers if movable is not None else ()):
        raise InputError("this task has no columns", where=f"{key}.columns", hint="leave it out")
    if settings.layer is not None or (isinstance(task, BuiltinTask) and movable is None):
        return Embeddings(_layer(training.model, settings.layer, key), settings.epsilon, key)
    if movable is None:
        return Inputs(torch.tensor(settings.epsilon), settings.limits, key)
    if settings.limits is not None:
        what = "limits are for custom tasks' inputs; this task has its own limits"
        raise InputError(what, where=f"{key}.limits", hint="leave them out")
    bound = torch.tensor(movable.scales) * settings.epsilon
    if settings.columns is not None:
        bound = bound * torch.tensor([name in settings.columns for name in _known(settings.columns, movable.numbers, key)])
    return Inputs(bound, movable.limits, key)


def _layer(model: nn.Module, pattern: str | None, key: str) -> nn.Embedding:
    """Return the model's first embedding whose name matches.

    Raises:
        InputError: No embedding matches.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and re.search(pattern or "", name):
            return module
    what = "the model has no nn.Embedding" + (f" whose name matches {pattern!r}" if pattern else "")
    raise InputError(what, where=f"{key}.layer", hint="name the layer whose outputs are moved, or leave the strategy out")


def _known(columns: list[str], numbers: Sequence[str | None], key: str) -> Sequence[str | None]:
    """Return the columns of numbers in the matrix; None for other columns.

    Raises:
        InputError: A named column is not one of them.
    """
    for name in columns:
        if name not in numbers:
            raise InputError.unknown(
                "column of numbers", name, filter(None, numbers), where=f"{key}.columns", hint="name one of them"
            )
    return numbers
