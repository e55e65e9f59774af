"""The statistics of the steps before a row of the history, in memory bounded whatever their number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.checkpointing.format import Tree

KEPT_STEPS = 4096  # the most steps of an interval that medians are taken over, evenly spaced
SUMMED_STEPS = 64  # losses that are summed at once: as many as are fetched together if nothing else is due
RECENT_STEPS = 8  # the steps that are shown before a number that is not finite


@dataclass
class Interval:
    """The steps since the last row of the history: part of a checkpoint, so that a resumed row is the same row.

    Attributes:
        steps: The number of steps.
        skipped: The number of steps skipped because their gradients overflowed; they have no norms.
        samples: The number of samples of all steps.
        loss_sum: The sum of the losses, each times its samples, without those in `rest`.
        rest: The last of these weighted losses, fewer than `SUMMED_STEPS`.
        clipped: The number of norms above the clip norm.
        smallest: The smallest norm.
        largest: The largest norm.
        recent: The last losses and the last norms.
        stride: The distance between steps whose norms are kept.
        kept: Those norms: of all gradients together, then of each parameter; float32 of shape (steps, 1 + parameters).
        terms: The terms of the loss, by name: for each a sum as in `loss_sum`, followed by values as in `rest`.
    """

    steps: int = 0
    skipped: int = 0
    samples: int = 0
    loss_sum: float = 0.0
    rest: list[float] = field(default_factory=list)
    clipped: int = 0
    smallest: float = math.inf
    largest: float = 0.0
    recent: dict[str, list[float]] = field(default_factory=lambda: {"losses": [], "norms": []})
    stride: int = 1
    kept: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    terms: dict[str, list[float]] = field(default_factory=dict)

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        recent = {name: list(values) for name, values in self.recent.items()}
        terms = {name: list(sums) for name, sums in self.terms.items()}
        return {**vars(self), "rest": list(self.rest), "recent": recent, "terms": terms}

    def extend(
        self,
        losses: list[float],
        sizes: list[int],
        norms: Tensor,
        clip_norm: float | None,
        terms: Mapping[str, Sequence[float]] = MappingProxyType({}),
    ) -> None:
        """Add the next steps.

        Args:
            losses: The loss of each step.
            sizes: The number of samples of each step.
            norms: The norms of each step, shaped as `kept`.
            clip_norm: The limit above which a norm counts as clipped.
            terms: The terms of the losses by name, one value per step.
        """
        totals = norms[:, 0].tolist()
        finite = [norm for norm in totals if math.isfinite(norm)]
        self.note(losses, totals)
        # Before `steps` grows: the choice of the new norms counts from the interval's first step.
        self._keep(norms)
        for place, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
            self._sum_up(loss * size, {name: values[place] * size for name, values in terms.items()})
        self.skipped += len(totals) - len(finite)
        self.samples += sum(sizes)
        self.clipped += sum(norm > clip_norm for norm in finite) if clip_norm is not None else 0
        self.smallest, self.largest = min([self.smallest, *finite]), max([self.largest, *finite])

    def _sum_up(self, loss: float, terms: Mapping[str, float]) -> None:
        """Count a step, and sum the losses, and their terms, once there are `SUMMED_STEPS` of them.

        Each addition rounds, so that otherwise the last bit of a row's loss would depend on where the steps were fetched.
        """
        self.steps += 1
        self.rest.append(loss)
        for name, term in terms.items():
            self.terms.setdefault(name, [0.0]).append(term)
        if self.steps % SUMMED_STEPS == 0:
            self.loss_sum, self.rest = self.loss_sum + math.fsum(self.rest), []
            self.terms = {name: [sums[0] + math.fsum(sums[1:])] for name, sums in self.terms.items()}

    def note(self, losses: list[float], norms: list[float]) -> None:
        """Remember the last losses and norms."""
        for name, values in (("losses", losses), ("norms", norms)):
            self.recent[name] = (self.recent[name] + values)[-RECENT_STEPS:]

    def _keep(self, norms: Tensor) -> None:
        """Keep the norms of every `stride`-th step; when there are too many, drop every second one and double the stride."""
        # By the step's place in the interval, not in this fetch: an interrupted run fetches at other steps.
        chosen = norms[-self.steps % self.stride :: self.stride].float()
        self.kept = torch.cat([self.kept, chosen]) if len(self.kept) else chosen
        if len(self.kept) > KEPT_STEPS:
            self.kept, self.stride = self.kept[::2].clone(), self.stride * 2

    def row(self, layer_places: list[int]) -> dict[str, Any]:
        """Return the interval's part of a history row: losses, and gradient norms before clipping (None without any norm)."""
        finite = self.kept[torch.isfinite(self.kept[:, 0])].numpy()
        medians = np.median(finite, axis=0).tolist() if len(finite) else [None] * self.kept.shape[1]
        stepped = self.steps - self.skipped
        ends = {"max": self.largest, "min": self.smallest} if stepped else {"max": None, "min": None}
        return {
            "train_loss": (self.loss_sum + math.fsum(self.rest)) / max(1, self.samples),
            "grad_norm": {"median": medians[0], **ends},
            "layer_norms": [medians[1 + place] for place in layer_places],
            "clipped": self.clipped / stepped if stepped else None,
            "skipped": self.skipped / max(1, self.steps),
            **({"terms": self._term_means()} if self.terms else {}),
        }

    def _term_means(self) -> dict[str, float]:
        return {name: (sums[0] + math.fsum(sums[1:])) / max(1, self.samples) for name, sums in self.terms.items()}
