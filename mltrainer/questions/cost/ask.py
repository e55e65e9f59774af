"""`mltrainer cost`: pages of prices, the plan's times or those that are given, and the arithmetic between them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.loading import Changes, as_assignments, validate_values
from mltrainer.configs.pages import devices_page, tool_page
from mltrainer.configs.prices import THIS_MACHINE, Offer, PricesPage, prices_pages
from mltrainer.configs.project import TrainingConfig, of_task
from mltrainer.configs.templates import (
    OF_FINALIZATION,
    TUNING,
    applicable_space,
    overlay,
    production_template,
    tuning_template,
)
from mltrainer.errors import InputError
from mltrainer.planner import PLANNER
from mltrainer.planner.settings import PlannerSettings
from mltrainer.questions.cost.decisions import blanks, cheapest, of_answers, per_hour, phase_cost, sources, stale, total
from mltrainer.questions.cost.findings import FoundCost, OfferCost, Range
from mltrainer.questions.exploration import present_config
from mltrainer.questions.planner.ask import plan
from mltrainer.questions.planner.findings import FoundPlan, Span
from mltrainer.records.partial import partial
from mltrainer.runs.launcher import Tools
from mltrainer.search.points import mean_of

ONCE = Range(low=1, high=1)
TWICE = Range(low=2, high=2)
HOUR_US = 3.6e9
TAKEN = "all trials and epochs are counted: early stopping, pruning, and a baseline that needs no search make it less"
ONE_BY_ONE = "one device, one training at a time, each phase a rental of its own; planning, diagnosis and exports are not counted"
SEARCHED = (
    "a trial's epoch takes between as long as the config's and as much longer as the batch sizes of its space mean more steps"
)
STEPS_ONLY = "a time of the plan is that of the steps alone: evaluations, checkpoints and starting come on top"
Known = dict[str, tuple[Range, str]]  # by device, hours of one training, and where they come from


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
        hours: Of one training, as `2.5`, or of one device as `NVIDIA T4=2.5`; without it the plan tells what it knows.
        per_second: Answers that a device gives in a second under load, in the same form.
        deadline: Hours within which all phases shall end; the cheapest offer that does is named.
        today: The day that the ages of prices are counted to; None: this one.

    Raises:
        InputError: A page, the config, a device or a number is not valid.
    """
    root = tools.project.root
    pages, day = prices_pages(root), today or datetime.now(UTC).date()
    devices = list(dict.fromkeys(offer.device for page in pages.values() for offer in page.offers))
    given = _by_device(hours, devices, "--hours")
    rates = _by_device(per_second, devices, "--per-second")
    if deadline is not None and not (math.isfinite(deadline) and deadline > 0):
        raise InputError(f"{deadline!r} is no number of hours above 0", where="--deadline", hint="such as --deadline 24")
    config = present_config(tools, as_assignments(set))
    known: Known = {device: (Range(low=value, high=value), "--hours") for device, value in given.items()}
    unknown: dict[str, str] = {}
    if missing := [device for device in devices if device not in known]:
        planned, unknown = _planned(tools, set, config, missing)
        known |= planned
    worth = trainings(config, root)
    offers = [_offer(path, page, offer, worth, known, unknown, rates) for path, page in pages.items() for offer in page.offers]
    settings = partial(PlannerSettings, tool_page(PLANNER, root).settings)
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
        stale=stale(pages, day, int(settings.stale_days)),
    )


def trainings(config: TrainingConfig, root: Path | None) -> dict[str, Range]:
    """Return by phase how many trainings of the config it is worth, in epochs of them.

    The baseline is trained once for each fold; a search trains its trials, the winner's again, and both sides of the
    comparison on each of its seeds; finalization trains twice.

    Args:
        config: The config.
        root: The project's folder, whose own templates count.
    """
    folds = Range(low=max(1, config.split.folds), high=max(1, config.split.folds))
    tuning, production = tuning_template(root), production_template(root)
    values = overlay(config.model_dump(), of_task(tuning["trial"], config.task))
    of_trials = validate_values(TrainingConfig, values, f"{TUNING}, trial")
    trial = _trial(config, of_trials, applicable_space(tuning["space"], of_trials.model_dump()))
    seeds = ImprovementSettings.model_validate(tuning["comparison"]).seeds
    all_trials = trial.times(Range(low=tuning["trials"], high=tuning["trials"])).times(folds)
    final = of_task({key: value for key, value in production.items() if key not in OF_FINALIZATION}, config.task)
    whole = final.get("epochs", config.epochs) / config.epochs
    return {
        "baseline": ONCE.times(folds),
        "optimization": Range(low=all_trials.low + trial.low + 2 * seeds, high=all_trials.high + trial.high + 2 * seeds),
        "finalization": TWICE.times(Range(low=whole, high=whole)),
    }


def _trial(config: TrainingConfig, of_trials: TrainingConfig, space: dict[str, dict[str, object]]) -> Range:
    """Return the share of a training that a trial takes: by its epochs alone, and by the steps that its batch sizes mean."""
    epochs = mean_of(space, "epochs", of_trials.epochs, float) / config.epochs
    steps = mean_of(space, "batch_size", of_trials.batch_size, lambda size: config.batch_size / size)
    return Range(low=epochs * min(1.0, steps), high=epochs * max(1.0, steps))


def _planned(tools: Tools, set: Changes | None, config: TrainingConfig, devices: Sequence[str]) -> tuple[Known, dict[str, str]]:
    """Return hours of one training that the plan knows, and of the other devices the reason why it knows none."""
    if config.task.is_opaque:
        told = "the task is a program that trains by itself, whose steps no plan sees: give --hours"
        return {}, dict.fromkeys(devices, told)
    names = {one.name for one in devices_page(tools.project.root).devices}
    found = plan(tools, set=set, devices=[device for device in devices if device in names])
    steps = math.ceil(found.traced.samples / (found.batch_size * found.accumulate)) * config.epochs
    known: Known = {}
    unknown: dict[str, str] = {}
    for device in devices:
        step, reason = _step(found, device)
        if step is None:
            unknown[device] = reason
        else:
            known[device] = (Range(low=step.low * steps / HOUR_US, high=step.high * steps / HOUR_US), "mltrainer plan")
    return known, unknown


def _step(found: FoundPlan, device: str) -> tuple[Span | None, str]:
    """Return a step's time on a device, or why the plan does not know it."""
    if device == THIS_MACHINE:
        return found.measured.step, found.measured.not_known or "no step was measured"
    row = next((one for one in found.devices if one.name == device), None)
    if row is None:
        return None, f"the page of devices has no {device!r}"
    if row.fits is False:
        return None, "the plan finds that the config does not fit into its memory"
    return row.step, next((line.removeprefix("time: ") for line in row.not_known if line.startswith("time: ")), "not measured")


def _offer(
    path: str,
    page: PricesPage,
    offer: Offer,
    worth: Mapping[str, Range],
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
    """Return the numbers that were given, by device; one without a device holds for all that have none of their own.

    Raises:
        InputError: No page has such a device, or what was given is no number above 0.
    """
    found: dict[str, float] = {}
    for text in given:
        device, sign, value = text.rpartition("=")
        if sign and device not in devices:
            near = difflib.get_close_matches(device.lower(), [one.lower() for one in devices], n=1, cutoff=0.4)
            known = {one.lower(): one for one in devices}
            hint = f"did you mean {known[near[0]]!r}?" if near else f"there are {', '.join(devices)}"
            raise InputError(f"no page of prices has the device {device!r}; {hint}", where=option)
        found[device] = _positive(value, option)
    everywhere = {} if "" not in found else dict.fromkeys(devices, found.pop(""))
    return everywhere | found


def _positive(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            f"{text!r} is no number above 0", where=option, hint=f'such as {option} 2.5, or {option} "NVIDIA T4=2.5"'
        )
    return value
