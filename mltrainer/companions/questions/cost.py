"""`mltrainer cost`: pages of prices, the plan's times or those that are given, and the arithmetic between them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from typer import Option

from mltrainer.companions.planner import PLANNER
from mltrainer.companions.planner.sizing import PlannerSettings
from mltrainer.companions.planner.timing import Interval
from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.findings import Findings, Value
from mltrainer.companions.questions.planner import FoundPlan, plan
from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import Changes, as_assignments, validate_values
from mltrainer.configs.pages import Figure, devices_page, tool_page
from mltrainer.configs.prices import THIS_MACHINE, Offer, PricesPage, prices_pages
from mltrainer.configs.project import TrainingConfig, of_task
from mltrainer.configs.templates import (
    OF_FINALIZATION,
    TUNING,
    applicable_space,
    overlay,
    production_template,
    trial_changes,
    tuning_template,
)
from mltrainer.errors import InputError
from mltrainer.phases.present_config import present_config
from mltrainer.records.partial import partial
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, duration, measured, number
from mltrainer.runs.launcher import Tools
from mltrainer.search.space import mean_of

HOUR_S = 3600
MINIMUM, KWH = "minimum billing in s", "a kWh"
OF_PAGE = (MINIMUM, KWH)  # figures that all offers of a page share
_ROUNDING = 1e-9  # share of a billing step: tolerance for the last bits of a float


def per_hour(page: PricesPage, offer: Offer) -> float | None:
    """Return the cost of an hour; None if a needed figure is blank. For your own machine electricity alone is enough."""
    if page.per_kwh is None:
        return offer.per_hour.value
    if page.per_kwh.value is None or offer.watts.value is None:
        return None
    return offer.watts.value / 1000 * page.per_kwh.value + (offer.per_hour.value or 0.0)


def blanks(page: PricesPage, offer: Offer) -> list[str]:
    """Return the page's blank figures, with the consequence."""
    if page.per_kwh is None:
        named = {"the price of an hour": offer.per_hour, "the minimum billing (times are not rounded up)": page.minimum_s}
    else:
        named = {"watts": offer.watts, "the price of a kWh": page.per_kwh}
    blank_names = [name for name, figure in named.items() if figure.value is None]
    if page.per_kwh is not None and not blank_names and offer.per_hour.value is None:
        blank_names.append("the price of an hour beside electricity (electricity alone is counted)")
    return [f"blank on its page: {name}" for name in blank_names]


def sources(page: PricesPage, offer: Offer) -> list[Source]:
    """Return the figures behind an offer's cost that are not blank."""
    named = {"an hour": offer.per_hour, MINIMUM: page.minimum_s, "watts": offer.watts, KWH: page.per_kwh or Figure()}
    return [
        Source(figure=name, value=figure.value, source=str(figure.source), read=str(figure.read))
        for name, figure in named.items()
        if figure.value is not None
    ]


def billed_h(hours: float, minimum_s: float | None) -> float:
    """Return the billed hours: whole billing steps, at least one."""
    if minimum_s is None:
        return hours
    steps = max(1, math.ceil(hours * HOUR_S / minimum_s - _ROUNDING))
    return steps * minimum_s / HOUR_S


def phase_cost(phase: str, hours: Interval | None, price: float | None, minimum_s: float | None) -> PhaseCost:
    """Return a phase's cost, billed as a separate rental."""
    money = None if hours is None or price is None else hours.each(lambda end: billed_h(end, minimum_s)).times(price)
    return PhaseCost(phase=phase, hours=hours, money=money)


def total(phases: Sequence[PhaseCost]) -> PhaseCost:
    """Return all phases, one after the other."""
    return PhaseCost(phase="all", hours=_sum(one.hours for one in phases), money=_sum(one.money for one in phases))


def _sum(ranges: Iterable[Interval | None]) -> Interval | None:
    first, *others = ranges
    return functools.reduce(lambda one, other: one and other and one + other, others, first)


def of_answers(price: float | None, per_second: float | None, count: int) -> float | None:
    """Return the cost of `count` answers at a constant rate; None if price or rate is unknown."""
    return None if price is None or per_second is None else price / HOUR_S / per_second * count


def stale(pages: Mapping[str, PricesPage], today: date, days: int) -> list[str]:
    """Return a warning for each page with a figure that was read more than `days` days ago, with its age."""
    warnings = []
    for path, page in pages.items():
        read = [date.fromisoformat(one.read) for offer in page.offers for one in sources(page, offer)]
        oldest = min(read, default=today)
        if (age := (today - oldest).days) > days:
            hint = f"compare, then write yours: mltrainer guide {path.removesuffix('.md')} --copy"
            warnings.append(f"{path}: a price of {page.platform} was read {age} days ago ({oldest}), more than {days}; {hint}")
    return warnings


def cheapest(offers: Sequence[OfferCost], deadline_h: float) -> tuple[str | None, str]:
    """Return the cheapest offer that surely ends in time, by the upper end of each range, and the reason."""
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


class PhaseCost(Findings):
    """A phase's hours and money on an offer; None where they are not known."""

    phase: str
    hours: Interval | None
    money: Interval | None


class Source(Findings):
    """A figure of a page of prices: its name, its value, where it was read, and when."""

    figure: str
    value: Value
    source: str
    read: str


class OfferCost(Findings):
    """Time and money that an offer of a page of prices would take.

    Attributes:
        offer: Platform, and its name of the offer.
        device: Device of the offer.
        page: The page of prices.
        currency: Currency of all amounts.
        per_hour: Price of an hour, including electricity; None if blank on the page.
        minimum_s: Shortest billed time in seconds; None if blank, and on your own machine.
        training_h: Hours of one training of the config.
        training_from: Source of the hours.
        phases: Cost of each phase, in order.
        total: Cost of all phases.
        per_second: Answers per second, as given by the user.
        per_thousand: Price of a thousand answers at that rate.
        per_million: Price of a million answers at that rate.
        not_known: Unknown figures, each with its reason.
        sources: Figures of the page behind the cost.
    """

    offer: str
    device: str
    page: str
    currency: str
    per_hour: Value | None
    minimum_s: Value | None
    training_h: Interval | None
    training_from: str | None
    phases: list[PhaseCost]
    total: PhaseCost
    per_second: Value | None
    per_thousand: Value | None
    per_million: Value | None
    not_known: list[str]
    sources: list[Source]


class FoundCost(Findings):
    """The cost of a config's phases and answers, by offer.

    Attributes:
        date: Day to which the ages of prices are counted.
        epochs: Epochs of one training; None for a program that trains by itself.
        trainings: Number of such trainings by phase.
        offers: Offers in the order of their pages.
        deadline_h: Hours within which all phases shall end; None without a deadline.
        cheapest: Cheapest offer in time; None without a deadline, or if none is known to meet it.
        reason: Reason of the choice.
        assumptions: Assumptions of the figures.
        stale: Pages whose prices are old.
    """

    date: str
    epochs: int | None
    trainings: dict[str, Interval]
    offers: list[OfferCost]
    deadline_h: Value | None
    cheapest: str | None
    reason: str | None
    assumptions: list[str]
    stale: list[str]


HOUR_US = 3.6e9
TAKEN = "all trials and epochs are counted: early stopping, pruning, and a baseline that needs no search make it less"
ONE_BY_ONE = "one device, one training at a time, each phase a rental of its own; planning, diagnosis and exports are not counted"
SEARCHED = (
    "a trial's epoch takes between as long as the config's and as much longer as the batch sizes of its space mean more steps"
)
STEPS_ONLY = "a time of the plan is that of the steps alone: evaluations, checkpoints and starting come on top"
Known = dict[str, tuple[Interval, str]]  # by device, hours of one training, and where they come from


def cost(
    tools: Tools,
    *,
    set: Changes | None = None,
    hours: Sequence[str] = (),
    per_second: Sequence[str] = (),
    deadline: float | None = None,
    today: date | None = None,
) -> FoundCost:
    """Return the hours and the money of baseline, search and final training on each offer of the pages of prices.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        hours: Hours of one training, as `2.5`, or on one device as `NVIDIA T4=2.5`; by default the plan's.
        per_second: Answers per second under load, in the same form.
        deadline: Hours within which all phases shall end; the cheapest offer that does is named.
        today: Day to which the ages of prices are counted; None: the current day.

    Raises:
        InputError: A page, the config, a device or a number is not valid.
    """
    root = tools.project.root
    pages, day = prices_pages(root), today or datetime.now(UTC).date()
    devices = list(dict.fromkeys(offer.device for page in pages.values() for offer in page.offers))
    given = _by_device(hours, devices, "--hours")
    rates = _by_device(per_second, devices, "--per-second")
    if deadline is not None and not (math.isfinite(deadline) and deadline > 0):
        raise InputError(
            expected="a number of hours above 0", found=repr(deadline), where="--deadline", hint="such as --deadline 24"
        )
    config = present_config(tools, as_assignments(set))
    known: Known = {device: (Interval.exact(value), "--hours") for device, value in given.items()}
    unknown: dict[str, str] = {}
    if missing := [device for device in devices if device not in known]:
        planned, unknown = _planned(tools, set, config, missing)
        known |= planned
    worth = trainings(config, root)
    offers = [_offer(path, page, offer, worth, known, unknown, rates) for path, page in pages.items() for offer in page.offers]
    settings = partial(PlannerSettings, tool_page(PLANNER, root).settings)
    old = stale(pages, day, int(settings.stale_days))
    for line in old:
        tools.note(f"old: {line}")
    chosen, reason = (None, None) if deadline is None else cheapest(offers, deadline)
    return FoundCost(
        date=day.isoformat(),
        epochs=None if config.task.is_opaque else config.epochs,
        trainings=worth,
        offers=offers,
        deadline_h=deadline,
        cheapest=chosen,
        reason=reason,
        assumptions=[
            ONE_BY_ONE,
            TAKEN,
            *([SEARCHED] if worth["optimization"].low < worth["optimization"].high else []),
            *([STEPS_ONLY] if any(how != "--hours" for _, how in known.values()) else []),
        ],
        stale=old,
    )


def trainings(config: TrainingConfig, root: Path | None) -> dict[str, Interval]:
    """Return the work of each phase in trainings of the config, by their epochs.

    The baseline is trained once for each fold; a search trains its trials, the winner's again, and both sides of the
    comparison on each of its seeds; finalization trains twice.

    Args:
        config: The config.
        root: The project's folder, whose own templates count.
    """
    folds = max(1, config.split.folds)
    tuning, production = tuning_template(root), production_template(root)
    values = overlay(config.model_dump(), of_task(trial_changes(tuning), config.task))
    of_trials = validate_values(TrainingConfig, values, f"{TUNING}, trial")
    trial = _trial(config, of_trials, applicable_space(tuning["space"], of_trials.model_dump()))
    seeds = ImprovementSettings.model_validate(tuning["comparison"]).seeds
    final = of_task({key: value for key, value in production.items() if key not in OF_FINALIZATION}, config.task)
    return {
        "baseline": Interval.exact(folds),
        "optimization": trial.times(tuning["trials"] * folds) + trial + Interval.exact(2 * seeds),
        "finalization": Interval.exact(2 * final.get("epochs", config.epochs) / config.epochs),
    }


def _trial(config: TrainingConfig, of_trials: TrainingConfig, space: dict[str, dict[str, object]]) -> Interval:
    """Return the share of a training that a trial takes: by its epochs alone, and by the steps that its batch sizes mean."""
    epochs = mean_of(space, "epochs", of_trials.epochs, float) / config.epochs
    steps = mean_of(space, "batch_size", of_trials.batch_size, lambda size: config.batch_size / size)
    return Interval(low=epochs * min(1.0, steps), high=epochs * max(1.0, steps))


def _planned(tools: Tools, set: Changes | None, config: TrainingConfig, devices: Sequence[str]) -> tuple[Known, dict[str, str]]:
    """Return the hours of one training by device from the plan, and the reason for devices without hours."""
    if config.task.is_opaque:
        message = "the task is a program that trains by itself, whose steps no plan sees: give --hours"
        return {}, dict.fromkeys(devices, message)
    names = {one.name for one in devices_page(tools.project.root).devices}
    planned = plan(tools, set=set, devices=[device for device in devices if device in names])
    steps = math.ceil(planned.traced.samples / (planned.batch_size * planned.accumulate)) * config.epochs
    found = {device: _step(planned, device) for device in devices}
    known = {device: (step.times(steps / HOUR_US), "mltrainer plan") for device, (step, _) in found.items() if step}
    return known, {device: reason for device, (step, reason) in found.items() if not step}


def _step(planned: FoundPlan, device: str) -> tuple[Interval | None, str]:
    """Return a step's time on a device, or why the plan does not know it."""
    if device == THIS_MACHINE:
        return planned.measured.step, planned.measured.not_known or "no step was measured"
    row = next((one for one in planned.devices if one.name == device), None)
    if row is None:
        return None, f"the page of devices has no {device!r}"
    if row.fits is False:
        return None, "the plan finds that the config does not fit into its memory"
    return row.step, next((line.removeprefix("time: ") for line in row.not_known if line.startswith("time: ")), "not measured")


def _offer(
    path: str,
    page: PricesPage,
    offer: Offer,
    worth: Mapping[str, Interval],
    known: Known,
    unknown: Mapping[str, str],
    rates: Mapping[str, float],
) -> OfferCost:
    training, how = known.get(offer.device, (None, None))
    price, minimum_s = per_hour(page, offer), page.minimum_s.value
    phases = [phase_cost(phase, training and training.times(count), price, minimum_s) for phase, count in worth.items()]
    rate = rates.get(offer.device)
    untimed = [] if training else [f"time: {unknown[offer.device]}"]
    return OfferCost(
        offer=" ".join(part for part in (page.platform, offer.name) if part),
        device=offer.device,
        page=path,
        currency=page.currency,
        per_hour=price,
        minimum_s=minimum_s,
        training_h=training,
        training_from=how,
        phases=phases,
        total=total(phases),
        per_second=rate,
        per_thousand=of_answers(price, rate, 1000),
        per_million=of_answers(price, rate, 1_000_000),
        not_known=[*untimed, *blanks(page, offer)],
        sources=sources(page, offer),
    )


def _by_device(given: Sequence[str], devices: Sequence[str], option: str) -> dict[str, float]:
    """Return the numbers that were given, by device; a number without a device is the default of the others.

    Raises:
        InputError: No page has such a device, or a value is not a number above 0.
    """
    by_device: dict[str, float] = {}
    for text in given:
        device, sign, value = text.rpartition("=")
        if sign and device not in devices:
            raise InputError.unknown("device", device, devices, of="to price", where=option)
        by_device[device] = _positive(value, option)
    return dict.fromkeys(devices, by_device.pop("")) | by_device if "" in by_device else by_device


def _positive(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            expected="a number above 0", found=repr(text), where=option, hint=f'such as {option} 2.5, or {option} "NVIDIA T4=2.5"'
        )
    return value


UNKNOWN = "not known"
Cell = Callable[[OfferCost, PhaseCost], str]


def text(costs: FoundCost) -> str:
    """Return prices, hours and money by phase, the price of answers, the recommended offer, and the unknown figures."""
    timed = [one for one in costs.offers if one.training_h is not None]
    answering = [one for one in costs.offers if one.per_second is not None]
    phases = [*costs.trainings, "all"]
    lines = [
        *_trainings(costs),
        *_table("prices:", [_price(one) for one in costs.offers], ["offer", "device", "an hour", "billed by", "a training"]),
        *_table("time by phase:", [_by_phase(one, _hours) for one in timed], ["offer", "device", *phases]),
        *_table("money by phase:", [_by_phase(one, _money) for one in timed], ["offer", "device", *phases]),
        *_table("answers:", [_answers(one) for one in answering], ["offer", "device", "a second", "a thousand", "a million"]),
        *_cheapest(costs),
        *(f"taken for granted: {line}" for line in costs.assumptions),
        *_not_known(costs),
        *_sources(costs),
    ]
    return "\n".join(lines)


def _trainings(costs: FoundCost) -> list[str]:
    worth = ", ".join(f"{phase} {_range(count, lambda value: number(float(value)))}" for phase, count in costs.trainings.items())
    each = "" if costs.epochs is None else f" of {counted(costs.epochs, 'epoch')}"
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


def _cheapest(costs: FoundCost) -> list[str]:
    if costs.deadline_h is None:
        return []
    return [f"cheapest within {measured(costs.deadline_h)} h: {costs.cheapest or 'none'} ({costs.reason})"]


def _not_known(costs: FoundCost) -> list[str]:
    """Return each reason once, with all offers that it is true of."""
    offers_of: dict[str, list[str]] = {}
    for one in costs.offers:
        for line in one.not_known:
            offers_of.setdefault(line, []).append(label(one))
    lines = [f"not known: {line} - {'; '.join(offers)}" for line, offers in offers_of.items()]
    timeless = any(line.startswith("time: ") for line in offers_of)
    return [*lines, *(['next: --hours "DEVICE=H" for a device that you know, or `mltrainer plan` there'] if timeless else [])]


def _sources(costs: FoundCost) -> list[str]:
    """Return each source once, with its page and figures."""
    figures_of: dict[str, list[str]] = {}
    for one in costs.offers:
        for row in one.sources:
            whose = one.offer if row.figure in OF_PAGE else label(one)
            what = f"{whose}, {row.figure}: {measured(row.value)}"
            figures_of.setdefault(f"{row.source} (read {row.read}; {one.page})", []).append(what)
    return [f"source: {where}: {'; '.join(dict.fromkeys(figures))}" for where, figures in figures_of.items()]


def _range(ends: Interval, shown: Callable[[float | int], str]) -> str:
    low, high = shown(ends.low), shown(ends.high)
    return low if low == high else f"{low} to {high}"


def _time(hours: float | int) -> str:
    return duration(hours * HOUR_S)


def _amount(value: float | int, currency: str) -> str:
    return f"{_plain(value)} {currency}"


def _plain(value: float | int) -> str:
    """Return money with two decimals; less than one with three digits that count."""
    return f"{value:,.2f}" if value >= 1 or value == 0 else number(float(value))


app = command(
    cost,
    text,
    name="cost",
    help="Cost training, search, final training and answers by the pages of prices: hours and money of each offer.\n\n"
    "Times come from `mltrainer plan`, which this runs for devices without --hours; an unmeasured time is not known. "
    "Prices come from the handbook's pages, or from your own; nothing is fetched.",
    example='mltrainer cost --hours "NVIDIA H100 SXM=2.5" --deadline 48',
    hours=Option(metavar="[DEVICE=]H", help="Hours of one training, on a device or on all; may be given more than once."),
    per_second=Option(
        metavar="[DEVICE=]N", help="Answers per second under load, on a device or on all; may be given more than once."
    ),
    deadline=Option(metavar="HOURS", help="Name the cheapest offer that ends all phases by then."),
)
