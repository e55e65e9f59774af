"""Causes in the config of a run."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from mltrainer.configs.project import is_opaque
from mltrainer.configs.schedules import Schedule, preview
from mltrainer.diagnostics.cause import HELD_SKILL, Cause, Found
from mltrainer.diagnostics.signals import BOUNDED, R2, Run, number, percent, text
from mltrainer.workspace import is_number


class Usual(NamedTuple):
    """The usual range of a key, and its most common value."""

    key: str
    low: float
    high: float
    common: float


class Unusual(NamedTuple):
    """A key of a config with an unusual value."""

    key: str
    value: float
    usual: Usual


# Chosen by us around the values of papers and of PyTorch's defaults, with room: a value outside explains, and is no fault alone.
USUAL = (
    Usual("optimizer.eps", 0.0, 1e-3, 1e-8),  # Kingma and Ba, 2015; 1e-3 for transformers in half precision
    Usual("optimizer.momentum", 0.0, 0.995, 0.9),
    Usual("optimizer.sam.rho", 0.0, 0.5, 0.05),  # Foret et al., 2021; the adaptive form has 0.5 to 2 (Kwon et al., 2021)
    Usual("optimizer.layer_decay", 0.4, 1.0, 1.0),  # Bao et al., 2022: 0.65
    Usual("optimizer.groups.lr", 0.01, 100.0, 1.0),  # a share of the learning rate
    Usual("gradients.noise.eta", 0.0, 0.3, 0.01),  # Neelakantan et al., 2015: 0.01, 0.3, 1
    Usual("early_stopping.patience", 3, math.inf, 10),
    Usual("early_stopping.min_delta", 0.0, 0.02, 0.0),
)


def unusual(config: Mapping[str, Any]) -> Iterator[Unusual]:
    """Yield the unusual values of a config, as nested plain values."""
    for usual in USUAL:
        for value in _values(config, usual.key.split(".")):
            is_adaptive = usual.key == "optimizer.sam.rho" and config["optimizer"]["sam"].get("adaptive")
            if not usual.low <= value <= usual.high * (10 if is_adaptive else 1):
                yield Unusual(usual.key, value, usual)


def _values(config: Any, path: list[str]) -> Iterator[float]:
    if isinstance(config, list):
        for part in config:
            yield from _values(part, path)
    elif path and isinstance(config, Mapping):
        yield from _values(config.get(path[0]), path[1:])
    elif not path and is_number(config):
        yield config


GONE, EARLY = 0.01, 0.25  # a rate below this share of its peak trains nothing; a schedule may be so after this share of a run
LONG_WARMUP = 0.5  # share of the run; 0.05 is usual
OWN_PARTS = ("own", "plateau")  # schedules whose rates do not follow from the config
LEAST_RIGHT = 0.5  # share of the smoothed label: below it the right class has less than all others
# Ten times the usual values: inside the gradient (Adam, SGD; PyTorch has 1e-4 to 5e-4), or apart from it (0.01 to 0.1).
LARGE_DECAY = {"sgd": 0.05, "adam": 0.05, "adamw": 1.0, "lion": 5.0}
SMALLER = frozenset(("loss", "log_loss", "mse", "rmse", "mae", "perplexity", "error"))
FEW_STEPS, LEAST_PER_EPOCH = 30, 4  # updates of a run, and of an epoch; batches that leave fewer are large
SOLVED = 0.9  # skill
FEW_SAMPLES = 4  # of a batch; Wu and He, 2018, Group Normalization, figure 1: errors of batch norm rise steeply from 8 down


@functools.cache
def _schedules() -> TypeAdapter[Schedule]:
    return TypeAdapter(Schedule)


def _rates(run: Run) -> list[tuple[float, float]]:
    """Return share of the run and learning rate, by the config's schedule, else by the recorded evaluations."""
    planned, config = run.result.planned_steps, run.config
    if not planned or is_opaque(config):
        return []
    values = config.get("schedule") or {}
    if values and values["name"] not in OWN_PARTS:
        per_epoch = planned // run.result.planned_epochs
        rates = preview(_schedules().validate_python(values), config["optimizer"]["lr"], planned, per_epoch)
        return [(epoch * per_epoch / planned, rate) for epoch, rate in rates]
    first = [(0.0, max(group.lr for group in run.result.groups))] if run.result.groups and values.get("name") == "own" else []
    return first + [(row.step / planned, number(row.lr)) for row in run.history if row.step]


def _gone(run: Run) -> Found | None:
    rates = _rates(run)
    peak = max((rate for _, rate in rates), default=math.nan)
    places = [share for share, rate in rates if rate >= GONE * peak]
    if not places or places[-1] > EARLY or rates[-1][1] >= GONE * peak:
        return None
    schedule = run.config["schedule"]["name"]
    return Found(
        f"After {percent(places[-1])} of the run the learning rate is below {percent(GONE)} of its peak of {text(peak)}, and "
        f"{text(rates[-1][1])} at the end: the schedule ({schedule}) is over before the training is.",
        {} if schedule == "own" else {"schedule.name": "cosine"},
    )


def _rising(run: Run) -> Found | None:
    rates, planned = _rates(run), run.result.planned_steps
    if not rates or not planned:
        return None
    schedule, last = run.config.get("schedule") or {}, rates[-1][1]
    if schedule.get("name") == "own":
        middle = rates[len(rates) // 2][1]
        rises = all(one <= other for (_, one), (_, other) in itertools.pairwise(rates)) and last > middle > rates[0][1]
        sentence = f"The learning rate rose to the end of the run, from {text(rates[0][1])} to {text(last)}."
        return Found(f"{sentence} The warm-up is longer than the run.") if rises and len(rates) > 2 else None
    by_epochs = schedule.get("warmup_epochs") or 0
    steps = schedule.get("warmup_steps") or by_epochs * planned / run.result.planned_epochs
    if steps <= LONG_WARMUP * planned:
        return None
    key = "schedule.warmup_epochs" if by_epochs else "schedule.warmup_steps"
    return Found(
        f"The warm-up takes {steps:,.0f} steps and the run has {planned:,}: the learning rate rises in "
        f"{percent(min(1.0, steps / planned))} of it.",
        {key: f"x{0.05 * planned / steps:.3g}"},
    )


def _smoothed(run: Run) -> Found | None:
    share, classes = number(run.config.get("label_smoothing")), sum(count > 0 for count in run.known_counts)
    right = 1 - share + share / classes if classes > 1 else math.nan
    if not right < LEAST_RIGHT:
        return None
    return Found(
        f"label_smoothing: {text(share)} leaves the right one of {classes} classes {text(right)}, and each other one "
        f"{text(share / classes)}.",
        {"label_smoothing": 0.1},
    )


def _turned(run: Run) -> Found | None:
    metric = run.config.get("metric") or {}
    name, mode = metric.get("name", ""), metric.get("mode")
    better = "max" if name in BOUNDED or name == R2 else "min" if name in SMALLER else mode
    if better == mode:
        return None
    return Found(
        f"metric.mode is {mode}, and {name} is better the {'larger' if better == 'max' else 'smaller'} it is: the worst weights "
        "are kept as the best.",
        {"metric.mode": better},
    )


def _decayed(run: Run) -> Found | None:
    optimizer = run.config.get("optimizer") or {}
    decay, most = number(optimizer.get("weight_decay")), LARGE_DECAY.get(optimizer.get("name", ""), math.inf)
    if not decay >= most or run.reached_skill >= HELD_SKILL:
        return None
    usual = f"usual for {optimizer['name']} are {text(most / 10)} and less"
    return Found(f"A weight decay of {text(decay)} pulls the weights to zero: {usual}.", {"optimizer.weight_decay": most / 100})


def _unusual(run: Run) -> Found | None:
    keys = [] if is_opaque(run.config) else [*unusual(run.config)]
    if not keys:
        return None
    deviations = [f"{one.key} is {text(one.value)} (usual: {text(one.usual.common)})" for one in keys]
    return Found(f"{'; '.join(deviations)}.", {one.key: one.usual.common for one in keys if "groups" not in one.key})


def _few_steps(run: Run) -> Found | None:
    planned, config = run.result.planned_steps, run.config
    if not planned or not run.history or planned >= FEW_STEPS or run.reached_skill >= SOLVED or is_opaque(config):
        return None
    if "behind" not in run.verdicts.values() and run.reached_skill >= HELD_SKILL:
        return None
    batch, epochs = number(config.get("batch_size")) * number(config.get("accumulate", 1)), run.result.planned_epochs
    is_large = batch >= number(run.result.train_samples) / LEAST_PER_EPOCH
    return Found(
        f"The run has only {planned} steps, in {epochs} epoch{'' if epochs == 1 else 's'}"
        f"{f' of large batches ({batch:.0f} samples)' if is_large else ''}: too few updates for most models.",
        {"batch_size": "x0.1"} if is_large else {"epochs": "x5"},
    )


def _small_batches(run: Run) -> Found | None:
    form, batch = run.start and run.start.structure, number(run.config.get("batch_size"))
    if not form or not form.batch_norms or not batch <= FEW_SAMPLES:
        return None
    return Found(
        f"Batch norm takes mean and deviation of batches of {batch:.0f} samples, which are too small for it.",
        {"batch_size": "x16"},
    )


def _attacked(run: Run) -> Found | None:
    spread = number(run.start_data and run.start_data.spread)
    sizes = [number(one.get("epsilon")) for one in run.config.get("strategies") or [] if one.get("name") == "adversarial"]
    if not sizes or not max(sizes) >= spread:
        return None
    return Found(
        f"The attack of adversarial training moves inputs by {text(max(sizes))}, and these differ by {text(spread)} only."
    )


CONFIG_CAUSES = (
    Cause("rate_gone", _gone, "A schedule as long as the run; one that counts epochs takes a step after each epoch", True),
    Cause("rate_rising", _rising, "A warm-up of a twentieth of the run", True),
    Cause("labels_smoothed_away", _smoothed, "Less label smoothing", True),
    Cause("few_steps", _few_steps, "Smaller batches, or more epochs", True),
    Cause("metric_turned", _turned, "The other metric.mode", True),
    Cause("weights_decayed", _decayed, "Little weight decay, or none", True),
    Cause("unusual_value", _unusual, "The usual values first, then one change at a time", False),
    Cause("small_batches", _small_batches, "Larger batches, or layer norm or group norm in place of batch norm", False),
    Cause("attack_too_strong", _attacked, "An epsilon well below the spread of the inputs", False),
)
