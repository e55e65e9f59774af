"""Steps of a program that updates its weights by hand: they change between two calls of `backward`, without an optimizer.

A function wraps `torch.autograd.backward` until an optimizer is seen; its arguments and results stay the same.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings


def begin(settings: Settings, process: Process) -> ManualSteps:
    """Return the observer of this process."""
    return ManualSteps(process)


class ManualSteps:
    """Makes a step of an optimizer that does nothing wherever weights were changed by hand: other observers see it.

    Args:
        process: The process; its forks start again.
    """

    def __init__(self, process: Any) -> None:
        self._reset()
        process.on_fork(self._reset)
        atexit.register(self._look)  # the last update is followed by no backward

    def _reset(self) -> None:
        self._manual_optimizer: Any = None
        self._leaves: list[Any] = []
        self._last = b""
        self._is_begun = False

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch, self._real = torch, torch.autograd.backward
        self._optimizer = sys.modules["torch.optim.optimizer"].Optimizer
        sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook(self._stepped)

        def backward(*arguments: Any, **keywords: Any) -> Any:
            self._before()
            return self._real(*arguments, **keywords)

        torch.autograd.backward = self._around = backward

    def _stepped(self, optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        # Its own steps come by here as well.
        if optimizer is not self._manual_optimizer:
            self._leave()

    def _leave(self) -> None:
        """Stop observing: the program has optimizers."""
        self._manual_optimizer, self._leaves, self._is_begun = None, [], True
        # Only where nothing else was put around it since, which would be taken away with it.
        if self._torch.autograd.backward is self._around:
            self._torch.autograd.backward = self._real

    def _before(self) -> None:
        if self._is_begun:
            self._look()
            return
        self._is_begun = True
        objects = gc.get_objects()
        if any(issubclass(type(each), self._optimizer) for each in objects):
            self._leave()
        else:
            self._begin([each for each in objects if type(each) in (self._torch.Tensor, self._torch.nn.Parameter)])

    def _begin(self, tensors: list[Any]) -> None:
        """Watch the differentiated leaves, in an order that does not depend on their places in memory."""
        leaves = [tensor for tensor in tensors if tensor.is_leaf and tensor.requires_grad and tensor.device.type != "meta"]
        self._leaves = sorted(leaves, key=lambda leaf: (leaf.dim(), tuple(leaf.shape), self._digest([leaf])))
        if not self._leaves:
            self._is_begun = False
            return

        class ManualStep(self._optimizer):  # type: ignore[misc,name-defined]  # of the program's torch
            def step(self, closure: Any = None) -> None:
                """Do nothing: the program has updated the weights itself."""

        groups = [{"params": [leaf]} for leaf in self._leaves]  # each is summed: nothing says that a step changes them all
        self._manual_optimizer, self._last = ManualStep(groups, {}), self._digest(self._leaves)

    def _look(self) -> None:
        """Make a step if the weights differ from those at the last look."""
        if self._manual_optimizer is not None and (digest := self._digest(self._leaves)) != self._last:
            self._last = digest
            self._manual_optimizer.step()

    def _digest(self, tensors: list[Any]) -> bytes:
        sha = hashlib.sha256()
        with self._torch.no_grad():
            for tensor in tensors:
                plain = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
                sha.update(plain.view(self._torch.uint8).cpu().numpy().tobytes())
        return sha.digest()
