"""Steps that are skipped because their loss or gradient norm is far above those before: `spikes` in the config.

The rule: the window holds the losses and gradient norms of the last `window` steps that were taken. A step is a spike if its
loss or its norm is not finite. Once the window is half full, it is one also if a number is more than `factor` standard deviations
above the window's mean. A step without samples is never one, and enters no window.

The decision is a function of the numbers in the chain, which are the same in all processes; the window is part of a checkpoint.
So a run that goes on, is reproduced, or is shared by other processes skips the same steps. The decision comes before the update:
a device other than the CPU is waited for in each step, as with fp16's loss scale.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from mltrainer.checkpointing.format import Tree
from mltrainer.configs.spikes import Spikes


class SpikeGuard:
    """Decides which steps are skipped.

    Args:
        rule: The rule.
        model: The model, whose buffers a skipped step leaves as they were.

    Attributes:
        skipped: The skipped steps: number, loss, gradient norm, and which of them was a spike.
    """

    def __init__(self, rule: Spikes, model: nn.Module) -> None:
        self._rule, self._model = rule, model
        self.restore({})

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        return {"losses": [*self._losses], "norms": [*self._norms], "skipped": [dict(row) for row in self.skipped]}

    def restore(self, tree: Tree) -> None:
        """Continue from a checkpoint; from an empty tree, begin."""
        self._losses, self._norms = (deque[float](tree.get(key, ()), self._rule.window) for key in ("losses", "norms"))
        self.skipped: list[dict[str, Any]] = [*tree.get("skipped", ())]
        self._buffers: list[tuple[Tensor, Tensor]] = []

    @property
    def is_over(self) -> bool:
        """Whether the run had more spikes than it may have."""
        return len(self.skipped) > self._rule.most

    def begin(self) -> None:
        """Keep the model's buffers, which a forward pass may change."""
        self._buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]

    def skips(self, step: int, loss: Tensor, norm: Tensor) -> bool:
        """Return True if a step is skipped; the buffers are then as they were before it. Waits for the device."""
        values = {"loss": float(loss.float()), "norm": float(norm.float())}
        high = [name for name, past in (("loss", self._losses), ("norm", self._norms)) if self._is_spike(values[name], past)]
        if not high:
            self._losses.append(values["loss"])
            self._norms.append(values["norm"])
            return False
        self.skipped.append({"step": step, **values, "what": "loss" if high[0] == "loss" else "gradient"})
        for buffer, kept in self._buffers:
            buffer.copy_(kept)
        return True

    def _is_spike(self, value: float, past: deque[float]) -> bool:
        if not math.isfinite(value):
            return True
        return len(past) >= self._rule.least and value > limit(past, self._rule.factor)


def limit(past: Iterable[float], factor: float) -> float:
    """Return the value so many standard deviations above the mean of at least two values; infinity if they are all equal.

    The sums are exact before they are rounded, so that no library's order of additions enters the decision.
    """
    values = [*past]
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean + factor * deviation if deviation else math.inf
