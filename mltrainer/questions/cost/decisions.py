"""Prices, hours and money: pure arithmetic on pages that were read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from mltrainer.configs.pages import Figure
from mltrainer.configs.prices import Offer, PricesPage
from mltrainer.questions.cost.findings import OfferCost, PhaseCost, Range, Source
from mltrainer.reports.values import duration

HOUR_S = 3600
MINIMUM, KWH = "minimum billing in s", "a kWh"
OF_PAGE = (MINIMUM, KWH)  # figures that all offers of a page share
_ROUNDING = 1e-9  # of a step of billing: a time that is one but for the last bits of a float


def per_hour(page: PricesPage, offer: Offer) -> float | None:
    """Return the cost of an hour; None where a figure that it needs is blank. Of one's own machine electricity alone will do."""
    if page.per_kwh is None:
        return offer.per_hour.value
    if page.per_kwh.value is None or offer.watts.value is None:
        return None
    return offer.watts.value / 1000 * page.per_kwh.value + (offer.per_hour.value or 0.0)


def blanks(page: PricesPage, offer: Offer) -> list[str]:
    """Return the figures that the page leaves blank, with what comes of it."""
    if page.per_kwh is None:
        named = {"the price of an hour": offer.per_hour, "the minimum billing (times are not rounded up)": page.minimum_s}
    else:
        named = {"watts": offer.watts, "the price of a kWh": page.per_kwh}
    found = [name for name, figure in named.items() if figure.value is None]
    if page.per_kwh is not None and not found and offer.per_hour.value is None:
        found.append("the price of an hour beside electricity (electricity alone is counted)")
    return [f"blank on its page: {name}" for name in found]


def sources(page: PricesPage, offer: Offer) -> list[Source]:
    """Return the figures behind an offer's cost that are not blank."""
    named = {"an hour": offer.per_hour, MINIMUM: page.minimum_s, "watts": offer.watts, KWH: page.per_kwh or Figure()}
    return [
        Source(figure=name, value=figure.value, source=str(figure.source), read=str(figure.read))
        for name, figure in named.items()
        if figure.value is not None
    ]


def billed_h(hours: float, minimum_s: float | None) -> float:
    """Return the hours that are billed for some: whole steps of the shortest time, at least one of them."""
    if minimum_s is None:
        return hours
    steps = max(1, math.ceil(hours * HOUR_S / minimum_s - _ROUNDING))
    return steps * minimum_s / HOUR_S


def phase_cost(phase: str, hours: Range | None, price: float | None, minimum_s: float | None) -> PhaseCost:
    """Return a phase's cost, billed as a rental of its own."""
    if hours is None or price is None:
        return PhaseCost(phase=phase, hours=hours, money=None)
    low, high = (billed_h(end, minimum_s) * price for end in (hours.low, hours.high))
    return PhaseCost(phase=phase, hours=hours, money=Range(low=low, high=high))


def total(phases: Sequence[PhaseCost]) -> PhaseCost:
    """Return all phases, one after the other."""
    return PhaseCost(phase="all", hours=_sum(one.hours for one in phases), money=_sum(one.money for one in phases))


def _sum(ranges: Iterable[Range | None]) -> Range | None:
    known = list(ranges)
    if any(one is None for one in known):
        return None
    return Range(low=math.fsum(one.low for one in known if one), high=math.fsum(one.high for one in known if one))


def of_answers(price: float | None, per_second: float | None, count: int) -> float | None:
    """Return the cost of so many answers on a device that gives some in a second without a pause; None where one is not known."""
    return None if price is None or per_second is None else price / HOUR_S / per_second * count


def stale(pages: Mapping[str, PricesPage], today: date, days: int) -> list[str]:
    """Return a warning for each page with a figure that was read more than so many days ago, with its age."""
    found = []
    for path, page in pages.items():
        read = [date.fromisoformat(one.read) for offer in page.offers for one in sources(page, offer)]
        oldest = min(read, default=today)
        if (age := (today - oldest).days) > days:
            hint = f"compare, then write yours: mltrainer guide {path.removesuffix('.md')} --copy"
            found.append(f"{path}: a price of {page.platform} was read {age} days ago ({oldest}), more than {days}; {hint}")
    return found


def cheapest(offers: Sequence[OfferCost], deadline_h: float) -> tuple[str | None, str]:
    """Return the offer that costs least of those that surely end in time, by the long end of each range, and why."""
    known = [(one, one.total.hours, one.total.money) for one in offers]
    timed = [(one, hours) for one, hours, _ in known if hours is not None]
    within = [(one, hours, money) for one, hours, money in known if hours and money and hours.high <= deadline_h]
    if not timed:
        return None, "no offer's time is known: give --hours DEVICE=H, or measure there with mltrainer plan"
    if not within:
        one, hours = min(timed, key=lambda row: float(row[1].high))
        longest = duration(hours.high * HOUR_S)
        return None, f"none is known to end in time at a known price; the fastest, {label(one)}, takes up to {longest}"
    currencies = sorted({one.currency for one, _, _ in within})
    if len(currencies) > 1:
        return None, f"prices in {' and '.join(currencies)} are not compared: write one currency into your pages"
    one, hours, money = min(within, key=lambda row: (float(row[2].high), float(row[1].high)))
    of = f"the least of {len(within)} that end in time" if len(within) > 1 else "the only one that is known to end in time"
    return label(one), f"{of}: up to {duration(hours.high * HOUR_S)} and {money.high:,.2f} {one.currency}"


def label(offer: OfferCost) -> str:
    """Return an offer's name: the platform's, and the device's."""
    return f"{offer.offer}, {offer.device}"
