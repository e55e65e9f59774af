"""Steps that are skipped because their loss or gradient norm is far above those before: `spikes` in the config.

The rule: the window holds the losses and gradient norms of the last `window` steps. A step is a spike if its loss or its norm is
not finite; it enters no window. Once the window is half full, a step is a spike also if a number is above the limit: more than
`factor` standard deviations above the window's mean. That number enters the window as the limit. So one spike hardly changes the
rule, and numbers that stay higher are soon usual ones. A step without samples is never a spike, and enters no window.

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

    def skipped_last(self, step: int) -> bool:
        """Return True if this step, the last so far, was skipped."""
        return bool(self.skipped) and int(self.skipped[-1]["step"]) == step

    def begin(self) -> None:
        """Keep the model's buffers, which a forward pass may change."""
        self._buffers = [(buffer, buffer.clone()) for buffer in self._model.buffers()]

    def skips(self, step: int, loss: Tensor, norm: Tensor) -> bool:
        """Return True if a step is skipped; the buffers are then as they were before it. Waits for the device."""
        found = {"loss": (float(loss.float()), self._losses), "gradient": (float(norm.float()), self._norms)}
        limits = {what: self._limit(past) for what, (_, past) in found.items()}
        high = [what for what, (value, _) in found.items() if not (math.isfinite(value) and value <= limits[what])]
        if all(math.isfinite(value) for value, _ in found.values()):
            for what, (value, past) in found.items():
                past.append(min(value, limits[what]))
        if not high:
            return False
        self.skipped.append({"step": step, "loss": found["loss"][0], "norm": found["gradient"][0], "what": high[0]})
        for buffer, kept in self._buffers:
            buffer.copy_(kept)
        return True

    def _limit(self, past: deque[float]) -> float:
        return limit(past, self._rule.factor) if len(past) >= self._rule.least else math.inf


def limit(past: Iterable[float], factor: float) -> float:
    """Return the value so many standard deviations above the mean of at least two values; infinity if they are all equal.

    The sums are exact before they are rounded, so that no library's order of additions enters the decision.
    """
    values = [*past]
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean + factor * deviation if deviation else math.inf
