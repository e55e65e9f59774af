"""The outputs of the steps' passes: the margins of training samples, and the samples behind a spike of the loss.

The passes give these outputs anyway: they are stored, and processed many steps at once, so that no step waits for a device or
computes anything for this. Between a step's kernels a few lines of Python take several times as long as in a row, with the
processor's caches warm.

A margin is the output of a sample's own class less the largest other output; its mean over training is small for a sample whose
label similar samples do not have (Pleiss et al., 2020, arXiv 2001.10528).
"""

from __future__ import annotations

import itertools
import math
import operator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import MltrainerError
from mltrainer.tasks.ids import Ids
from mltrainer.tasks.samples import generators_kept
from mltrainer.tasks.structures import length, mapped, one_of, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.workspace import write_atomic

HELD = 1 << 20  # the most numbers of outputs and targets that are stored; margins are computed from as many
LARGEST = 5  # samples of a spike that are reported, those with the largest losses
APART = 0.01  # relative to the step's loss, more than 16-bit rounding: above it, the loss is not the mean of its samples' losses
EPOCHS = 8  # the most epochs with margins, evenly spaced: more change a mean little
MOST_SAMPLES = 500_000  # the most samples with margins; a checkpoint stores 12 bytes for each
MARGINS_FILE = "margins.f32"  # in a run's folder: by sample id, NaN for samples without a margin

Pass = tuple[Any, Any]  # outputs, without gradients, and targets of a micro-batch


class RecentOutputs:
    """Stores the outputs and targets of the steps that are not fetched yet.

    Args:
        is_on: Whether any are stored.
    """

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._steps: dict[int, tuple[np.ndarray, list[Pass]]] = {}
        self._held = 0

    def took(self, step: int, ids: np.ndarray, passes: list[Pass]) -> None:
        """Add a step.

        Args:
            step: The step's number.
            ids: The ids of its samples in this process.
            passes: The outputs and targets of its micro-batches in this process.
        """
        if not self._is_on:
            return
        size = 0
        for outputs, targets in passes:
            size += numbers(outputs) + numbers(targets)
        if self._held + size <= HELD:
            self._steps[step] = ids, passes
            self._held += size

    def forget(self) -> None:
        """Discard the steps, which are fetched."""
        self._steps, self._held = {}, 0

    def largest(self, step: int, loss: float, task: Task, ranks: Ranks) -> list[dict[str, Any]]:
        """Return the samples with the largest losses of a step, as they were in it, the largest first.

        [] if its outputs are not stored, or if its loss is not a mean over single samples.

        Args:
            step: The step's number.
            loss: The step's loss.
            task: The task, with its loss.
            ranks: The processes, each of which has some of the samples; all must call this.
        """
        ids, passes = self._steps.get(step, (np.zeros(0, dtype=np.int64), []))
        losses = _losses(task, passes)
        # Of samples that share rows there are fewer, and they belong to none of them.
        own = list(zip(ids.tolist(), losses, strict=True)) if len(losses) == len(ids) else []
        gathered = ranks.gather(own)
        found = [(sample, *rest) for part in gathered for sample, rest in part]
        items = sum(count for _, _, count in found)
        mean = sum(value * count for _, value, count in found) / items if items else math.nan
        if not abs(mean - loss) <= APART * abs(loss):
            return []
        ranked = sorted(found, key=lambda row: (-row[1] * row[2], row[0]))[:LARGEST]
        return [{"sample": sample, "loss": value, "share": value * count / (items * mean)} for sample, value, count in ranked]


def seen(outputs: Any, targets: Any) -> Pass | None:
    """Return the outputs of a micro-batch, without gradients, and its targets; None if they are too many to store."""
    if isinstance(outputs, Tensor) and outputs.dim() == 2:
        return outputs.detach(), targets
    # For instance logits of each token: they would take memory while the optimizer needs it.
    return None if numbers(outputs) > HELD else (mapped(Tensor.detach, outputs), targets)


def numbers(value: Any) -> int:
    """Return the count of numbers in the tensors of a structure."""
    # Most structures are one tensor, and each step calls this.
    return value.numel() if isinstance(value, Tensor) else sum(tensor.numel() for tensor in tensors_in(value))


@torch.no_grad()
def _losses(task: Task, passes: list[Pass]) -> list[tuple[float, float]]:
    """Return each sample's own loss and its number of items; [] if they cannot be computed."""
    losses, items = [], []
    try:
        with generators_kept():
            for outputs, targets in passes:
                count = length(targets)
                for place in range(count):
                    one = one_of(targets, place, count)
                    losses.append(task.loss(full(one_of(outputs, place, count)), one).detach().double().reshape(()))
                    items.append(torch.as_tensor(task.loss_items(one), dtype=torch.float64, device=losses[-1].device))
    except MltrainerError:
        raise
    except Exception:  # from a user's loss that needs whole batches: training goes on without this
        return []
    return list(zip(torch.stack(losses).tolist(), torch.stack(items).tolist(), strict=True)) if losses else []


class Margins:
    """Sums up the margins of the training samples; without classes among the targets it does nothing.

    Args:
        config: The config; mixed targets have no class of their own.
        epochs: The number of epochs of the run.
        ids: The ids of the training samples.
    """

    def __init__(self, config: TrainingConfig, epochs: int, ids: Ids) -> None:
        augment = config.augment
        is_mixed = augment is not None and (augment.mixup is not None or augment.cutmix is not None)
        self._is_on = config.signals and not is_mixed and 0 < len(ids) <= MOST_SAMPLES
        self._smooths, self._epochs, self._epoch_is_on = config.label_smoothing > 0, epochs, False
        size = int(np.asarray(ids).max()) + 1 if self._is_on else 0
        self._sums, self._counts = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.int32)
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._ids: list[np.ndarray] = []
        self._held = 0
        self._epoch = 0
        self._made: list[tuple[int, np.ndarray, Tensor]] = []

    def took(self, epoch: int, ids: np.ndarray, passes: list[Pass]) -> None:
        """Add a step.

        Args:
            epoch: The step's epoch, from 1.
            ids: The ids of its samples.
            passes: The outputs and targets of its micro-batches.
        """
        if epoch != self._epoch:
            self._enter(epoch)
        if not self._epoch_is_on:
            return
        widths = {self._classes(*each) for each in passes}
        if len(widths) != 1:  # such as a logit for each sample of a batch, the last of which is smaller
            return
        (width,) = widths
        # Outputs of single tokens in one row belong to no sample.
        if not width or sum(outputs.shape[0] for outputs, _ in passes) != len(ids):
            return
        if self._outputs and self._outputs[0].shape[1] != width:
            self._make()
        self._outputs += [outputs for outputs, _ in passes]
        self._targets += [targets for _, targets in passes]
        self._ids.append(ids)
        self._held += len(ids) * width
        if self._held >= HELD:
            self._make()

    def _enter(self, epoch: int) -> None:
        # Margins carry their epoch, by which processes order them: two epochs' margins must not be computed together.
        if self._ids:
            self._make()
        self._epoch = epoch
        self._epoch_is_on = self._is_on and (epoch * EPOCHS // self._epochs > (epoch - 1) * EPOCHS // self._epochs)

    def _classes(self, outputs: Any, targets: Any) -> int:
        """Return the number of classes of the outputs; 0 if the targets are not such classes."""
        if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.dim() != 2:
            return 0
        count, width = outputs.shape
        if self._smooths and targets.shape == outputs.shape:
            return width if width > 1 else 0
        return width if width > 1 and targets.dtype == torch.int64 and targets.shape == (count,) else 0

    def _make(self) -> None:
        """Compute margins from the stored outputs."""
        targets = torch.cat(self._targets)
        labels = targets.argmax(1) if targets.dim() == 2 else targets
        self._made.append((self._epoch, np.concatenate(self._ids), margins(full(torch.cat(self._outputs)), labels)))
        self._outputs, self._targets, self._ids, self._held = [], [], [], 0

    def fetch(self, ranks: Ranks) -> None:
        """Bring the margins of all processes to the host and add them up."""
        if self._ids:
            self._make()
        made = ranks.gather([(epoch, ids, found.cpu()) for epoch, ids, found in self._made]) if self._is_on else []
        # By epochs, and in float64: a curriculum that reads a sample several times in one epoch gives its sum no fixed order.
        for _, ids, kept in sorted(itertools.chain(*made), key=operator.itemgetter(0)):
            places = torch.from_numpy(ids)
            # A margin that is not finite would make its sample's sum NaN for the rest of the run.
            known = kept.isfinite()
            self._sums.index_add_(0, places, torch.where(known, kept, 0.0).double())
            self._counts.index_add_(0, places, known.int())
        self._made = []

    def means(self) -> Tensor:
        """Return the mean margin by sample id; NaN for samples without a margin."""
        return self._sums / self._counts

    def write(self, folder: Path) -> None:
        """Write the mean margins to a run's folder, if there are any."""
        if int(self._counts.sum()):
            write_atomic(folder / MARGINS_FILE, self.means().numpy().astype("<f4").tobytes())

    def tree(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint."""
        return {"sums": self._sums, "counts": self._counts}

    def of(self, tree: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of a training of other samples as that of one of these."""
        own = {name: torch.zeros_like(value) for name, value in self.tree().items()}
        for name, value in own.items():
            size = min(len(value), len(tree[name]))
            value[:size] = tree[name][:size]
        return own

    def restore(self, tree: dict[str, Tensor] | None) -> None:
        """Continue from a checkpoint; from one without margins, only with those of later steps."""
        if tree is not None:
            self._sums, self._counts = tree["sums"].to(torch.float64, copy=True), tree["counts"].clone()


def margins(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the output of each sample's class less the largest other one; NaN if the label is not one of the classes.

    Args:
        outputs: The outputs, [samples, classes].
        labels: The class numbers, [samples], int64.
    """
    is_known = (labels >= 0) & (labels < outputs.shape[1])
    own = labels.clamp(0, outputs.shape[1] - 1)[:, None]
    others = outputs.scatter(1, own, -torch.inf).amax(1)
    return torch.where(is_known, outputs.gather(1, own)[:, 0] - others, torch.nan)


NO_IDS = np.zeros(0, np.int64)
# A step's number, its epoch from 1, the ids of the samples in each of this process's shards, the number of all shards, the
# outputs of its passes.
# A plain tuple: a named one takes several times as long to make.
_Taken = tuple[int, int, list[np.ndarray], int, list[Pass | None]]


class StepOutputs:
    """Stores the outputs of each step taken, for the margins and for spikes.

    Args:
        margins: The margins of the training samples.
        recent: The outputs of the last steps.
        ranks: The processes.
    """

    def __init__(self, margins: Margins, recent: RecentOutputs, ranks: Ranks) -> None:
        self.margins, self.recent, self._ranks = margins, recent, ranks
        self._passes: list[Pass | None] = []  # of the present step, with an optimizer's extra passes
        self._taken: list[_Taken] = []
        self._held = 0

    def begin(self) -> None:
        """Begin a step."""
        self._passes = []

    def saw(self, outputs: Any, targets: Any) -> None:
        """Store a pass's outputs and targets."""
        self._passes.append(seen(outputs, targets))

    def took(self, number: int, epoch: int, step: Step) -> None:
        """Store the passes of a step that was taken."""
        passes = self._passes
        if not passes:
            return
        own = [step.shard_ids(shard) for shard in step.shards if shard < step.count]
        self._taken.append((number, epoch, own, step.count, passes))
        if passes[0] is not None:
            self._held += len(passes) * numbers(passes[0][0])
        if self._held >= HELD:
            self.hand_on()

    def hand_on(self) -> None:
        """Pass on the stored outputs, each sample's in only one process."""
        for number, epoch, own, count, passes in self._taken:
            if (count == 1 or not self._ranks.shares_steps) and not self._ranks.writes:  # all compute a step of one shard
                continue
            known = [one for one in passes[: len(own)] if one is not None]  # without extra ones, such as SAM's
            if len(known) == len(own):
                found = own[0] if len(own) == 1 else np.concatenate([NO_IDS, *own])
                self.margins.took(epoch, found, known)
                self.recent.took(number, found, known)
        self._taken, self._held = [], 0
