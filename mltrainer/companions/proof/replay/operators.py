"""Every operator of one training step with the digests of what goes in and comes out; one of them is kept for a case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mltrainer.companions.proof.findings import Operator
from mltrainer.companions.proof.replay.cases import Encoded, digests, draws, encoded, outputs_of
from mltrainer.reproducibility.fingerprint import bits
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.observers import Observer
from mltrainer.trainers.native.recording import Recorder

COMPUTES = "aten"  # the others, such as the profiler's marks, compute nothing


class Operators(TorchDispatchMode):
    """Notes each operator that runs while it is entered: in forward pass, backward pass and optimizer.

    Args:
        kept: The number of the operator, from 0, whose arguments and results are kept; None: of none.

    Attributes:
        rows: The operators so far, in their order.
        arguments: The kept operator's arguments by place and by name, and the generator's state if it draws.
        results: What it returned, and the arguments that it changed.
    """

    def __init__(self, kept: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._kept = kept
        self.rows: list[Operator] = []
        self.arguments = self.results = Encoded()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run an operator, and note it."""
        kwargs = kwargs or {}
        if func.namespace != COMPUTES:
            return func(*args, **kwargs)
        is_kept = len(self.rows) == self._kept
        given = (list(args), kwargs, torch.get_rng_state() if draws(func) else None)
        # Before it runs, because it may change its arguments.
        inputs = [*digests(given)]
        if is_kept:
            self.arguments = encoded(given)
        found = func(*args, **kwargs)
        outputs = outputs_of(func, args, found)
        self.rows.append(Operator(name=str(func), inputs=inputs, outputs=[*digests(outputs)]))
        if is_kept:
            self.results = encoded(outputs)
        return found


class StepOperators(Observer):
    """Notes the operators of one step of a training.

    Args:
        step: The step.
        operators: What notes them.

    Attributes:
        numbers: The bits of the step's loss and gradient norm, as its line of the chain has them; empty until it was taken.
    """

    def __init__(self, step: int, operators: Operators) -> None:
        self._step, self._operators, self.numbers = step, operators, ""
        self._memory: Any = torch.utils.deterministic  # torch declares no attributes of its own module

    def prepared(self, step: int, data: Step) -> None:
        """Begin to note, once the step's samples are here."""
        if step == self._step:
            # Memory that nobody wrote yet differs between machines, and so would the digest of what `empty` returns.
            self._memory.fill_uninitialized_memory = True
            self._operators.__enter__()  # type: ignore[no-untyped-call]  # of torch

    def took(self, step: int, epoch: int, data: Step) -> None:
        """End after the optimizer's update."""
        if step == self._step:
            self._operators.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # of torch
            self._memory.fill_uninitialized_memory = False

    def fetched(self, recorder: Recorder) -> None:
        """Keep the step's numbers."""
        for step, loss, norm in recorder.fetched:
            if step == self._step:
                self.numbers = f"{bits(loss)} {bits(norm)}"
