"""Contrastive learning: two altered views of a sample are trained to be close together, without its label.

SimCLR (Chen et al., 2020, arXiv 2002.05709), with labels SupCon (Khosla et al., 2020, arXiv 2004.11362), and VICReg (Bardes et
al., 2022, arXiv 2105.04906); the losses of SupCon and VICReg are pytorch-metric-learning's. The last layer learns the task from
features that it cannot change, as a linear probe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.companions.strategies.inputs import swapped
from mltrainer.companions.strategies.probing import Probing, probes, read_features
from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.tasks.images.augmentation import augment
from mltrainer.tasks.images.task import ImageClassification
from mltrainer.tasks.strategy import MicroBatch, Training
from mltrainer.tasks.structures import mapped
from mltrainer.tasks.tables.task import TabularClassification, TabularRegression
from mltrainer.tasks.task import Task

MINERS = {"multi_similarity": "MultiSimilarityMiner", "batch_hard": "BatchHardMiner"}
HIDDEN = 2  # width of the projection's hidden layer, in widths of the projection


class Contrastive(Probing[configs.Contrastive]):
    """Views of a sample that are trained to be close together."""

    name = "contrastive"
    _views_differ = False
    _training: Training
    _loss: Callable[..., Tensor]
    _miner: Callable[[Tensor, Tensor], Any]

    def adapt(self, training: Training, new: Sequence[str]) -> None:
        """Put the projection beside the model's last layer.

        Raises:
            InputError: The model has no linear last layer.
        """
        name, width = self.head_of(training.model), self.settings.projection
        last: Any = training.model.get_submodule(name)
        # As in SimCLR: the loss uses a projection, since the layers before it lose everything that the loss makes equal.
        hidden = nn.Linear(last.in_features, HIDDEN * width)
        self.put(training.model, name, nn.Sequential(hidden, nn.ReLU(), nn.Linear(HIDDEN * width, width)))

    # --- the loss ---

    def begin(self, training: Training) -> str:
        """Make the loss ready, and return a line on it."""
        _refuse_no_views(training.task, self.settings, self.key)
        if training.config.batch_size < 2:
            what = "a micro-batch of one sample has no other samples to contrast with"
            raise InputError(what, where="batch_size", hint="set two or more, better many")
        self._training, self._loss, self._miner = training, self._made_loss(), self._made_miner()
        return f"learns by {self.settings.method} from two views of each sample"

    def _made_loss(self) -> Any:
        """Return the loss; of supcon and vicreg pytorch-metric-learning's.

        Raises:
            InputError: pytorch-metric-learning is not installed.
        """
        if self.settings.method == "simclr":
            return among_others
        losses = self._metric_learning("losses")
        if self.settings.method == "vicreg":
            return losses.VICRegLoss()
        return losses.SupConLoss(temperature=self.settings.temperature)

    def _made_miner(self) -> Callable[[Tensor, Tensor], Any]:
        """Return a function from projections and classes to the pairs that count, None for all.

        Raises:
            InputError: pytorch-metric-learning is not installed.
        """
        if self.settings.miner is None:
            return lambda _projections, _classes: None
        miner: Callable[[Tensor, Tensor], Any] = getattr(self._metric_learning("miners"), MINERS[self.settings.miner])()
        return miner

    def _metric_learning(self, part: str) -> Any:
        return self.library(f"pytorch_metric_learning.{part}", f"has the {part}", "contrastive")

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the loss of two views of a micro-batch's samples.

        Raises:
            InputError: The last layer's input is not a row of features for each sample.
        """
        first, second = (self._projected(micro.batch) for _ in range(2))
        if not self._views_differ:
            self._views_differ = self._require_unlike(first, second)
        if len(first) == 1:  # the last of an epoch: it has no other sample to contrast with, and no variance
            return 0.0 * (first.sum() + second.sum())
        if self.settings.method == "supcon":
            self._require_classes(micro.targets)
        if self.settings.method == "simclr":
            return among_others(first, second, self.settings.temperature)
        if self.settings.method == "vicreg":
            return self._loss(first, ref_emb=second)
        both, classes = torch.cat([first, second]), torch.cat([micro.targets, micro.targets])
        return self._loss(both, classes, self._miner(both, classes))

    def _require_unlike(self, first: Tensor, second: Tensor) -> bool:
        """Return True; asked once, as it waits for the device.

        Raises:
            InputError: Both views are the same.
        """
        if torch.equal(first, second):
            what = "two views of a sample are the same: nothing alters them, and the model draws nothing"
            raise InputError(what, where=self.key, hint="write view(self, batch) in your task, or give the model dropout")
        return True

    def _require_classes(self, targets: Any) -> None:
        """Refuse targets of which no two samples may have the same.

        Raises:
            InputError: The targets are not class numbers.
        """
        if not (isinstance(targets, Tensor) and targets.dim() == 1 and targets.dtype == torch.int64):
            what = "supcon draws samples of one class together, and the targets are no class numbers"
            hint = "method: simclr, or leave out what mixes or smooths targets"
            raise InputError(what, where=f"{self.key}.method", hint=hint)

    def _projected(self, batch: Any) -> Tensor:
        """Return the projections of a new view of each sample, in fp32."""
        training = self._training
        view = self._view(mapped(Tensor.clone, batch) if training.config.task.use is not None else batch)
        ((name, probe),) = probes(training.model).items()
        features = read_features(training.task, training.model, name, view, self.key)
        return probe.beside(features.float()).float()  # type: ignore[no-any-return]  # a module's call

    def _view(self, batch: Any) -> Any:
        """Return a batch with its samples altered by draws of torch's generator, which each micro-batch's address has set."""
        task, settings = self._training.task, self.settings
        if isinstance(task, ImageClassification) and settings.augment is not None:
            return (augment(batch[0], settings.augment, task.levels, _drawn(len(batch[0]))), *batch[1:])
        if isinstance(task, TabularClassification | TabularRegression):
            return (swapped(batch[0], settings.corrupt)[0], *batch[1:])
        return task.view(batch)


def _drawn(count: int) -> Any:
    return lambda _what, n: torch.rand(count, n, dtype=torch.float64).numpy()


def among_others(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return SimCLR's loss: the cross-entropy of each view's partner among all other views, by the cosine.

    Not the library's, which compares every pair with every other one: at 128 samples that takes a hundred times as long.

    Args:
        first: [samples, width].
        second: Another view of the same samples.
        temperature: Divisor of the similarities.
    """
    scaled, count = nn.functional.normalize(torch.cat([first, second]), dim=1), len(first)
    itself = torch.eye(2 * count, dtype=torch.bool, device=first.device)
    similar = (scaled @ scaled.T / temperature).masked_fill(itself, -torch.inf)
    partners = torch.arange(2 * count, device=first.device).roll(count)
    return nn.functional.cross_entropy(similar, partners)


def _refuse_no_views(task: Task, settings: configs.Contrastive, key: str) -> None:
    """Refuse a task of which two views of a sample would be the same but for dropout.

    Raises:
        InputError: The views would be the same; the hint names the missing key.
    """
    if isinstance(task, ImageClassification) and settings.augment is None:
        hint = "augment: {crop: 1, affine: {rotate: 15}}, or other alterations that leave a sample what it is"
        raise InputError("two views of an image need augmentation", where=f"{key}.augment", hint=hint)
    if settings.augment is not None and not isinstance(task, ImageClassification):
        raise InputError("only images are altered in these ways", where=f"{key}.augment", hint="leave it out")
