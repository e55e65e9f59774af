"""Steps that change nothing because their loss or gradient norm is far above those before: `spikes` in the config.

The rule: the window holds the losses and gradient norms of the last `window` steps. A step is a spike if its loss or its norm is
not finite; it enters no window. Once the window is half full, a step is a spike also if a number is above the limit: more than
`factor` standard deviations above the window's mean. That number enters the window as the limit. So one spike hardly changes the
rule, and numbers that stay higher are soon usual ones. A step without samples is never a spike, and enters no window.

The decision is a function of the numbers in the chain, which are the same in all processes; the window is part of a checkpoint.
So a run that goes on, is reproduced, or is shared by other processes skips the same steps. The decision comes before the update:
a device other than the CPU is waited for in each step, as with fp16's loss scale.

With `rollback` the run goes back to a checkpoint from before the first step to leave out, knowing the spike, and takes none of
these steps: each computes nothing and has no sample in the chain. The steps before them are the same, so that the bits depend on
the spikes alone, not on the checkpoint. The state of a checkpoint holds only the spikes because of which a step up to it was left
out: it is a function of its step. A process that goes on from an earlier one finds the later spikes again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from mltrainer.checkpointing.format import Tree
from mltrainer.configs.spikes import Spikes
from mltrainer.records.run import SkippedStep

Row = dict[str, Any]  # a spike: step, loss, gradient norm, and which of the two was one


def spike_row(found: SkippedStep) -> Row:
    """Return the spike of a record."""
    return {"step": found.step, "loss": float(found.loss), "norm": float(found.norm), "what": found.what}


class SpikeError(Exception):
    """A spike at which a run goes back.

    Args:
        spikes: The run's spikes, the new one last.
    """

    def __init__(self, spikes: Sequence[Row]) -> None:
        super().__init__(f"the {spikes[-1]['what']} of step {spikes[-1]['step']} is a spike")
        self.spikes = spikes


class SpikeGuard:
    """Decides which steps are skipped, or left out.

    Args:
        rule: The rule.
        model: The model, whose buffers a skipped step leaves as they were.
        known: The spikes at which the run went back.

    Attributes:
        skipped: The spikes up to here: the steps that were skipped, and those because of which steps were left out.
    """

    def __init__(self, rule: Spikes, model: nn.Module, known: Iterable[Row] = ()) -> None:
        self._rule, self._model = rule, model
        self._known = {int(row["step"]): row for row in known}
        self.restore({})

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        return {"losses": [*self._losses], "norms": [*self._norms], "skipped": [dict(row) for row in self.skipped]}

    def restore(self, tree: Tree) -> None:
        """Continue from a checkpoint; from an empty tree, begin."""
        self._losses, self._norms = (deque[float](tree.get(key, ()), self._rule.window) for key in ("losses", "norms"))
        self.skipped: list[Row] = [*tree.get("skipped", ())]
        self._known |= {int(row["step"]): row for row in self.skipped}
        self._has_new = False
        self._buffers: list[tuple[Tensor, Tensor]] = []

    @property
    def is_over(self) -> bool:
        """Whether the run had more spikes than it may have."""
        return len(self.skipped) > self._rule.most

    @property
    def goes_back(self) -> bool:
        """Whether the last step was a spike at which the run goes back."""
        return self._has_new and self._rule.goes_back and not self.is_over

    def leaves_out(self, step: int) -> bool:
        """Return True if a step, the next or the last one, is left out because of a known spike, which counts from then on."""
        found = [spike for spike in self._known if self._rule.goes_back and step in self._rule.left_out(spike)]
        self.skipped += [self._known[spike] for spike in found if all(row["step"] != spike for row in self.skipped)]
        return bool(found)

    def is_ahead(self, step: int) -> bool:
        """Return True if a spike is still to come because of which steps were left out up to this one."""
        return any(row["step"] > step for row in self.skipped)

    def is_settled(self, step: int, now: int) -> bool:
        """Return True if no spike after the step `now` can leave a step out."""
        return not self._rule.goes_back or step == 0 or now >= step + self._rule.before

    def changed_nothing(self, step: int) -> bool:
        """Return True if this step, the last so far, was skipped or left out."""
        return self.leaves_out(step) or (bool(self.skipped) and int(self.skipped[-1]["step"]) == step)

    def rows(self, steps: int) -> list[Row]:
        """Return the spikes for the result of a run of `steps` planned steps, each with the first and the last step left out."""
        rule, taken = self._rule, len(self.skipped) - self._has_new if self._rule.goes_back else 0
        ends = [rule.left_out(row["step"]) for row in self.skipped[:taken]]
        left_out = [{**row, "first": end[0], "last": min(end[-1], steps)} for row, end in zip(self.skipped, ends, strict=False)]
        return left_out + self.skipped[taken:]

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
        self._has_new = True
        self.skipped.append({"step": step, "loss": found["loss"][0], "norm": found["gradient"][0], "what": high[0]})
        for buffer, kept in self._buffers:
            buffer.copy_(kept)
        return True

    def _limit(self, past: deque[float]) -> float:
        return limit(past, self._rule.factor) if len(past) >= self._rule.least else math.inf


def limit(past: Iterable[float], factor: float) -> float:
    """Return the value `factor` standard deviations above the mean of at least two values; infinity if they are all equal.

    The sums are exact before they are rounded, so that no library's order of additions enters the decision.
    """
    values = [*past]
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean + factor * deviation if deviation else math.inf
