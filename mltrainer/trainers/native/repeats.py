"""A micro-batch of a sampled step computed again before the update: other bits show a device that computes wrong."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.weights import bit_sums
from mltrainer.errors import InputError, MachineError
from mltrainer.records.run import RepeatDifference
from mltrainer.reproducibility import seeds
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import mapped
from mltrainer.trainers.native.data.addresses import Batch, Step
from mltrainer.trainers.native.held_state import attributes, changed
from mltrainer.trainers.native.objective import Objective, buffers_kept
from mltrainer.trainers.native.optimization.gradients import dense
from mltrainer.trainers.native.stepping import Stepper

LOSS = "the loss"  # its name among the sums


@dataclass(frozen=True)
class Pass:
    """A micro-batch's forward and backward pass.

    Attributes:
        shard: The micro-batch's number in its step, from 0.
        batch: The batch before the pass, which may change it.
        buffers: The model's buffers before the pass, by name.
        device: The device that computed it, in words.
        sums: The sums of the bits of each gradient, by the parameter's name, and of the loss.
        held: The attributes of the user's own objects that a pass changes whenever it is made.
    """

    shard: int
    batch: Batch
    buffers: dict[str, Tensor]
    device: str
    sums: dict[str, int] = field(default_factory=dict)
    held: Sequence[str] = ()

    def to(self, device: str) -> Pass:
        """Return it with its tensors on a device."""
        batch, buffers = mapped(lambda tensor: tensor.to(device), (self.batch, self.buffers))
        return Pass(self.shard, batch, buffers, self.device, self.sums)


class Repeats:
    """Computes a micro-batch of every Nth step twice, on two processes where there are several, and compares all bits.

    The micro-batch, and the process that repeats it, are drawn at an address. It is repeated after the step's gradients were
    computed and before the update, from the batch and the buffers that the first pass began with. Generators, buffers and
    gradients are then as they were, so that a run has the same bits with and without it. Compared are 64-bit sums of words
    (`bit_sums`): one wrong bit changes a sum.

    Args:
        opened: The opened task; its config says how often.
        on_difference: A function that logs a difference.

    Attributes:
        compared: The numbers of the steps whose passes were compared.
    """

    def __init__(self, opened: OpenTask, on_difference: Callable[[RepeatDifference], None]) -> None:
        self._opened, self._on_difference, self._config = opened, on_difference, opened.config
        self._is_judged = isinstance(opened.task, BuiltinTask)
        self.compared: set[int] = set()

    def attach(self, stepper: Stepper) -> None:
        """Have the steps of a stepper compared, if the config asks for it."""
        if (replay := self._config.replay) is not None:
            stepper.compute = _Repeated(self, stepper, replay.every)

    def judge(self, stepper: Stepper, again: Callable[[], dict[str, int]]) -> Sequence[str]:
        """Return the user's attributes that change whenever a pass is made; looked for once, and not among built-in tasks."""
        if self._is_judged:
            return ()
        self._is_judged = True
        before = attributes(self._opened, stepper.model)
        again()
        return sorted(changed(before, attributes(self._opened, stepper.model)))

    def compare(self, number: int, first: Pass, again: Pass, ranks: tuple[int, int], order: Sequence[str]) -> None:
        """Stop if two passes of one micro-batch differ.

        Args:
            number: The step, from 1.
            first: The step's own pass.
            again: The second one.
            ranks: The processes that made them.
            order: The names of the parameters in the model's order.

        Raises:
            InputError: A pass changes the user's own objects, so that it cannot be repeated.
            MachineError: Their bits differ.
        """
        if again.held:
            raise InputError(
                f"each forward pass changes {', '.join(again.held[:3])}, which a second pass would change once more",
                where="replay",
                hint="keep it in a buffer of the model, or draw with the generators of Python, NumPy or torch; or train with "
                "replay: null",
            )
        self.compared.add(number)
        differing = [name for name in (*order, LOSS) if first.sums.get(name) != again.sums.get(name)]
        if not differing:
            return
        found = _difference(number, first, again, ranks, differing)
        self._on_difference(found)
        raise MachineError(difference_text(found, len(order)), where="replay", hint=NEXT)


NEXT = (
    "a device here computed wrong, or code depends on something that no step puts back: `mltrainer doctor` looks at this "
    "machine. The same command goes on from the newest checkpoint, saved before this step, and best on another device"
)


def _difference(number: int, first: Pass, again: Pass, ranks: tuple[int, int], differing: Sequence[str]) -> RepeatDifference:
    parameters = [name for name in differing if name != LOSS]
    return RepeatDifference(
        step=number,
        micro_batch=first.shard + 1,
        parameter=parameters[-1] if parameters else None,
        parameters=len(parameters),
        loss=LOSS in differing,
        processes=list(ranks),
        devices=[first.device, again.device],
    )


def difference_text(found: RepeatDifference, count: int) -> str:
    """Return a difference in a sentence; `count`: the model's number of parameters that are trained."""
    own, other = (f"process {rank} on {device}" for rank, device in zip(found.processes, found.devices, strict=True))
    by = own if found.processes[0] == found.processes[1] else f"{own} and by {other}"
    what = "no gradient differs"
    if found.parameter is not None:
        module, _, name = found.parameter.rpartition(".")
        what = f"gradients of {found.parameters} of {count} parameters differ, the last in the model's order in module "
        what += f"{module} ({name})" if module else f"the model itself ({name})"
    loss = "the losses differ" if found.loss else "the losses agree"
    return f"micro-batch {found.micro_batch} of step {found.step}, computed twice by {by}, gave other bits: {what}; {loss}"


class _Repeated:
    """A stepper's gradients, with a micro-batch of a sampled step computed again.

    Args:
        repeats: What compares them.
        stepper: The stepper.
        every: The number of steps from one sampled step to the next.
    """

    def __init__(self, repeats: Repeats, stepper: Stepper, every: int) -> None:
        self._repeats, self._stepper, self._every, self._first = repeats, stepper, every, stepper.compute

    def __call__(self, number: int, step: Step) -> Tensor:
        """Compute a step's gradients, and return its mean loss with its terms."""
        if number % self._every or not step.count:
            return self._first(number, step)
        draws = seeds.generator(self._stepper.config.seed, "replay", number)
        with self._noted(step.shards, int(draws.integers(step.count))) as found:
            loss = self._first(number, step)
        self._repeat(number, step, found, draws)
        return loss

    @contextlib.contextmanager
    def _noted(self, shards: Sequence[int], shard: int) -> Iterator[list[Pass]]:
        """Note a micro-batch's pass among those that this process makes; none where another one makes it."""
        objective, numbers, found = self._stepper.objective, iter(shards), list[Pass]()

        def begins(batch: Batch) -> None:
            if next(numbers) == shard:
                buffers = {name: buffer.clone() for name, buffer in self._stepper.model.named_buffers()}
                found.append(Pass(shard, copy.deepcopy(batch), buffers, _device(objective.config.device)))

        def ended(loss: Tensor) -> None:
            if found and not found[0].sums:
                found[0].sums.update(self._sums(loss))

        before = objective.begins, objective.ended
        objective.begins, objective.ended = begins, ended
        try:
            yield found
        finally:
            objective.begins, objective.ended = before

    def _repeat(self, number: int, step: Step, found: list[Pass], draws: np.random.Generator) -> None:
        ranks, device = self._stepper.parallel.ranks, self._stepper.config.device
        given = ranks.gather([one if ranks.size == 1 else one.to("cpu") for one in found])
        owner = next(rank for rank, passes in enumerate(given) if passes)
        other = owner if ranks.size == 1 else (owner + 1 + int(draws.integers(ranks.size - 1))) % ranks.size
        (first,) = given[owner]
        again = self._again(number, step, first.to(device)) if ranks.rank == other else None
        made = ranks.gather(again)[other]
        assert made is not None
        self._repeats.compare(number, first, made, (owner, other), [*self._stepper.parallel.trained])

    def _again(self, number: int, step: Step, first: Pass) -> Pass:
        """Make a pass again, and leave everything as it was."""
        stepper = self._stepper
        ids = step.shard_ids(first.shard)

        def made() -> dict[str, int]:
            with _statistics_as_in(stepper.objective, step.count):
                _set_buffers(stepper.model, first.buffers)
                stepper.objective.seed(number, first.shard)
                share = stepper.objective.backward_share if step.count > 1 else stepper.objective.backward
                loss = share(copy.deepcopy(first.batch), ids)
                return self._sums(loss if isinstance(loss, Tensor) else loss[0])

        with seeds.kept(), buffers_kept(stepper.model), _gradients_kept(stepper), _unseen(stepper.objective):
            sums = made()
            held = self._repeats.judge(stepper, made)
        return Pass(first.shard, (), {}, _device(stepper.config.device), sums, held)

    def _sums(self, loss: Tensor) -> dict[str, int]:
        gradients = {name: dense(p.grad) for name, p in self._stepper.parallel.trained.items() if p.grad is not None}
        return bit_sums({**gradients, LOSS: loss})


def _device(device: str) -> str:
    return f"cuda:{torch.cuda.current_device()} ({torch.cuda.get_device_name()})" if device == "cuda" else device


@torch.no_grad()
def _set_buffers(model: nn.Module, buffers: dict[str, Tensor]) -> None:
    for name, buffer in model.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])


@contextlib.contextmanager
def _statistics_as_in(objective: Objective, count: int) -> Iterator[None]:
    """Have the running statistics as they are in one of `count` micro-batches of a step; they do not change in one of several."""
    if count == 1:
        yield
        return
    with objective.statistics.captured(objective.statistics.rows(count), count):
        yield


@contextlib.contextmanager
def _gradients_kept(stepper: Stepper) -> Iterator[None]:
    """Put all gradients back after a block, in which there are none at first."""
    updated = [p for group in stepper.optimizer.param_groups for p in group["params"]]
    each = [*{id(p): p for p in (*stepper.model.parameters(), *stepper.partition.own.values(), *updated)}.values()]
    before = [p.grad for p in each]
    for p in each:
        p.grad = None
    try:
        yield
    finally:
        for p, gradient in zip(each, before, strict=True):
            p.grad = gradient


@contextlib.contextmanager
def _unseen(objective: Objective) -> Iterator[None]:
    """Show no observer the passes of a block."""
    saw: Callable[[Any, Any], None] = objective.saw
    objective.saw = lambda _outputs, _targets: None
    try:
        yield
    finally:
        objective.saw = saw
