"""The parallelism of a training: how processes share a step; in the base class, each has the whole model (DDP), or is alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.weights import bit_sums
from mltrainer.errors import InputError, MltrainerError
from mltrainer.reproducibility import seeds
from mltrainer.trainers.native.data.addresses import Batch, Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.optimization.gradients import dense
from mltrainer.trainers.native.parallel.partition import Partition
from mltrainer.trainers.native.ranks import Ranks, require_alike
from mltrainer.trainers.native.shards import TreeSum, update_key

WEIGHTS_APART = (
    "every process must do the same to the weights: let nothing in your task, callbacks or optimizer depend on the process (its "
    "rank, the time, a file of its own); if nothing does, a machine does not compute or remember what it should: mltrainer doctor"
)


class Parallelism:
    """Parallel steps: each process computes its own micro-batches with the whole model, and sums have the tree's order.

    Args:
        model: The model, on its device.
        ranks: The processes; None: this one alone.

    Attributes:
        trained: The parameters that are trained, by name.
        partition: The part of each parameter that this process updates.
        leaves: The tensors that the backward pass leaves gradients in.
        splits: Whether this kind splits the parameters among processes.
        is_split: Whether they are split now.

    Raises:
        InputError: The model cannot be shared in this way.
    """

    splits = False

    def __init__(self, model: nn.Module, ranks: Ranks | None = None) -> None:
        self.model, self.ranks, self.is_split = model, ranks or Ranks(), False
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.partition = self._partition()
        self.leaves: Sequence[Tensor] = [*self.trained.values()]
        self._types_are_agreed = False

    def _partition(self) -> Partition:
        return Partition(self.ranks, self.trained, {})

    def shards(self, count: int, planned: int) -> Sequence[int]:
        """Return the numbers of the shards that this process reads: `count` shards of a step, `planned` of a full one."""
        return self.ranks.own(count, planned)

    # --- a step ---

    def prepare(self, objective: Objective, number: int, step: Step, whole: bool) -> Step:
        """Split the parameters for a step, or gather them; return the step with this process's part of it.

        Args:
            objective: The objective of the step.
            number: The step, from 1.
            step: The step's samples.
            whole: Whether the parameters must be whole before the step.

        Raises:
            InputError: The split model computes something else than the whole one.
        """
        (self.gather if whole else self._split)()
        return step

    def backward(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Leave the gradients of a step's mean loss where this process's updates read them; return that loss, with its terms."""
        return (self._accumulate if step.count > 1 else self._alone)(objective, number, step)

    def nothing(self, objective: Objective) -> Tensor:
        """Leave gradients of zero for a step whose samples are all forgotten; return 0 as its loss, with its terms."""
        self._hand_over([torch.zeros_like(own) for own in self.partition.own.values()])
        return torch.zeros(objective.strategies.shape, device=objective.config.device)

    def updated(self) -> None:
        """Give every process the updates of the others, unless the parameters are split."""
        if not self.is_split:
            self.partition.gather()

    def gather(self) -> None:
        """Make all parameters whole, for evaluations, checkpoints and signals."""
        if self.is_split:
            self._make_whole()
            self.is_split = False

    def _split(self) -> None:
        if self.splits and not self.is_split:
            self._free()
            self.is_split = True

    def _free(self) -> None:
        """Free the parameters that this process does not update, in a kind that splits them."""

    def _make_whole(self) -> None:
        """Make freed parameters whole."""

    def clear(self) -> None:
        """Clear all gradients: those of parameters outside of the optimizer would add up."""
        for p in (*self.trained.values(), *self.partition.own.values()):
            p.grad = None

    def require_alike(self, state: Mapping[str, Tensor]) -> None:
        """Refuse weights that differ among processes.

        Args:
            state: The model's state, with whole parameters.

        Raises:
            InputError: A tensor differs; with its name.
        """
        require_alike(self.ranks, bit_sums(state), WEIGHTS_APART)

    # --- sums ---

    def _alone(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Compute a step that is one micro-batch, in every process."""
        objective.seed(number, 0)
        return objective.backward(step.micro_batches[0], step.ids)

    def _accumulate(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Add up micro-batches, each mean loss weighted by its items, so that the sum is the large batch's mean."""
        tree, statistics = TreeSum(), objective.statistics.rows(step.count)
        for shard, micro, ids in zip(step.shards, step.micro_batches, step.micro_ids, strict=True):
            objective.seed(number, shard)
            with objective.statistics.captured(statistics, shard):
                tree.add(self._weighted(objective, micro, ids, shard < step.count))
        self._agree_on_types(objective)
        *gradients, total, weight = tree.total() if step.shards else self._nothing(objective)
        return self._completed(objective, number, *self._summed(gradients, [total, weight, *statistics]))

    def _weighted(self, objective: Objective, micro: Batch, ids: np.ndarray, _is_own: bool) -> list[Tensor]:
        """Return a micro-batch's gradients and loss, times its share of the items, and that share; clear the gradients."""
        loss, weight = objective.backward_share(micro, ids)
        # Cleared: autograd would add the next shard's into the same tensors, in its order and not in the tree's.
        return [*taken_away(self.leaves), loss, weight]

    def _nothing(self, objective: Objective) -> list[Tensor]:
        """Return the summands of a process without a shard."""
        return [*(torch.full_like(p, -0.0) for p in self.trained.values()), *objective.no_loss()]

    def _summed(self, gradients: list[Tensor], others: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the sums over all processes of the gradients, for this process's updates, and of other tensors.

        Args:
            gradients: The gradients, one whole tensor for each parameter.
            others: Loss, weight and the statistics of norms, summed whole.
        """
        summed = self.ranks.tree_sum([*gradients, *others])
        return summed[: len(gradients)], summed[len(gradients) :]

    def _agree_on_types(self, objective: Objective) -> None:
        """Learn, once, the types of the others' losses and weights: a process without a shard has computed none.

        Raises:
            InputError: The types differ among processes.
        """
        if self._types_are_agreed:
            return
        found = dict.fromkeys(types for types in self.ranks.gather(objective.types) if types is not None)
        if len(found) > 1:
            what = f"the losses of some micro-batches are of other types: {', '.join(str(loss) for loss, _ in found)}"
            raise InputError(what, where="loss", hint="return a loss of one type, whatever the batch")
        (objective.types,) = found
        self._types_are_agreed = True

    def _completed(self, objective: Objective, number: int, gradients: list[Tensor], others: list[Tensor]) -> Tensor:
        """Pass the mean gradients of a step's shards to the optimizer, and return their mean loss."""
        total, weight, *statistics = others
        objective.statistics.replay(statistics)
        # Divided once, by the total weight: a step's number of items is known only after each process has counted its own.
        torch._foreach_div_(gradients, weight)
        self._hand_over(gradients)
        seeds.seed_everything(update_key(objective.config.seed, number))  # not the state after the last shard's draws
        return total / weight

    def _hand_over(self, gradients: list[Tensor]) -> None:
        """Give the optimizer the step's gradients for this process's updates; none for frozen parameters."""
        for p, own, gradient in zip(self.trained.values(), self.partition.own.values(), gradients, strict=True):
            own.requires_grad = p.requires_grad
            p.grad = None
            own.grad = gradient if p.requires_grad else None


@contextlib.contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note to an exception that the user's code raises."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, MltrainerError):
            error.add_note(note)
        raise


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return each parameter's gradient, dense; zero for a parameter that the loss did not reach.

    A frozen parameter keeps no gradient, so that no optimizer changes it, and counts as zero.
    """
    found = []
    for p in parameters:
        # Zero and not left out: the chain and the sum over processes need one tensor for each parameter, in each process.
        if p.grad is not None:
            p.grad = dense(p.grad)  # norms and most optimizers cannot use a sparse one
        elif p.requires_grad:
            p.grad = torch.zeros_like(p)
        found.append(torch.zeros_like(p) if p.grad is None else p.grad)
    return found


def taken_away(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return each parameter's gradient as `gradients_of`, and clear them all."""
    found = gradients_of(parameters)
    for p in parameters:
        p.grad = None
    return found
