"""What a row of the history says of the steps before it, in bounded memory however many they are."""

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

KEPT_STEPS = 4096  # medians are over at most so many steps of an interval, evenly spaced
SUMMED_STEPS = 64  # so many losses are added up at once: as many as are fetched together where nothing else is due
RECENT_STEPS = 8  # how many steps before a number that is not finite are shown with it


@dataclass
class Interval:
    """The steps since the last row of the history: part of a checkpoint, so that a resumed row is the same row.

    Attributes:
        steps: How many.
        skipped: How many of them were skipped, because their gradients overflowed; they have no norms.
        samples: The samples of all.
        loss_sum: The losses, each times its samples; those of `rest` are not in it yet.
        rest: The last of these, fewer than `SUMMED_STEPS`.
        clipped: How many norms were above the clip norm.
        smallest: The smallest norm.
        largest: The largest norm.
        recent: The last losses and the last norms.
        stride: The norms of every `stride`-th step are kept.
        kept: Those norms: of all gradients together, then of each parameter; float32 of shape (steps, 1 + parameters).
        terms: Of a loss that has terms, by name: their sum as `loss_sum`, and behind it the last of them as `rest`.
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
        """Take in the next steps.

        Args:
            losses: One a step.
            sizes: Its samples.
            norms: As in `kept`.
            clip_norm: The limit above which a norm counts as clipped.
            terms: Of the losses, by name: one a step.
        """
        totals = norms[:, 0].tolist()
        finite = [norm for norm in totals if math.isfinite(norm)]
        self.note(losses, totals)
        # Before `steps` grows: which of the new norms are kept is counted from the interval's first step.
        self._keep(norms)
        for place, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
            self._sum_up(loss * size, {name: values[place] * size for name, values in terms.items()})
        self.skipped += len(totals) - len(finite)
        self.samples += sum(sizes)
        self.clipped += sum(norm > clip_norm for norm in finite) if clip_norm is not None else 0
        self.smallest, self.largest = min([self.smallest, *finite]), max([self.largest, *finite])

    def _sum_up(self, loss: float, terms: Mapping[str, float]) -> None:
        """Count a step, and add up the losses, and their terms, where enough of them have come together.

        A sum is rounded each time, so that the last bit of a row's loss would depend on where the steps were fetched.
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
        """Keep the norms of every `stride`-th step; when they are too many, every second of them, and half as often then."""
        # By the step's place in the interval, not in this fetch: fetches fall elsewhere in a run that was interrupted.
        chosen = norms[-self.steps % self.stride :: self.stride].float()
        self.kept = torch.cat([self.kept, chosen]) if len(self.kept) else chosen
        if len(self.kept) > KEPT_STEPS:
            self.kept, self.stride = self.kept[::2].clone(), self.stride * 2

    def row(self, layer_places: list[int]) -> dict[str, Any]:
        """Return the interval's part of a history row: losses, and gradient norms before clipping, None where no step has one."""
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
