"""How the trials of a search that are behind end early."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from mltrainer.configs.loading import Strict


class Pruning(Strict):
    """Trials that are behind others at a rung end there; those that are not go on as if nothing had been asked.

    A rung is an epoch or a fraction of one, and is measured at the first evaluation from there on.

    Successive halving (Jamieson and Talwalkar, 2016, arXiv 1502.07943), asynchronous as in Li et al., 2020, arXiv 1810.05934:
    of the trials that were measured at a rung, the best `1 / eta` go on. Hyperband (Li et al., 2018, JMLR 18:1-52) deals the
    trials to brackets, of which each has one rung fewer than the one before.
    """

    name: Literal["successive_halving", "hyperband"] = "successive_halving"
    eta: int = Field(3, ge=2, le=10, description="of this number of trials one continues, with this number of times the epochs")
    first: int | float = Field(1, gt=0, description="the epoch of the first rung, or a fraction of one")

    @field_validator("first")
    @classmethod
    def _whole(cls, value: float) -> int | float:
        # 1 and 1.0 are one rung, and a study has one name for both.
        return int(value) if value == int(value) else value
