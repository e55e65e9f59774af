"""A trace of single steps: the digest of each module's output, in order; two traces give the first difference.

Only processes that search for the cause of a difference trace; the loop itself has no part in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from mltrainer.checkpointing.weights import raw_bytes
from mltrainer.reproducibility.nondeterminism import Witness
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import tensors_in
from mltrainer.workspace import write_json

TRACE_FILE = "trace.jsonl"
WITNESS_FILE = "witness.json"


class Tracer:
    """Writes one line per batch, module output, loss and gradient of the traced steps, in their order.

    Args:
        folder: The folder of `trace.jsonl` and, after `close`, of `witness.json`.
        root: The project's folder.
        first_step: The first step that is traced; the steps before it run untraced.
    """

    def __init__(self, folder: Path, root: Path, first_step: int) -> None:
        self._folder, self._first_step = folder, first_step
        self._witness = Witness(root)
        self._witness.install()
        self._file = open(folder / TRACE_FILE, "w", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        self._position: Callable[[], int] = lambda: 0

    def note(self, what: str, name: str, digest: str) -> None:
        """Write one line: step, kind, name and digest."""
        self._file.write(json.dumps([self._position(), what, name, digest]) + "\n")

    def attach(self, opened: OpenTask, model: nn.Module, position: Callable[[], int]) -> None:
        """Begin to trace a training.

        Args:
            opened: The training's task; its `forward` and `loss` are replaced on this object.
            model: The training's model; only passes in training mode are traced.
            position: A function that returns the current step, from 1.
        """
        self._position = position
        if opened.config.compile:  # importing the compiler takes a second
            self._tensors = torch.compiler.disable(self._tensors)  # type: ignore[method-assign]  # hooks are not compiled
        task, source = opened.task, type(giver(opened, "train")).__name__
        self.note("data", source, opened.data_sha256)
        forward, loss = task.forward, task.loss

        def traced_forward(model: nn.Module, batch: Any) -> tuple[Any, Any]:
            if model.training:
                self._tensors("data", source, batch)
            return forward(model, batch)

        def traced_loss(outputs: Any, targets: Any) -> Tensor:
            found = loss(outputs, targets)
            if found.requires_grad:
                self._tensors("loss", type(task).__name__, found)
            return found

        task.forward, task.loss = traced_forward, traced_loss  # type: ignore[method-assign]  # only on this object
        for name, module in model.named_modules():
            module.register_forward_hook(self._module_hook(f"{name or 'the model'} ({type(module).__name__})"))
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._gradient_hook(name))

    def _module_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, _inputs: Any, outputs: Any) -> None:
            if module.training:
                self._tensors("forward", name, outputs)

        return hook

    def _gradient_hook(self, name: str) -> Callable[[Tensor], None]:
        return lambda parameter: self._tensors("backward", name, parameter.grad)

    def _tensors(self, what: str, name: str, found: Any) -> None:
        if self._position() >= self._first_step:
            self.note(what, name, tensors_digest(found))

    def close(self) -> None:
        """End the trace, and write the calls of the project's own code to the same folder."""
        self._witness.remove()
        self._file.close()
        write_json(self._folder / WITNESS_FILE, {"calls": self._witness.calls()})


def giver(opened: OpenTask, split: str) -> Any:
    """Return the object that provides a split's samples: the user's data set, of which the split may be a part, or the task."""
    samples = opened.split(split)
    given: Any = opened.task if samples.dataset is None else samples.given
    while isinstance(given, Subset):
        given = given.dataset
    return given


def tensors_digest(found: Any) -> str:
    """Return the digest of all tensors in a structure, with shapes and types."""
    sha = hashlib.sha256()
    for tensor in tensors_in(found):
        sha.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        sha.update(raw_bytes(tensor.detach()))
    return sha.hexdigest()[:16]
