"""One optimizer step: forward, backward, gradients, update. It knows of no epoch, file or evaluation, and waits for nothing."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.format import Tree
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.strategies.joined import Strategies
from mltrainer.strategies.strategy import MicroBatch
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import Batch, Step
from mltrainer.trainers.native.exchange import others_may_be_lost, tells_of_others
from mltrainer.trainers.native.optimization.custom import OwnUpdates, groups_of
from mltrainer.trainers.native.optimization.gradients import gradient_norms, shape
from mltrainer.trainers.native.optimization.groups import parameter_groups
from mltrainer.trainers.native.optimization.offloading import optimizer_for
from mltrainer.trainers.native.optimization.optimizers import SHARE, begin_momentum, kind_of, own_average
from mltrainer.trainers.native.optimization.precision import autocast, choose, full
from mltrainer.trainers.native.partition import Partition
from mltrainer.trainers.native.pipeline.pipeline import Pass, Pipeline, in_turn
from mltrainer.trainers.native.preparing import lay_out_like_parameters
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.running_statistics import RunningStatistics
from mltrainer.trainers.native.shards import TreeSum, shard_key, update_key
from mltrainer.trainers.native.split_parameters import Shard, SplitParameters

if TYPE_CHECKING:
    from mltrainer.trainers.native.tensor_parallel import PlannedModel


@dataclass(frozen=True)
class Measured:
    """A step's numbers, on the device.

    Attributes:
        loss: The mean loss over the step's items.
        norms: The L2 norm of each parameter's gradient, before anything is done to it.
        total: The norm of all together.
        taken: Whether the weights were changed: not by what was known not to be finite before.
        terms: The mean terms of the loss, where it has some.
    """

    loss: Tensor
    norms: Tensor
    total: Tensor
    taken: bool = True
    terms: Tensor | None = None


def summed(mean: Tensor, items: float | Tensor) -> Tensor:
    """Return the sum that a mean is of; over no items it is 0, though their mean is no number."""
    total = mean * items
    return torch.where(items > 0, total, 0.0) if isinstance(items, Tensor) else total


@contextlib.contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Give a model the buffers that it has now back after a block; one that it does not have yet, it does not have then."""
    owned = [(owner._buffers, name, b) for owner in model.modules() for name, b in owner._buffers.items()]
    before = [None if buffer is None else buffer.clone() for _, _, buffer in owned]
    yield
    for (buffers, name, buffer), kept in zip(owned, before, strict=True):
        buffers[name] = None if buffer is None or kept is None else buffer.copy_(kept)


class Stepper:
    """Takes steps.

    Args:
        task: Forward and loss.
        model: On its device.
        config: Optimizer, gradients, precision, seed.
        own: The task's own updates, where the config leaves them to it.
        ranks: The processes that take the steps together.
        strategies: What is done beside the task.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        config: TrainingConfig,
        own: OwnUpdates | None = None,
        ranks: Ranks | None = None,
        strategies: Strategies | None = None,
    ) -> None:
        self.task, self.model, self.config, self.own = task, model, config, own
        self.ranks, self.strategies = ranks or Ranks(), strategies or Strategies()
        self._types: tuple[torch.dtype, torch.dtype] | None = None  # of a shard's loss, with its terms, and weight
        self._types_are_agreed = False
        self.parameters: list[nn.Parameter] = [p for p in model.parameters() if p.requires_grad]
        self._statistics = RunningStatistics(model)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._autocast = autocast(config)
        self._lowers = self._autocast._enabled
        self._planned = self._planned_model()
        self._pipeline = self._in_stages()
        self.partition = self._partition(trained)
        fully = config.launch.parallel == "fsdp" and self.partition.is_shared
        self._split = SplitParameters(model, self.partition) if fully else None
        # What the backward pass leaves gradients in: of a planned parameter, what this process has of it.
        self._leaves = self.parameters if self._planned is None else [*self.partition.own.values()]
        self.optimizer: Any = optimizer_for(config, model, self.partition.own) if own is None else own.optimizer
        self.scaler = torch.amp.GradScaler(config.device, enabled=choose(config.precision, config.device).chosen == "fp16")
        thaws = config.start is not None and bool(config.start.unfreeze)
        if self.scaler.is_enabled() or thaws:
            begin_momentum(self.optimizer)
        self.looks = config.device == "cpu"  # to look at a GPU's numbers would be to wait for it
        self.before_step: Callable[[int], None] = lambda _number: None
        self.saw: Callable[[Any, Any], None] = lambda _outputs, _targets: None
        self._update = self._step if config.optimizer.sam is None else self._sharp_step
        self.groups = parameter_groups(config.optimizer, model) if own is None else groups_of(own.optimizer, model)
        kind = kind_of(config.optimizer) if own is None else f"own {type(own.optimizer).__name__}"
        self._made = {"optimizer": kind, "groups": [group.parameters for group in self.groups]}
        self._names = [name for group in self.groups for name in group.parameters]

    def _planned_model(self) -> PlannedModel | None:
        """Return the model as the processes compute it together; None where each computes the whole of it."""
        if self.ranks.shares_steps:
            return None
        from mltrainer.trainers.native.tensor_parallel import PlannedModel  # whose own imports take most of a second

        return PlannedModel(self.model, self.ranks, self._lowers)

    def _in_stages(self) -> Pipeline | None:
        """Return this process's stage of the model; None where each computes the whole of it."""
        is_asked = self.config.launch.parallel == "pipeline" and self.own is None and self.ranks.shares_steps
        return Pipeline(self.model, self.ranks) if is_asked and self.ranks.size > 1 else None

    def _partition(self, trained: dict[str, nn.Parameter]) -> Partition:
        if self._planned is not None:
            return self._planned.partition(trained)
        if self._pipeline is not None:
            self._pipeline.partition = Partition(self.ranks, trained, "pipeline", self._pipeline.stages.owners)
            return self._pipeline.partition
        return Partition(self.ranks, trained, self.config.launch.parallel if self.own is None else "ddp")

    @property
    def shares_state(self) -> bool:
        """Whether other processes have a part of the optimizer's state."""
        return self.partition.is_shared

    @property
    def splits(self) -> bool:
        """Whether the parameters lie split among processes, unless they are gathered."""
        return self._lying is not None

    @property
    def _lying(self) -> SplitParameters | PlannedModel | Pipeline | None:
        return self._split or self._planned or self._pipeline

    def gather(self) -> None:
        """Make all parameters whole, for whoever reads them between steps; the next step splits them again."""
        if self._lying is not None:
            self._lying.gather()

    # --- the shards of a step ---

    def shards(self, count: int) -> Sequence[int]:
        """Return the numbers of the shards, of a step of so many, that this process reads."""
        if self._pipeline is not None:
            return range(count)
        return self.ranks.strided(count) if self.splits else self.ranks.own(count, self.config.accumulate)

    def is_whole(self, step: Step) -> bool:
        """Return True if every process computes whole micro-batches: of a step that is one, stages would wait for each other."""
        return self._pipeline is not None and step.count == 1

    def verify(self, number: int, step: Step) -> None:
        """Compare, where steps were taken in stages, once more what they compute, by the samples of the next step.

        Raises:
            InputError: It differs: those steps were wrong.
        """
        if self._pipeline is not None and self._pipeline.is_split:
            self._prove(number, step, self._pipeline)

    def computed(self, step: Step) -> Step:
        """Return a step that is taken with whole parameters with those micro-batches alone that this process computes."""
        if self._pipeline is None:
            return step
        own = self.ranks.own(step.count, self.config.accumulate)
        return replace(step, micro_batches=[step.micro_batches[shard] for shard in own], shards=own)

    def adopt(self) -> None:
        """Go on from the model's parameters, which were loaded."""
        self.partition.adopt()

    def state_dict(self) -> Tree:
        """Return the state of optimizer and loss scale, and what tells whether another optimizer can take it over."""
        optimizer = self.partition.marked_state(self.optimizer.state_dict(), self._names)
        return {"optimizer": optimizer, "scaler": self.scaler.state_dict(), "made": self._made}

    def load_state_dict(self, state: Tree) -> None:
        """Take over a state.

        Raises:
            ValueError: It is another optimizer's.
        """
        self.optimizer.load_state_dict(self.partition.own_state(state["optimizer"], self._names))
        lay_out_like_parameters(self.optimizer)
        self.scaler.load_state_dict(state["scaler"])

    def take_over(self, state: Tree) -> None:
        """Take over the state of another run's optimizer; the options are the config's, though torch saves them with the state.

        Raises:
            ValueError: It is of another kind, or groups parameters in another way.
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
        self.load_state_dict(state)
        for group, chosen in zip(self.optimizer.param_groups, options, strict=True):
            group.update(chosen)

    def take(self, number: int, rate: float, step: Step, whole: bool = False) -> Measured:
        """Take the step of a number (from 1) at a learning rate.

        Args:
            number: Of the step.
            rate: Before the groups' shares.
            step: Its samples.
            whole: Whether the parameters are whole before and after it, also where they lie split otherwise.
        """
        if self._pipeline is not None and not (whole or self._pipeline.is_proven):
            self._prove(number, step, self._pipeline)
        if (lying := self._split or self._pipeline) is not None:
            (lying.gather if whole else lying.split)()
        if self._planned is None:
            return self._taken(number, rate, step)
        with others_may_be_lost(tells_of_others):
            self._planned.require_same_results(partial(self._tried, number, step))
            measured = self._taken(number, rate, step)
            if whole:
                self._planned.gather()
            return measured

    def _tried(self, number: int, step: Step) -> tuple[Any, Tensor]:
        """Return outputs and loss of a step's first micro-batch in evaluation mode, and leave its gradients in the parameters."""
        self.clear()
        self.seed(number, 0)
        # Module by module: a norm that is held for this step stays as it is.
        modes = [(module, module.training) for module in self.model.modules()]
        with buffers_kept(self.model), self._autocast:
            self.model.eval()
            # A copy: a forward pass may change its batch in place, which is yet to be trained on.
            outputs, targets = self.task.forward(self.model, copy.deepcopy(step.micro_batches[0]))
            loss = self.task.loss(full(outputs), targets)
        loss.backward()
        for module, training in modes:
            module.training = training
        return outputs, loss.detach()

    def _prove(self, number: int, step: Step, pipeline: Pipeline) -> None:
        """Refuse a model that computes something else in stages, by a step's first micro-batch, and its last between."""
        self.clear()
        pipeline.gather()

        ids = step.micro_ids(self.config.batch_size)

        def objective(shard: int) -> Tensor:
            self.seed(number, shard)
            # A copy: a forward pass may change its batch in place, which is yet to be trained on.
            return self._share(copy.deepcopy(step.micro_batches[shard]), ids[shard], is_noted=False)[0]

        with buffers_kept(self.model):
            pipeline.prove(partial(objective, 0), partial(objective, step.count - 1))

    def _taken(self, number: int, rate: float, step: Step) -> Measured:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group[SHARE]
        # After the rates were set, so that a callback may set others; before the backward pass, which reads the weights.
        self.before_step(number)
        loss, terms = self.strategies.told(self._backward(number, step))
        # Before norms and clipping, which are of the gradients and not of the loss scale.
        self.scaler.unscale_(self.optimizer)
        gradients = self._own_gradients()
        if self._planned is not None:
            self._planned.require_alike(dict(zip(self.partition.own, gradients, strict=True)))
        measured = Measured(loss, *self._norms(gradients), terms=terms)
        if self.looks and not self._is_finite(measured):
            return replace(measured, taken=False)
        self._update(number, step, gradients, measured.total)
        self.strategies.stepped()
        return measured

    def _is_finite(self, measured: Measured) -> bool:
        """Return True if a step may be taken; a gradient that is scaled may overflow, and is then not applied anyway."""
        return math.isfinite(measured.loss) and (self.scaler.is_enabled() or math.isfinite(measured.total))

    def used_rate(self) -> float:
        """Return the learning rate of the last step, before the groups' shares; a callback may have set another than planned."""
        group = max(self.optimizer.param_groups, key=lambda group: float(group[SHARE]))
        if self.own is not None:  # whose shares are rates, so that the config's is a factor
            return float(group["lr"])
        return float(group["lr"] / group[SHARE]) if group[SHARE] else 0.0

    def may_overflow(self) -> bool:
        """Return True if gradients that are not finite are the loss scale's doing, which then falls; waits for the device."""
        return self.scaler.is_enabled() and self.scaler.get_scale() >= 1

    def scaled(self) -> dict[str, float]:
        """Return the loss scale and the share of zeros among the last step's gradients; empty without such a scale.

        A gradient of fp16 that is too small for it becomes 0 (Micikevicius et al., 2018, arXiv 1710.03740); so does that of a
        unit that is dead.
        """
        if not self.scaler.is_enabled():
            return {}
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        zeros = sum((gradient == 0).sum() for gradient in gradients)
        return {"loss_scale": self.scaler.get_scale(), "zero_gradients": float(zeros) / max(1, sum(g.numel() for g in gradients))}

    def seed(self, number: int, shard: int) -> None:
        """Set the generators to the draws of a step's micro-batch."""
        address = shard_key(self.config.seed, number, shard)
        seeds.seed_everything(address)
        self.strategies.address = seeds.key(address, "strategies")

    def _step(self, number: int, _step: Step, gradients: list[Tensor], total: Tensor) -> None:
        shape(gradients, [*self.partition.own.values()], total, self.config, number)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self._lying is None or not self._lying.is_split:
            self.partition.gather()

    def _sharp_step(self, number: int, step: Step, _gradients: list[Tensor], _total: Tensor) -> None:
        """Climb to the worst point nearby, take the gradient there under the same draws, come back and step with it."""
        self.optimizer.first_step()
        with buffers_kept(self.model):  # statistics are of the batch at the weights, once
            self._backward(number, step)
        gradients = self._own_gradients()
        shape(gradients, self.parameters, self._norms(gradients)[1], self.config, number)
        self.optimizer.second_step()

    def clear(self) -> None:
        """Leave no gradient behind: of a parameter that the optimizer leaves out, they would pile up."""
        if self.own is not None:  # it may hold more than the model's parameters
            self.optimizer.zero_grad(set_to_none=True)
        for p in (*self.parameters, *self.partition.own.values()):
            p.grad = None

    def _backward(self, number: int, step: Step) -> Tensor:
        """Leave the gradients of the step's mean loss in the parameters, and return that loss, with its terms."""
        self.clear()
        if self._pipeline is not None and self._pipeline.is_split:
            return self._accumulate_in_stages(number, step, self._pipeline)
        if step.count > 1:
            return self._accumulate(number, step) if self._split is None else self._accumulate_split(number, step, self._split)
        self.seed(number, 0)
        if self._split is not None:
            self._split.begin(Shard.ALONE)
        with contextlib.nullcontext() if self._split is None else self._split.explained():
            loss, told, _ = self._loss(step.micro_batches[0], step.ids)
            self.scaler.scale(loss).backward()
        if self._split is not None:
            self._hand_over(self.partition.in_order(self._split.end(), self._small_gradients()))
        elif self.partition.is_shared:
            self._hand_over(self.partition.rows(self._gradients(self.parameters)))
        return told

    def _accumulate(self, number: int, step: Step) -> Tensor:
        """Add up micro-batches, each mean loss weighted by its items, so that the sum is the large batch's mean."""
        tree, statistics = TreeSum(), self._statistics.rows(step.count)
        for shard, micro, ids in zip(step.shards, step.micro_batches, step.micro_ids(self.config.batch_size), strict=True):
            self.seed(number, shard)
            with self._statistics.captured(statistics, shard):
                tree.add(self._weighted(micro, ids))
        self._agree_on_types()
        own = tree.total() if step.shards else self._nothing()
        *gradients, total, weight = own
        gradients, (total, weight, *statistics) = self.partition.sum(gradients, [total, weight, *statistics])
        return self._completed(number, gradients, total, weight, statistics)

    def _agree_on_types(self) -> None:
        """Learn, once, in which types the others add loss and weight: a process without a shard has seen none.

        Raises:
            InputError: They differ among processes.
        """
        if self._types_are_agreed:
            return
        found = dict.fromkeys(types for types in self.ranks.gather(self._types) if types is not None)
        if len(found) > 1:
            what = f"the losses of some micro-batches are of other types: {', '.join(str(loss) for loss, _ in found)}"
            raise InputError(what, where="loss", mend="return a loss of one type, whatever the batch")
        (self._types,) = found
        self._types_are_agreed = True

    def _completed(self, number: int, gradients: list[Tensor], total: Tensor, weight: Tensor, statistics: list[Tensor]) -> Tensor:
        """Hand over the mean gradients of a step's shards, and return their mean loss."""
        self._statistics.replay(statistics)
        # Divided once, by the weight of all: how many items a step has is known only when each process has counted its own.
        torch._foreach_div_(gradients, weight)
        self._hand_over(gradients)
        seeds.seed_everything(update_key(self.config.seed, number))  # not where the last shard's draws ended
        return total / weight

    def _accumulate_split(self, number: int, step: Step, split: SplitParameters) -> Tensor:
        """Add up micro-batches that all processes compute at the same time, each summed over them at once."""
        tree, statistics = TreeSum(), self._statistics.rows(step.count)
        for shard, micro, ids in zip(step.shards, step.micro_batches, step.micro_ids(self.config.batch_size), strict=True):
            self.seed(number, shard)
            is_own = shard < step.count
            kept = statistics if is_own else self._statistics.rows(1)
            split.begin(Shard.SUMMED if is_own else Shard.FILLER)
            with self._statistics.captured(kept, shard if is_own else 0):
                tree.add(self._summed_shard(micro, ids, split, is_own))
        *gradients, total, weight = tree.total()
        return self._completed(number, gradients, total, weight, self.ranks.tree_sum(statistics))

    def _summed_shard(self, micro: Batch, ids: np.ndarray, split: SplitParameters, is_own: bool) -> list[Tensor]:
        """Return the sums over all processes of what `_weighted` returns of each one's micro-batch."""
        with split.explained():
            loss, weight = self._backward_share(micro, ids, is_noted=is_own)
        small = self._small_gradients()
        tensors = [*small.values(), loss, weight]
        if not is_own:
            tensors = [torch.full_like(tensor, -0.0) for tensor in tensors]
        # Block by block during the backward pass, then the rest: the same order in every process.
        rows = split.end()
        *gradients, loss, weight = self.ranks.tree_sum(tensors)
        return [*self.partition.in_order(rows, dict(zip(small, gradients, strict=True))), loss, weight]

    def _accumulate_in_stages(self, number: int, step: Step, pipeline: Pipeline) -> Tensor:
        """Add up micro-batches that flow through the processes, each of which has a stage of the model."""
        tree, statistics = TreeSum(), self._statistics.rows(step.count)
        ids = step.micro_ids(self.config.batch_size)
        passes: dict[int, tuple[Pass, tuple[Tensor, ...] | None]] = {}
        for ahead, back in in_turn(step.count, pipeline.ahead):
            if ahead is not None:
                self.seed(number, ahead)
                with self._statistics.captured(statistics, ahead, pipeline.norms):
                    passes[ahead] = pipeline.forward(partial(self._share, step.micro_batches[ahead], ids[ahead]))
            if back is not None:
                passed, shared = passes.pop(back)
                pipeline.backward(passed, None if shared is None else shared[0])
                tree.add([*pipeline.own_gradients().values(), *(() if shared is None else shared[1:])])
        pipeline.end()
        self._agree_on_types()
        own = tree.total()
        names = [name for name, home in pipeline.homes.items() if home == self.ranks.rank]
        total, weight = own[len(names) :] or self._no_loss()
        return self._completed(number, *self._joined(dict(zip(names, own, strict=False)), [total, weight, *statistics]))

    def _joined(self, own: dict[str, Tensor], others: list[Tensor]) -> tuple[list[Tensor], Tensor, Tensor, list[Tensor]]:
        """Return a step's gradients, of each what this process updates, and the sums over all processes of other tensors.

        Args:
            own: The gradients whose home is this process, by name.
            others: Loss, weight and the statistics of norms; -0.0, which changes no sum, where another process has them.
        """
        cut = set(self.partition.cut)
        small = {n: own[n] if n in own else torch.full_like(p, -0.0) for n, p in self.partition.own.items() if n not in cut}
        summed = self.ranks.tree_sum([*small.values(), *others])
        rows = {n: own[n] if n in own else torch.zeros_like(self.partition.own[n]) for n in cut}
        gradients = self.partition.in_order(rows, dict(zip(small, summed, strict=False)))
        total, weight, *statistics = summed[len(small) :]
        return gradients, total, weight, statistics

    def _small_gradients(self) -> dict[str, Tensor]:
        """Return the gradients of the parameters that are not cut, by name, and leave none behind."""
        cut = set(self.partition.cut)
        small = {name: p for name, p in self.partition.own.items() if name not in cut}
        gradients = dict(zip(small, self._gradients([*small.values()]), strict=True))
        for p in small.values():
            p.grad = None
        return gradients

    def _hand_over(self, gradients: list[Tensor]) -> None:
        """Give the optimizer the step's gradients, each of what this process updates; of a held parameter none."""
        for p, own, gradient in zip(self.parameters, self.partition.own.values(), gradients, strict=True):
            own.requires_grad = p.requires_grad
            p.grad = None
            own.grad = gradient if p.requires_grad else None

    def _nothing(self) -> list[Tensor]:
        """Return the summands of a process without a shard: x + -0.0 has the bits of x, also where x is -0.0."""
        return [*(torch.full_like(p, -0.0) for p in self.parameters), *self._no_loss()]

    def _no_loss(self) -> list[Tensor]:
        """Return loss and weight of a process that computes none."""
        shapes = (self.strategies.shape, ())
        typed = zip(shapes, self._types, strict=True) if self._types is not None else ()
        return [torch.full(shape, -0.0, dtype=dtype, device=self.config.device) for shape, dtype in typed]

    def _weighted(self, micro: Batch, ids: np.ndarray) -> list[Tensor]:
        """Return a micro-batch's gradients and loss, times its share of the items, and that share; no gradient is left behind."""
        loss, weight = self._backward_share(micro, ids)
        gradients = self._gradients(self._leaves)
        # Taken away: autograd would add the next shard's into the same tensors, in its order and not in the tree's.
        for p in self._leaves:
            p.grad = None
        return [*gradients, loss, weight]

    def _backward_share(self, micro: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor]:
        """Go forward and backward through a micro-batch; return its loss times its share of the items, and that share."""
        objective, total, weight = self._share(micro, ids, is_noted)
        self.scaler.scale(objective).backward()
        return total, weight

    def _share(self, micro: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Go forward through a micro-batch.

        Returns:
            Its loss times its share of the items, to differentiate, and to add, with its terms; and that share.
        """
        loss, told, items = self._loss(micro, ids, is_noted)
        share = items / self.config.batch_size  # near 1, for the range of fp16
        weight = share if isinstance(share, Tensor) else torch.full((), share, device=loss.device)
        total = summed(told, share)
        self._types = total.dtype, weight.dtype
        return loss * share, total, weight

    def _loss(self, batch: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor, int | Tensor]:
        """Return the mean loss of a batch, the same detached with its terms, and how many items it is the mean of."""
        with self._autocast if self._lowers or torch.is_autocast_enabled(self.config.device) else contextlib.nullcontext():
            untouched = self.strategies.untouched(batch)
            with self.strategies.watching:
                outputs, targets = self.task.forward(self.model, batch)
            if is_noted:
                self.saw(outputs, targets)
            kept = self.strategies.kept(full(outputs))
            loss = self.task.loss(full(outputs), targets)
            joined, told = self.strategies.join(loss, MicroBatch(untouched, kept, targets, ids))
            return joined, told, self.task.loss_items(targets)

    def _own_gradients(self) -> list[Tensor]:
        """Return the step's gradients, each of what this process updates."""
        return self._gradients([*self.partition.own.values()])

    def _norms(self, gradients: list[Tensor]) -> tuple[Tensor, Tensor]:
        return gradient_norms(self.partition.norm_summands(gradients))

    @staticmethod
    def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
        """Return each parameter's gradient; one that the loss did not reach has gradient zero, a sparse one is filled up.

        One that is held has none, so that no optimizer changes it, and counts as zero.
        """
        for p in parameters:
            # Zero and not left out: the chain and the sum over processes need one tensor for each parameter, in each process.
            if p.grad is None and p.requires_grad:
                p.grad = torch.zeros_like(p)
            elif p.grad is not None and p.grad.is_sparse:  # neither norms nor most optimizers can do with it
                p.grad = p.grad.to_dense()
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]

    def own_average(self) -> dict[Tensor, Tensor] | None:
        """Return the weights that the optimizer wants to be measured by, by parameter; None: those being trained."""
        average = own_average(self.optimizer)
        if average is None or not self.partition.is_shared:
            return average
        named = zip(self.parameters, self.partition.own.items(), strict=True)
        return {p: self.partition.whole(name, average[own]) for p, (name, own) in named if own in average}
