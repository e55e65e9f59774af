"""The protocols of custom callbacks: classes that watch a run, or take part in it; named by `callbacks` in the training config.

Nothing needs to be inherited; a class has those methods of one of the two protocols that it needs. What both are to do is
two classes. Each call may draw random numbers, which are then put back, so that a call moves no draw of the training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


class Watcher(Protocol):
    """Sees plain numbers, copied for it, and cannot alter the training.

    One that changes weights by another way, or settings of torch, ends the run with an error. Where a killed run goes on
    from its last checkpoint, the steps and evaluations since then are reported again.
    """

    def on_start(self, run: dict[str, Any]) -> None:
        """Called when a process begins to train or goes on: `run`, `phase`, `purpose`, `step`, `steps`, `epochs`, `config`."""

    def on_step(self, step: int, loss: float, grad_norm: float) -> None:
        """Called for each step in turn, but not at once: numbers come from the device together, every 64 steps or earlier."""

    def on_evaluation(self, row: dict[str, Any]) -> None:
        """Called with each new row of the history: `epoch`, `step`, `lr`, `train_loss`, `train`, `validation` and more."""

    def on_checkpoint(self, step: int) -> None:
        """Called when the state after a step has been copied to be written."""

    def on_end(self, outcome: dict[str, Any]) -> None:
        """Called when training has ended or was stopped, its checkpoints written: `reason`, `step`, `nonfinite`."""


class Participant(Protocol):
    """May alter the training before each step, from a state that every checkpoint holds.

    Resuming gives the same bits only if all that it does follows from that state and its arguments, and what it changes beside
    weights and optimizer (a layer's mode, say) is set in every step.
    """

    def on_before_step(self, step: int, model: nn.Module, optimizer: Optimizer) -> None:
        """Called before each step, without gradients, when the step's learning rates are set; they may be changed."""

    def on_evaluation(self, row: dict[str, Any]) -> None:
        """Called as a watcher's, to be remembered in the state; weights are changed before a step, not here."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: nested dicts, lists and tuples of tensors, numbers, text and None."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a checkpoint's state; an exception says that it does not fit."""
