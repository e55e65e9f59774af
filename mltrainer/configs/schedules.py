"""Learning-rate schedules: each a pure function of the step, so that there is no state to save or to lose.

A schedule gives a share of the base rate for a step after the warm-up; every schedule may have a warm-up.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mltrainer.configs.loading import Strict

ROUNDING = 1e-9  # share by which a number of steps may be off because of its arithmetic


class _Schedule(Strict):
    """What every schedule has: a warm-up, which reaches the base rate at its last step."""

    warmup_epochs: float = Field(0, ge=0, description="epochs of warm-up; may be a fraction")
    warmup_steps: int = Field(0, ge=0, description="steps of warm-up, in place of epochs")
    warmup: Literal["linear", "cosine"] = Field("linear", description="shape of the warm-up")

    @model_validator(mode="after")
    def _one_warmup(self) -> Self:
        if self.warmup_epochs and self.warmup_steps:
            raise ValueError("give either warmup_epochs or warmup_steps, and leave the other 0")
        return self

    def warmed_up(self, per_epoch: int) -> int:
        """Return the last step of the warm-up; 0 for none."""
        return self.warmup_steps or round(self.warmup_epochs * per_epoch)

    @abstractmethod
    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the share of the base rate.

        Args:
            step: The step since the end of the warm-up, from 1.
            steps: The number of steps after the warm-up.
            per_epoch: Steps of an epoch.
        """


class Constant(_Schedule):
    """The same learning rate throughout."""

    name: Literal["constant"] = "constant"

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return 1."""
        return 1.0


class Linear(_Schedule):
    """A straight line from the learning rate to `final` times it."""

    name: Literal["linear"] = "linear"
    final: float = Field(0.0, ge=0, le=1, description="share of the learning rate left at the end")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return 1 - (1 - final) * progress."""
        return 1 - (1 - self.final) * step / steps


class Cosine(_Schedule):
    """Half a cosine from the learning rate to `final` times it (Loshchilov and Hutter, 2017, arXiv 1608.03983)."""

    name: Literal["cosine"] = "cosine"
    final: float = Field(0.0, ge=0, le=1, description="share of the learning rate left at the end")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the half cosine at step / steps."""
        return _cosine(1.0, self.final, step / steps)


class CosineRestarts(_Schedule):
    """Half cosines of growing length, each from the full learning rate (Loshchilov and Hutter, 2017, arXiv 1608.03983)."""

    name: Literal["cosine_restarts"] = "cosine_restarts"
    first_epochs: float = Field(10, gt=0, description="length of the first cycle")
    growth: float = Field(2.0, ge=1, description="each cycle is this number of times as long as the one before")
    final: float = Field(0.0, ge=0, le=1, description="share of the learning rate left at the end of a cycle")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the half cosine at the place in the cycle that the step is in."""
        place, length = float(step - 1), self.first_epochs * per_epoch
        while place >= length * (1 - ROUNDING):  # 0.55 epochs of 100 steps are 55.00000000000001
            place, length = place - length, length * self.growth
        return _cosine(1.0, self.final, place / length)


class OneCycle(_Schedule):
    """Up from a fraction of the learning rate and down to almost nothing, by half cosines (Smith, 2018, arXiv 1803.09820).

    The same rates as PyTorch's `OneCycleLR`, whose peak is a step before `rise` of the steps.
    """

    name: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.3, gt=0, lt=1, description="share of the steps in which it rises")
    start: float = Field(0.04, gt=0, le=1, description="share of the learning rate at the start; PyTorch's default is 1/25")
    final: float = Field(4.0e-6, ge=0, le=1, description="share at the end; PyTorch's default is 1/25 of 1e-4")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the half cosine up to the peak, or the one down from it."""
        place, peak = step - 1, self.rise * steps - 1
        if place < peak:
            return _cosine(self.start, 1.0, place / peak)
        return _cosine(1.0, self.final, (place - peak) / (steps - 1 - peak))


class Polynomial(_Schedule):
    """A power of the share of steps that is left, from the learning rate to `final` times it."""

    name: Literal["polynomial"] = "polynomial"
    power: float = Field(2.0, gt=0, description="1 is a straight line")
    final: float = Field(0.0, ge=0, le=1, description="share of the learning rate left at the end")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return final + (1 - final) * (1 - progress) ** power."""
        return float(self.final + (1 - self.final) * (1 - step / steps) ** self.power)


class Exponential(_Schedule):
    """Multiplied by `gamma` after every epoch."""

    name: Literal["exponential"] = "exponential"
    gamma: float = Field(0.95, gt=0, le=1, description="factor of an epoch")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return gamma to the power of the epochs that are over."""
        return self.gamma ** ((step - 1) // per_epoch)


class StepDecay(_Schedule):
    """Multiplied by `gamma` after every so many epochs."""

    name: Literal["step"] = "step"
    every_n_epochs: int = Field(30, ge=1, description="epochs between two reductions")
    gamma: float = Field(0.1, gt=0, le=1, description="factor of a reduction")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return gamma to the power of the reductions so far."""
        return self.gamma ** ((step - 1) // (self.every_n_epochs * per_epoch))


class Cyclical(_Schedule):
    """Triangles between `low` times the learning rate and the learning rate (Smith, 2017, arXiv 1506.01186)."""

    name: Literal["cyclical"] = "cyclical"
    period_epochs: float = Field(4, gt=0, description="epochs from one low to the next")
    low: float = Field(0.1, ge=0, lt=1, description="share of the learning rate at the lowest point")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the triangle's height."""
        phase = ((step - 1) / (self.period_epochs * per_epoch)) % 1
        return self.low + (1 - self.low) * (1 - abs(2 * phase - 1))


class Plateau(_Schedule):
    """Multiplied by `factor` whenever the metric has not improved for a while; the step alone does not decide it."""

    name: Literal["plateau"] = "plateau"
    factor: float = Field(0.1, gt=0, lt=1, description="factor of a reduction")
    patience: int = Field(5, ge=1, description="evaluations without improvement before a reduction")
    min_delta: float = Field(0.0, ge=0, description="smallest change that counts as improvement")
    final: float = Field(0.0, ge=0, le=1, description="smallest share of the learning rate")

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return 1: reductions come from the history, by `reduced`."""
        return 1.0

    def reduced(self, reductions: int) -> float:
        """Return the share after so many reductions."""
        return max(self.final, self.factor**reductions)


class OwnSchedule(_Schedule):
    """The schedulers that a task of one's own makes beside its optimizer; a warm-up multiplies what they give."""

    name: Literal["own"] = "own"

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return 1: the task's schedulers set the rates that this is a share of."""
        return 1.0


class Part(Strict):
    """A schedule that holds for a while, fitted to the steps of that while."""

    schedule: Annotated[
        Constant | Linear | Cosine | CosineRestarts | OneCycle | Polynomial | Exponential | StepDecay | Cyclical,
        Field(discriminator="name"),
    ]
    epochs: float | None = Field(None, gt=0, description="how long it holds; may be a fraction")
    steps: int | None = Field(None, ge=1, description="how long it holds, in place of epochs")
    factor: float = Field(1.0, gt=0, le=1, description="share of the learning rate that it works with")

    @model_validator(mode="after")
    def _fits_in(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give either epochs or steps")
        if self.schedule.warmup_epochs or self.schedule.warmup_steps:
            raise ValueError("a part has no warm-up of its own: give warmup_epochs or warmup_steps beside parts")
        return self

    @property
    def is_open(self) -> bool:
        """Whether it lasts as long as the run."""
        return self.epochs is None and self.steps is None

    def length(self, per_epoch: int) -> int:
        """Return for how many steps it holds, at least one; 0 for one that lasts as long as the run."""
        return 0 if self.is_open else self.steps or max(1, round((self.epochs or 0) * per_epoch))


class Sequence(_Schedule):
    """Schedules one after another; the last one takes what is left of the run. None can be `plateau`, which has no length."""

    name: Literal["sequence"] = "sequence"
    parts: list[Part] = Field(min_length=1, description="schedules with the epochs or steps for which each holds")

    @model_validator(mode="after")
    def _only_the_last_is_open(self) -> Self:
        for number, part in enumerate(self.parts, 1):
            if part.is_open and number < len(self.parts):
                raise ValueError(f"part {number} needs epochs or steps: only the last part takes what is left")
        if not self.parts[-1].is_open:
            raise ValueError("the last part takes what is left of the run: give it neither epochs nor steps")
        return self

    def closed(self, per_epoch: int) -> int:
        """Return the steps of all parts but the last."""
        return sum(part.length(per_epoch) for part in self.parts)

    def share(self, step: int, steps: int, per_epoch: int) -> float:
        """Return the share of the part that the step is in."""
        for part in self.parts[:-1]:
            length = part.length(per_epoch)
            if step <= length:
                return part.factor * part.schedule.share(step, length, per_epoch)
            step, steps = step - length, steps - length
        return self.parts[-1].factor * self.parts[-1].schedule.share(step, steps, per_epoch)


Schedule = Annotated[
    Constant
    | Linear
    | Cosine
    | CosineRestarts
    | OneCycle
    | Polynomial
    | Exponential
    | StepDecay
    | Cyclical
    | Plateau
    | Sequence
    | OwnSchedule,
    Field(discriminator="name"),
]


def learning_rate(config: Schedule, base: float, steps: int, steps_per_epoch: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the step (from 1).

    Args:
        config: The schedule.
        base: The learning rate that the shares are of.
        steps: Steps of the whole run; the schedule is fitted to what the warm-up leaves of them.
        steps_per_epoch: Steps of an epoch.
    """
    warmup = min(config.warmed_up(steps_per_epoch), steps)
    # A warm-up as long as the run leaves no step, and shares are divided by what is left.
    left = max(1, steps - warmup)

    def rate(step: int) -> float:
        if step <= warmup:
            risen = step / warmup
            return base * (risen if config.warmup == "linear" else _cosine(0.0, 1.0, risen))
        return base * config.share(step - warmup, left, steps_per_epoch)

    return rate


def unreached(config: Schedule, steps: int, steps_per_epoch: int) -> str | None:
    """Return the fault of a sequence whose last part starts after a run's last step; None where it starts in time."""
    if not isinstance(config, Sequence):
        return None
    before = config.warmed_up(steps_per_epoch) + config.closed(steps_per_epoch)
    return None if before < steps else f"warm-up and parts before the last take {before} steps; the run has {steps}"


def preview(config: Schedule, base: float, steps: int, steps_per_epoch: int, points: int = 200) -> list[list[float]]:
    """Return (epoch, learning rate) at evenly spaced steps of a run, to be looked at before it is trained.

    A plateau's reductions are not in it: they depend on what is measured.
    """
    rate = learning_rate(config, base, steps, steps_per_epoch)
    places = sorted({1 + round(number * (steps - 1) / max(1, points - 1)) for number in range(points)})
    return [[step / steps_per_epoch, rate(step)] for step in places]


def _cosine(first: float, last: float, progress: float) -> float:
    """Return the value of half a cosine between two values."""
    return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2
