"""An answer's own measure of its doubt: conformal sets and intervals (Vovk, Gammerman and Shafer, 2005)."""

from typing import Literal

from pydantic import Field

from mltrainer.configs.loading import Strict


class Conformal(Strict):
    """Sets of classes, or intervals of values, that hold the truth as often as asked; calibrated on the validation split."""

    coverage: float = Field(
        0.9, ge=0.5, lt=1, description="the share of rows whose true class is in the set, or whose true value is in the interval"
    )
    score: Literal["lac", "aps"] | None = Field(
        None,
        description="how a set is made: lac, of all classes above one probability, the smallest sets (Sadinle et al., 2019); "
        "aps, of the likeliest ones down to a rest, larger where a row is harder (Romano et al., 2020); null: lac",
    )
