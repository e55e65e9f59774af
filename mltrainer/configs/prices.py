"""The handbook's pages of prices: what a platform rents, or a machine of one's own, by the hour."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from mltrainer import handbook
from mltrainer.configs.loading import Strict, validate
from mltrainer.configs.pages import Figure, declared
from mltrainer.errors import first_repeated

PRICES = "tools/planner/prices/"
THIS_MACHINE = "this machine"  # an offer's device: the machine on which the planner measures


class Offer(Strict):
    """One device of a platform."""

    device: str = Field(min_length=1, description="as the page of devices names it, or `this machine`")
    name: str = Field("", description="the platform's own name of the offer, where it has several of one device")
    per_hour: Figure = Field(default_factory=Figure, description="the price of an hour, before tax")
    watts: Figure = Field(default_factory=Figure, description="what the machine draws while it trains")


class PricesPage(Strict):
    """Front matter of `tools/planner/prices/<platform>.md`."""

    title: str
    platform: str = Field(min_length=1)
    currency: str = Field(pattern=r"^[A-Z]{3}$", description="of all its prices")
    minimum_s: Figure = Field(
        default_factory=Figure, description="the shortest time that is billed; longer ones are billed in steps of it"
    )
    per_kwh: Figure | None = Field(None, description="the price of electricity; null: it is in the price of an hour")
    offers: list[Offer] = Field(min_length=1)

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        names = [(offer.device, offer.name) for offer in self.offers]
        if repeated := first_repeated(names):
            raise ValueError(f"the offer {' '.join(repeated).strip()!r} is listed twice")
        if self.per_kwh is None and any(offer.watts.value is not None for offer in self.offers):
            raise ValueError("watts count with a price of electricity only: give per_kwh, or leave watts out")
        return self


def prices_pages(project: Path | None) -> dict[str, PricesPage]:
    """Return the pages of prices by their path, sorted: the handbook's, or the project's own over them.

    Raises:
        InputError: A page is not valid; by file, line and key.
    """
    paths = [path for path in handbook.page_paths() if path.startswith(PRICES)]
    return {path: validate(PricesPage, declared(path, project)) for path in paths}
