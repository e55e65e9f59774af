"""Contrastive learning: two altered views of a sample shall lie close together, without a look at its label.

SimCLR (Chen et al., 2020, arXiv 2002.05709), with labels SupCon (Khosla et al., 2020, arXiv 2004.11362), and VICReg (Bardes et
al., 2022, arXiv 2105.04906); the losses of SupCon and VICReg are pytorch-metric-learning's. The last layer learns the task from
features that it cannot change, as a linear probe.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.configs import strategies as configs
from mltrainer.errors import InputError
from mltrainer.strategies.strategy import Features, MicroBatch, State, Strategy, Training
from mltrainer.strategies.wrapping import plain_state, take_plain
from mltrainer.tasks.images.augmentation import augment
from mltrainer.tasks.images.task import ImageClassification
from mltrainer.tasks.structures import mapped
from mltrainer.tasks.tables.task import TabularClassification, TabularRegression
from mltrainer.tasks.task import Task

EXTRA = 'pip install "mltrainer[contrastive]"'
HIDDEN = 2  # times the projection's width, of its hidden layer


class Probe(nn.Module):
    """A model's last layer, and the projection of what it reads.

    Args:
        base_layer: The last layer.
        width: Of the projection.
        is_apart: Whether the last layer's loss leaves the rest of the model alone.
    """

    def __init__(self, base_layer: nn.Linear, width: int, is_apart: bool) -> None:
        super().__init__()
        self.base_layer = base_layer
        # As in SimCLR: the loss is of a projection, since what it makes equal is lost to the layers before it.
        hidden = nn.Linear(base_layer.in_features, HIDDEN * width)
        self.projection = nn.Sequential(hidden, nn.ReLU(), nn.Linear(HIDDEN * width, width))
        self._is_apart = is_apart

    def forward(self, features: Tensor) -> Tensor:
        """Return the last layer's outputs."""
        outputs: Tensor = self.base_layer(features.detach() if self._is_apart and self.training else features)
        return outputs


class Contrastive(Strategy[configs.Contrastive]):
    """Views of a sample that shall lie close together."""

    name = "contrastive"
    adapts = True
    _views_differ = False
    _training: Training
    _loss: Callable[..., Tensor]

    def __init__(self, settings: configs.Contrastive, key: str, root: Path) -> None:
        super().__init__(settings, key, root)
        self.share = settings.weight

    # --- the model ---

    def adapt(self, model: nn.Module, task: Task, new: Sequence[str]) -> None:
        """Put the projection around the model's last layer.

        Raises:
            InputError: There is no linear one.
        """
        name = head_of(model, self.settings.head, self.key)
        head: Any = model.get_submodule(name)
        inside = {id(p) for p in head.parameters()}
        if not any(p.requires_grad and id(p) not in inside for p in model.parameters()):
            what = "the model has nothing to learn before its last layer, so that its features are the inputs"
            raise InputError(what, where=self.key, mend="take a model with layers before it")
        model.set_submodule(name, Probe(head, self.settings.projection, self.settings.probe))
        take_plain(model, _probes, lambda _layer, _is_plain: None)

    def plain(self, model: nn.Module) -> State:
        """Return the state of the task's own model, without the projection."""
        return plain_state(model, _probes(model))

    def release(self, model: nn.Module) -> None:
        """Put the last layer back in its place."""
        for name, probe in _probes(model).items():
            model.set_submodule(name, probe.base_layer)

    # --- the loss ---

    def begin(self, training: Training) -> str:
        """Make the loss ready, and return a line on it."""
        _refuse_no_views(training.task, self.settings, self.key)
        if training.config.batch_size < 2:
            what = "a micro-batch of one sample has no others to be told from"
            raise InputError(what, where="batch_size", mend="take two samples at least, better many")
        self._training, self._loss = training, _loss(self.settings)
        return f"learns by {self.settings.method} from two views of each sample"

    def term(self, micro: MicroBatch) -> Tensor:
        """Return the loss of two views of a micro-batch's samples.

        Raises:
            InputError: What the last layer reads is no row of features for each sample.
        """
        first, second = (self._projected(micro.batch) for _ in range(2))
        if not self._views_differ:
            self._views_differ = self._require_unlike(first, second)
        if len(first) == 1:  # the last of an epoch: there is no other to be told from, and a single one has no variance
            return 0.0 * (first.sum() + second.sum())
        if self.settings.method == "supcon":
            self._require_classes(micro.targets)
        if self.settings.method == "simclr":
            return among_others(first, second, self.settings.temperature)
        if self.settings.method == "vicreg":
            return self._loss(first, ref_emb=second)
        return self._loss(torch.cat([first, second]), torch.cat([micro.targets, micro.targets]))

    def _require_unlike(self, first: Tensor, second: Tensor) -> bool:
        """Return True; asked once, as it waits for the device.

        Raises:
            InputError: Two views are the same.
        """
        if torch.equal(first, second):
            what = "two views of a sample are the same: nothing alters them, and the model draws nothing"
            raise InputError(what, where=self.key, mend="write view(self, batch) in your task, or give the model dropout")
        return True

    def _require_classes(self, targets: Any) -> None:
        """Refuse targets of which no two samples may have the same.

        Raises:
            InputError: They are no class numbers.
        """
        if not (isinstance(targets, Tensor) and targets.dim() == 1 and targets.dtype == torch.int64):
            what = "supcon draws samples of one class together, and the targets are no class numbers"
            mend = "method: simclr, or leave out what mixes or smooths targets"
            raise InputError(what, where=f"{self.key}.method", mend=mend)

    def _projected(self, batch: Any) -> Tensor:
        """Return the projections of a new view of each sample, in fp32."""
        training = self._training
        view = self._view(mapped(Tensor.clone, batch) if training.config.task.use is not None else batch)
        ((name, probe),) = _probes(training.model).items()
        features = read_features(training.task, training.model, name, view, self.key)
        return probe.projection(features.float()).float()  # type: ignore[no-any-return]  # a module's call

    def _view(self, batch: Any) -> Any:
        """Return a batch with its samples altered by draws of torch's generator, which each micro-batch's address has set."""
        task, settings = self._training.task, self.settings
        if isinstance(task, ImageClassification) and settings.augment is not None:
            return (augment(batch[0], settings.augment, task.levels, _drawn(len(batch[0]))), *batch[1:])
        if isinstance(task, TabularClassification | TabularRegression):
            return (corrupted(batch[0], settings.corrupt), *batch[1:])
        return task.view(batch)

    def features(self, training: Training) -> Features:
        """Return a function from a batch to what the model's last layer reads."""
        name = head_of(training.model, self.settings.head, self.key)
        return lambda batch: read_features(training.task, training.model, name, batch, self.key).float()


def _drawn(count: int) -> Any:
    return lambda _what, n: torch.rand(count, n, dtype=torch.float64).numpy()


def corrupted(x: Tensor, share: float) -> Tensor:
    """Return rows with some of their cells from other rows of the batch (SCARF: Bahri et al., 2022, arXiv 2106.15147).

    Args:
        x: [rows, columns].
        share: Of the cells, that are replaced.
    """
    others = torch.argsort(torch.rand(x.shape, device="cpu"), dim=0).to(x.device)
    is_replaced = (torch.rand(x.shape, device="cpu") < share).to(x.device)
    return torch.where(is_replaced, x.gather(0, others), x)


def among_others(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Return SimCLR's loss: the cross-entropy of each view's partner among all other views, by the cosine.

    Not the library's, which compares every pair with every other one: at 128 samples that takes a hundred times as long.

    Args:
        first: [samples, width].
        second: Another view of the same samples.
        temperature: That similarities are divided by.
    """
    scaled, count = nn.functional.normalize(torch.cat([first, second]), dim=1), len(first)
    itself = torch.eye(2 * count, dtype=torch.bool, device=first.device)
    similar = (scaled @ scaled.T / temperature).masked_fill(itself, -torch.inf)
    partners = torch.arange(2 * count, device=first.device).roll(count)
    return nn.functional.cross_entropy(similar, partners)


def _loss(settings: configs.Contrastive) -> Any:
    """Return the loss; of supcon and vicreg pytorch-metric-learning's.

    Raises:
        InputError: It is not installed.
    """
    if settings.method == "simclr":
        return among_others
    try:
        losses = importlib.import_module("pytorch_metric_learning.losses")
    except ModuleNotFoundError as error:
        what = "pytorch-metric-learning is not installed, which has the losses"
        raise InputError(what, where="strategies", mend=EXTRA) from error
    if settings.method == "vicreg":
        return losses.VICRegLoss()
    return losses.SupConLoss(temperature=settings.temperature)


def _refuse_no_views(task: Task, settings: configs.Contrastive, key: str) -> None:
    """Refuse a task of which two views of a sample would be the same but for dropout.

    Raises:
        InputError: With what to give.
    """
    if isinstance(task, ImageClassification) and settings.augment is None:
        mend = "augment: {crop: 1, affine: {rotate: 15}}, or other alterations that leave a sample what it is"
        raise InputError("two views of an image need alterations", where=f"{key}.augment", mend=mend)
    if settings.augment is not None and not isinstance(task, ImageClassification):
        raise InputError("only images are altered in these ways", where=f"{key}.augment", mend="leave it out")


# --- features -----------------------------------------------------------------------------------------


def head_of(model: nn.Module, pattern: str | None, key: str) -> str:
    """Return the name of a model's last layer: the linear one that a pattern names, else the last of all.

    Raises:
        InputError: There is none, or it is the whole model.
    """
    if (around := next(iter(_probes(model)), None)) is not None:
        return around
    found = [name for name, module in model.named_modules() if name and isinstance(module, nn.Linear)]
    named = [name for name in found if re.search(pattern or "", name)]
    if not named:
        what = f"no linear layer's name matches {pattern!r}" if pattern else "the model has no linear layer within"
        raise InputError(what, where=f"{key}.head", mend="name the layer that reads the features, an nn.Linear")
    return str(named[-1])


def read_features(task: Task, model: nn.Module, name: str, batch: Any, key: str) -> Tensor:
    """Return the features that a model's last layer reads of a batch, [samples, features].

    Raises:
        InputError: It is of another form.
    """
    seen: list[Any] = []
    handle = model.get_submodule(name).register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    try:
        task.forward(model, batch)
    finally:
        handle.remove()
    if len(seen) != 1 or not isinstance(seen[0], Tensor) or seen[0].dim() != 2:
        found = f"{[*seen[0].shape]}" if seen and isinstance(seen[0], Tensor) else f"{len(seen)} calls"
        what = f"the last layer reads {found}; a row of features for each sample was expected"
        raise InputError(what, where=key, mend="let the model end in a linear layer that reads its features")
    return seen[0]


def _probes(model: nn.Module) -> Mapping[str, Probe]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Probe)}
