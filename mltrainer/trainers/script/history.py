"""The history of a program's run: its own evaluations, and between them the measurements of its optimizer's steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mltrainer.trainers.script.metrics import ReportedEvaluation

FEWEST = 3  # the program's evaluations; with fewer, the steps are also divided into PARTS rows
PARTS = 20
NS = 1e-9


@dataclass
class Steps:
    """The measurements of an optimizer's steps, by the step's number from 1; missing measurements have no entry.

    Attributes:
        losses: The loss of each step.
        norms: The norm of all gradients together.
        rates: The learning rates.
        times: The times in nanoseconds, of a separate clock.
        layers: For some steps, gradient norm and update share by weight.
        names: The weights' names.
        parameters: The number of trained parameters.
    """

    losses: dict[int, float] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    layers: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    parameters: int = 0


def steps_of(rows: Iterable[Sequence[Any]], reports: Iterable[Sequence[Any]] = ()) -> Steps:
    """Return the measurements of a process's steps, from its lines.

    Args:
        rows: The observer's lines, each with its time and kind first.
        reports: The program's own reports, which take precedence.
    """
    found = Steps()
    for _, what, *values in rows:
        if what == "about":
            found.names += values[0]
            found.parameters += values[1]
        elif what == "layers":
            found.layers[values[0]] = (values[1], values[2])
        elif what == "step":
            step, _, rate, loss, norm, time = values
            found.times[step] = time
            kept = ((found.rates, rate), (found.losses, loss), (found.norms, norm))
            for place, value in kept:
                if value is not None:
                    place[step] = float(value)
    found.losses.update({row[2]: float(row[3]) for row in reports if row[1] == "loss"})
    return found


def first_nonfinite(seen: Steps) -> tuple[int, str] | None:
    """Return the first step whose loss or gradient norm was not finite, and which of them; None if all were finite."""
    found = [(step, what) for what, by in (("loss", seen.losses), ("gradient norm", seen.norms)) for step in _bad(by)]
    return min(found, default=None)


def _bad(values: Mapping[int, float]) -> list[int]:
    return [step for step, value in values.items() if not math.isfinite(value)]


def epochs_of(evaluations: Sequence[ReportedEvaluation]) -> float:
    """Return the number of epochs at the last evaluation, counted from 0 or 1; 1 if the evaluations name none."""
    counted = [row.epoch for row in evaluations if row.epoch is not None]
    return max(1.0, counted[-1] + (1 if counted[0] == 0 else 0)) if counted else 1.0


def placed(evaluations: Sequence[ReportedEvaluation], steps: int) -> dict[int, ReportedEvaluation]:
    """Return the evaluations by the step that they follow.

    The step is their own, else follows from their share of the epochs, else is evenly spaced; the last one is the final step.
    """
    epochs, shift = epochs_of(evaluations), 1 if evaluations and evaluations[0].epoch == 0 else 0
    found: dict[int, ReportedEvaluation] = {}
    for number, row in enumerate(evaluations, 1):
        share = number / len(evaluations) if row.epoch is None else (row.epoch + shift) / epochs
        step = round(steps * share) if row.step is None else row.step
        found[steps if number == len(evaluations) else min(max(1, step), steps)] = row
    return found


def history(evaluations: Sequence[ReportedEvaluation], seen: Steps, steps: int) -> list[dict[str, Any]]:
    """Return the rows of a history, the last one after the last step.

    Args:
        evaluations: The program's evaluations.
        seen: The measurements of its steps.
        steps: The number of its steps; 0 if none was seen: the rows then have their own numbers.
    """
    if not steps:
        shift = 1 if evaluations and evaluations[0].epoch == 0 else 0
        return [_row(one, seen, n - 1, n, n if one.epoch is None else one.epoch + shift) for n, one in enumerate(evaluations, 1)]
    by_step = placed(evaluations, steps)
    parts = range(1, PARTS + 1) if len(evaluations) < FEWEST else ()
    ends = sorted({*by_step, steps, *(max(1, round(steps * part / PARTS)) for part in parts)})
    epochs = epochs_of(evaluations)
    return [_row(by_step.get(end), seen, begin, end, epochs * end / steps) for begin, end in zip([0, *ends], ends, strict=False)]


def _row(evaluation: ReportedEvaluation | None, seen: Steps, begin: int, end: int, epoch: float) -> dict[str, Any]:
    """Return the row of the steps after `begin` up to `end`."""
    within = range(begin + 1, end + 1)
    losses, norms = ([by[step] for step in within if step in by] for by in (seen.losses, seen.norms))
    looked = [seen.layers[step] for step in within if step in seen.layers]
    known = [time for step in (begin, end) if (time := seen.times.get(step)) is not None]
    return {
        "epoch": round(epoch, 9),
        "step": end,
        "lr": seen.rates.get(end, math.nan),
        "train_loss": statistics.fmean(losses) if losses else None,
        "train": evaluation.train if evaluation else {},
        "validation": evaluation.validation if evaluation else {},
        "grad_norm": _ends_of(norms),
        "layer_norms": [_median(norms.get(name) for norms, _ in looked) for name in seen.names],
        "update_ratios": [_median(updates.get(name) for _, updates in looked) for name in seen.names],
        "seconds": (known[1] - known[0]) * NS if len(known) == 2 else math.nan,
        "samples_per_s": math.nan,
        "data_wait": math.nan,
        "clipped": None,
    }


def _ends_of(norms: Sequence[float]) -> dict[str, float | None]:
    if not norms:
        return {"median": None, "max": None, "min": None}
    # With NaN, the result of max() depends on its place.
    bad = next((norm for norm in norms if not math.isfinite(norm)), None)
    return {"median": statistics.median(norms), "max": max(norms) if bad is None else bad, "min": min(norms)}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
