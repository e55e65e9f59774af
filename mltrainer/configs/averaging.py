"""Averages of the weights over the steps: what is measured and delivered in place of the last weights."""

import math
from typing import Annotated, Literal

from pydantic import Field

from mltrainer.configs.loading import Strict

ROUNDING = 1e-9  # epochs by which a share of them may be off because of its arithmetic


class Ema(Strict):
    """An exponential moving average, taken after every step (Polyak and Juditsky, 1992; Tarvainen and Valpola, 2017)."""

    name: Literal["ema"] = "ema"
    decay: float = Field(0.999, gt=0, lt=1, description="share of the average that a step keeps; the first steps keep less")

    def is_due(self, step: int, steps: int, per_epoch: int) -> bool:
        """Return True: every step enters the average."""
        return True

    def share(self, count: int) -> float:
        """Return the share of the new weights; while few were averaged, it is 9 / (10 + count), as in TensorFlow's average."""
        return 1 - min(self.decay, (1 + count) / (10 + count))


class Swa(Strict):
    """The mean of the weights at the ends of the last epochs (Izmailov et al., 2018, arXiv 1803.05407)."""

    name: Literal["swa"] = "swa"
    start: float = Field(0.75, ge=0, lt=1, description="share of the epochs after which averaging begins")

    def is_due(self, step: int, steps: int, per_epoch: int) -> bool:
        """Return True if a step enters the average: the last one of each epoch after the start."""
        return step % per_epoch == 0 and step // per_epoch > math.floor(self.start * steps / per_epoch + ROUNDING)

    def share(self, count: int) -> float:
        """Return the share of the new weights in the mean of `count` + 1."""
        return 1 / (count + 1)


Averaging = Annotated[Ema | Swa, Field(discriminator="name")]
