"""The margins of training samples: a model's certainty of each sample's own class while it learns, a sign of wrong labels.

The margin is the output of a sample's own class less the largest other output, in the passes that train; its mean over training
is small for a sample whose label similar samples do not have (Pleiss et al., 2020, arXiv 2001.10528). The passes give these
outputs anyway: they are stored until there are enough, so that no step waits for a device or computes anything for this.
"""

from __future__ import annotations

import itertools
import operator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.ids import Ids
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.signals.recent_outputs import Pass
from mltrainer.workspace import write_atomic

EPOCHS = 8  # the most epochs with margins, evenly spaced: more change a mean little
HELD = 1 << 20  # outputs that are stored before margins are computed from them
MOST_SAMPLES = 500_000  # the most samples with margins; a checkpoint stores 12 bytes for each
MARGINS_FILE = "margins.f32"  # in a run's folder: by sample id, NaN for samples without a margin


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
