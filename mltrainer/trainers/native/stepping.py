"""One optimizer step: forward, backward, gradients, update. It knows no epoch, file or evaluation, and waits for nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mltrainer.checkpointing.format import Tree
from mltrainer.records.partial import partial
from mltrainer.records.run import SkippedStep
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective, buffers_kept
from mltrainer.trainers.native.optimization.custom import OwnUpdates, groups_of
from mltrainer.trainers.native.optimization.gradients import gradient_norms, shape
from mltrainer.trainers.native.optimization.groups import parameter_groups
from mltrainer.trainers.native.optimization.offloading import optimizer_for
from mltrainer.trainers.native.optimization.optimizers import SHARE, begin_momentum, kind_of, own_average
from mltrainer.trainers.native.parallel.parallelism import Parallelism, gradients_of
from mltrainer.trainers.native.preparing import lay_out_like_parameters
from mltrainer.trainers.native.spikes import Row, SpikeGuard


@dataclass(frozen=True)
class Measured:
    """A step's numbers, on the device.

    Attributes:
        loss: The mean loss over the step's items.
        norms: The L2 norm of each parameter's gradient, before clipping and the like.
        total: The norm of all gradients together.
        taken: Whether the weights were updated; False if the loss or the gradients were known not to be finite.
        skipped: Whether they were not updated because the step is a spike, or is left out because of one.
        terms: The mean terms of the loss; None without terms.
    """

    loss: Tensor
    norms: Tensor
    total: Tensor
    taken: bool = True
    skipped: bool = False
    terms: Tensor | None = None


class Stepper:
    """Takes optimizer steps.

    Args:
        objective: The objective of a step, with the config that names the optimizer.
        parallel: The processes' parallelism; None: this one alone.
        own: The task's own updates, if the config leaves them to it.
        spikes: The spikes at which the run went back.

    Attributes:
        before_step: A function called with a step's number before its backward pass.
        compute: The function of a step's number and samples that leaves its gradients, and returns its mean loss with its terms.
        guard: The decision which steps are skipped or left out; None: none is.
    """

    def __init__(
        self,
        objective: Objective,
        parallel: Parallelism | None = None,
        own: OwnUpdates | None = None,
        spikes: Sequence[Row] = (),
    ) -> None:
        self.objective, self.parallel, self.own = objective, parallel or Parallelism(objective.model), own
        self.model, self.config, self.scaler = objective.model, objective.config, objective.scaler
        self.partition, config = self.parallel.partition, objective.config
        self.parameters = [*self.parallel.trained.values()]
        self.optimizer: Any = optimizer_for(config, self.model, self.partition.own) if own is None else own.optimizer
        thaws = config.start is not None and bool(config.start.unfreeze)
        if self.scaler.is_enabled() or thaws:
            begin_momentum(self.optimizer)
        self.looks = config.device == "cpu"  # checking a GPU's numbers would wait for it
        self.guard = None if config.spikes is None else SpikeGuard(config.spikes, self.model, spikes)
        self.before_step: Callable[[int], None] = lambda _number: None
        self.compute: Callable[[int, Step], Tensor] = self._backward
        self._update = self._step if config.optimizer.sam is None else self._sharp_step
        self.groups = parameter_groups(config.optimizer, self.model) if own is None else groups_of(own.optimizer, self.model)
        kind = kind_of(config.optimizer) if own is None else f"own {type(own.optimizer).__name__}"
        self._made = {"optimizer": kind, "groups": [group.parameters for group in self.groups]}
        self._names = [name for group in self.groups for name in group.parameters]

    def state_dict(self) -> Tree:
        """Return the state of optimizer and loss scale, with the optimizer's kind and groups, which another one must match."""
        optimizer = self.partition.marked_state(self.optimizer.state_dict(), self._names)
        spikes = {} if self.guard is None else {"spikes": self.guard.tree()}
        return {"optimizer": optimizer, "scaler": self.scaler.state_dict(), "made": self._made, **spikes}

    def load_state_dict(self, state: Tree) -> None:
        """Load a state.

        Raises:
            ValueError: The state is another optimizer's.
        """
        self.optimizer.load_state_dict(self.partition.own_state(state["optimizer"], self._names))
        lay_out_like_parameters(self.optimizer)
        self.scaler.load_state_dict(state["scaler"])
        if self.guard is not None:
            self.guard.restore(state.get("spikes", {}))

    def take_over(self, state: Tree) -> None:
        """Load the state of another run's optimizer; the options stay the config's, though torch saves them with the state.

        Raises:
            ValueError: The optimizer is of another kind, or has other groups.
        """
        made, own = state["made"], self._made
        if made["optimizer"] != own["optimizer"]:
            raise ValueError(f"its optimizer is {made['optimizer']}, and the config's is {own['optimizer']}")
        if made["groups"] != own["groups"]:
            raise ValueError("its optimizer groups the parameters in another way")
        given = self.config.optimizer.model_dump()
        names = {SHARE, "rho", "adaptive", *given, *given.get("options", ())}
        is_own = self.own is not None
        options = [{k: v for k, v in group.items() if k in names or is_own} for group in self.optimizer.param_groups]
        for group in options:
            group.pop("params", None)
        self.load_state_dict({**state, "spikes": {}})
        for group, chosen in zip(self.optimizer.param_groups, options, strict=True):
            group.update(chosen)

    def take(self, number: int, rate: float, step: Step) -> Measured:
        """Take a step at a learning rate.

        Args:
            number: The step's number, from 1.
            rate: The learning rate before the groups' shares.
            step: The step's samples, from `Parallelism.prepare`.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group[SHARE]
        if self.guard is not None and self.guard.leaves_out(number):
            return self._nothing()
        # After the rates were set, so that a callback may set others; before the backward pass, which reads the weights.
        self.before_step(number)
        if self.guard is not None:
            self.guard.begin()
        loss, terms = self.objective.strategies.reported(self.compute(number, step))
        # Before norms and clipping, which apply to gradients without the loss scale.
        self.scaler.unscale_(self.optimizer)
        gradients = gradients_of(self.partition.own.values())
        measured = Measured(loss, *self._norms(gradients), terms=terms)
        if self.guard is not None and step.count and self.guard.skips(number, measured.loss, measured.total):
            return replace(measured, taken=False, skipped=True)
        if self.looks and not self._is_finite(measured):
            return replace(measured, taken=False)
        self._update(number, step, gradients, measured.total)
        self.objective.strategies.stepped()
        return measured

    def _is_finite(self, measured: Measured) -> bool:
        """Return True if a step may be taken; a scaled gradient may overflow, and is then not applied anyway."""
        return math.isfinite(measured.loss) and (self.scaler.is_enabled() or math.isfinite(measured.total))

    def used_rate(self) -> float:
        """Return the learning rate of the last step, before the groups' shares; a callback may have changed the planned one."""
        group = max(self.optimizer.param_groups, key=lambda group: float(group[SHARE]))
        if self.own is not None:  # its shares are rates already, so that the config's rate is a factor
            return float(group["lr"])
        return float(group["lr"] / group[SHARE]) if group[SHARE] else 0.0

    def _nothing(self) -> Measured:
        """Return the numbers of a step that is left out."""
        zeros = torch.zeros(len(self.parameters) + 1, device=self.config.device)
        strategies = self.objective.strategies
        loss, terms = strategies.reported(torch.zeros(strategies.shape, device=self.config.device))
        return Measured(loss, zeros[1:], zeros[0], taken=False, skipped=True, terms=terms)

    def skipped_steps(self, steps: int) -> list[SkippedStep] | None:
        """Return the spikes of a run of `steps` planned steps; None without a rule for them."""
        # Not validated: their numbers need not be finite.
        return None if self.guard is None else [partial(SkippedStep, row) for row in self.guard.rows(steps)]

    def may_overflow(self) -> bool:
        """Return True if a large loss scale explains gradients that are not finite, and will fall; waits for the device."""
        return self.scaler.is_enabled() and self.scaler.get_scale() >= 1

    def scaled(self) -> dict[str, float]:
        """Return the loss scale and the share of zeros among the last step's gradients; {} without loss scaling.

        A gradient too small for fp16 becomes 0 (Micikevicius et al., 2018, arXiv 1710.03740); so does that of a
        dead unit.
        """
        if not self.scaler.is_enabled():
            return {}
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        zeros = sum((gradient == 0).sum() for gradient in gradients)
        return {"loss_scale": self.scaler.get_scale(), "zero_gradients": float(zeros) / max(1, sum(g.numel() for g in gradients))}

    def _step(self, number: int, _step: Step, gradients: list[Tensor], total: Tensor) -> None:
        shape(gradients, [*self.partition.own.values()], total, self.config, number)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.parallel.updated()

    def _sharp_step(self, number: int, step: Step, _gradients: list[Tensor], _total: Tensor) -> None:
        """Climb to the worst point nearby, take the gradient there with the same random draws, come back and step with it."""
        self.optimizer.first_step()
        with buffers_kept(self.model):  # statistics count the batch once, at the weights
            self._backward(number, step)
        gradients = gradients_of(self.partition.own.values())
        shape(gradients, [*self.partition.own.values()], self._norms(gradients)[1], self.config, number)
        self.optimizer.second_step()

    def clear(self) -> None:
        """Clear all gradients: those of parameters outside of the optimizer would add up."""
        if self.own is not None:  # it may hold more than the model's parameters
            self.optimizer.zero_grad(set_to_none=True)
        self.parallel.clear()

    def _backward(self, number: int, step: Step) -> Tensor:
        """Leave the gradients of the step's mean loss where updates read them; return that loss, with its terms."""
        self.clear()
        return self.parallel.backward(self.objective, number, step) if step.count else self.parallel.nothing(self.objective)

    def _norms(self, gradients: list[Tensor]) -> tuple[Tensor, Tensor]:
        return gradient_norms(self.partition.norm_summands(gradients))

    def own_average(self) -> dict[Tensor, Tensor] | None:
        """Return the optimizer's averaged weights for evaluation, by parameter; None if it evaluates with the trained ones."""
        if (average := own_average(self.optimizer)) is None:
            return None
        named = zip(self.parameters, self.partition.own.items(), strict=True)
        return {p: self.partition.whole(name, average[own]) for p, (name, own) in named if own in average}
