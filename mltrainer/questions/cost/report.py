"""The cost as text for the terminal; the same findings give the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mltrainer.questions.cost.decisions import HOUR_S, OF_PAGE, label
from mltrainer.questions.cost.findings import FoundCost, OfferCost, PhaseCost, Range
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, duration, measured, number

UNKNOWN = "not known"
Cell = Callable[[OfferCost, PhaseCost], str]


def text(found: FoundCost) -> str:
    """Return prices, hours and money by phase, the price of answers, the offer to take, and what is not known."""
    timed = [one for one in found.offers if one.training_h is not None]
    answering = [one for one in found.offers if one.per_second is not None]
    phases = [*found.trainings, "all"]
    lines = [
        *_trainings(found),
        *_table("prices:", [_price(one) for one in found.offers], ["offer", "device", "an hour", "billed by", "a training"]),
        *_table("time by phase:", [_by_phase(one, _hours) for one in timed], ["offer", "device", *phases]),
        *_table("money by phase:", [_by_phase(one, _money) for one in timed], ["offer", "device", *phases]),
        *_table("answers:", [_answers(one) for one in answering], ["offer", "device", "a second", "a thousand", "a million"]),
        *_cheapest(found),
        *(f"taken for granted: {line}" for line in found.assumptions),
        *_not_known(found),
        *_sources(found),
    ]
    return "\n".join(lines)


def _trainings(found: FoundCost) -> list[str]:
    worth = ", ".join(f"{phase} {_range(count, lambda value: number(float(value)))}" for phase, count in found.trainings.items())
    each = "" if found.epochs is None else f" of {counted(found.epochs, 'epoch')}"
    return [f"work, in trainings{each}: {worth}"]


def _table(title: str, rows: Sequence[Sequence[str]], headers: Sequence[str]) -> list[str]:
    return [title, table(rows, headers).rstrip("\n")] if rows else []


def _price(one: OfferCost) -> list[str]:
    price = UNKNOWN if one.per_hour is None else _amount(one.per_hour, one.currency)
    step = "-" if one.minimum_s is None else duration(one.minimum_s)
    training = UNKNOWN if one.training_h is None else f"{_range(one.training_h, _time)} ({one.training_from})"
    return [one.offer, one.device, price, step, training]


def _by_phase(one: OfferCost, cell: Cell) -> list[str]:
    return [one.offer, one.device, *(cell(one, phase) for phase in (*one.phases, one.total))]


def _hours(one: OfferCost, phase: PhaseCost) -> str:
    return UNKNOWN if phase.hours is None else _range(phase.hours, _time)


def _money(one: OfferCost, phase: PhaseCost) -> str:
    return UNKNOWN if phase.money is None else f"{_range(phase.money, _plain)} {one.currency}"


def _answers(one: OfferCost) -> list[str]:
    prices = [UNKNOWN if price is None else _amount(price, one.currency) for price in (one.per_thousand, one.per_million)]
    return [one.offer, one.device, measured(one.per_second), *prices]


def _cheapest(found: FoundCost) -> list[str]:
    if found.deadline_h is None:
        return []
    return [f"cheapest within {measured(found.deadline_h)} h: {found.cheapest or 'none'} ({found.reason})"]


def _not_known(found: FoundCost) -> list[str]:
    """Return each reason once, with all offers that it is true of."""
    told: dict[str, list[str]] = {}
    for one in found.offers:
        for line in one.not_known:
            told.setdefault(line, []).append(label(one))
    lines = [f"not known: {line} - {'; '.join(offers)}" for line, offers in told.items()]
    timeless = any(line.startswith("time: ") for line in told)
    return [*lines, *(['next: --hours "DEVICE=H" for a device that you know, or `mltrainer plan` there'] if timeless else [])]


def _sources(found: FoundCost) -> list[str]:
    """Return each source once, with its page and what was read there."""
    told: dict[str, list[str]] = {}
    for one in found.offers:
        for row in one.sources:
            whose = one.offer if row.figure in OF_PAGE else label(one)
            what = f"{whose}, {row.figure}: {measured(row.value)}"
            told.setdefault(f"{row.source} (read {row.read}; {one.page})", []).append(what)
    return [f"source: {where}: {'; '.join(dict.fromkeys(figures))}" for where, figures in told.items()]


def _range(found: Range, told: Callable[[float | int], str]) -> str:
    low, high = told(found.low), told(found.high)
    return low if low == high else f"{low} to {high}"


def _time(hours: float | int) -> str:
    return duration(hours * HOUR_S)


def _amount(value: float | int, currency: str) -> str:
    return f"{_plain(value)} {currency}"


def _plain(value: float | int) -> str:
    """Return money with two decimals; less than one with three digits that count."""
    return f"{value:,.2f}" if value >= 1 or value == 0 else number(float(value))
