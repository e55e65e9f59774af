"""`mltrainer batch-size`: throughput and memory of growing batch sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field
from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.exploration import exploring
from mltrainer.companions.questions.findings import Explored, Findings, Suggestion, Value, rounded
from mltrainer.configs.loading import Changes
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import KilledError
from mltrainer.reports.terminal import table
from mltrainer.reports.values import megabytes, microseconds, number
from mltrainer.runs.launcher import Tools


class Size(Findings):
    """A batch size: the time of a step in microseconds, the throughput, and the peak memory in MiB."""

    batch_size: int
    step_us: Value
    samples_per_s: Value
    peak_mb: Value


class SizeTest(Findings):
    """Memory limit in MiB, None if unknown, and the reason why no larger size was tried."""

    limit_mb: Value | None
    stopped: str


class Present(Findings):
    """Batch size of the present config, and number of batches whose gradients accumulate."""

    batch_size: int
    accumulate: int


class Adaptation(Findings):
    """Changes of the config, by dotted key, that train with another batch size, their effect, and their command."""

    changes: dict[str, Any] = Field(serialization_alias="set")
    why: str
    command: str | None = None


class FoundSize(SizeTest, Explored):
    """Every size that was measured, the largest that fits, the suggested one or None, and the reason."""

    sizes: list[Size]
    largest: int | None
    present: Present
    suggestion: Value | None
    reason: str
    changes: list[Adaptation]


FIRST_SIZE = 8  # unless asked otherwise


def batch_size(tools: Tools, *, set: Changes | None = None, first: int = FIRST_SIZE, minutes: float | None = None) -> FoundSize:
    """Return, from a copy, the measured sizes, the largest that fits, and the suggested one or None, with the reason.

    Args:
        tools: The project's tools.
        set: Changes of the config.
        first: The first batch size.
        minutes: Time limit: no size begins that would exceed it; None: the explorer page's limit.
    """
    rows: list[Size] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "size":
            rows.append(Size.model_validate({key: value for key, value in event.items() if key != "event"}))
        tools.tell(event)

    with exploring(tools, "batch_size", set) as exploration:
        try:
            limit = exploration.limits.minutes if minutes is None else minutes
            test = exploration.ask(SizeTest, on_event, first=first, minutes=limit)
        except KilledError:  # earlier sizes were already sent as events
            tried = 2 * rows[-1].batch_size if rows else first
            test = SizeTest(
                limit_mb=None, stopped=f"{tried} does not fit: the system killed the process, as it does when memory runs out"
            )
        config, suggested = exploration.config, suggest_size(rows, exploration.limits.near_best)
        changes = [] if suggested.value is None else adaptations(int(suggested.value), config)
        return exploration.kept(
            FoundSize.of(
                test,
                sizes=rows,
                largest=rows[-1].batch_size if rows else None,
                present=Present(batch_size=config.batch_size, accumulate=config.accumulate),
                suggestion=suggested.value,
                reason=suggested.reason,
                changes=[one.model_copy(update={"command": exploration.command(one.changes)}) for one in changes],
            )
        )


def text(test: FoundSize) -> str:
    """Return a row per size, the reason of the end, the suggestion with its reason, and the commands that adopt it."""
    rows = [
        [number(r.batch_size), number(r.samples_per_s), microseconds(r.step_us), megabytes(r.peak_mb), _note(test, r.batch_size)]
        for r in test.sizes
    ]
    lines = [table(rows, ["batch size", "samples/s", "step", "peak memory", ""]).rstrip("\n"), f"ended: {test.stopped}"]
    if test.suggestion is None:
        return "\n".join([*lines, f"No suggestion: {test.reason}."])
    lines.append(f"suggestion: {number(test.suggestion)}: {test.reason}.")
    for change in test.changes:
        lines += [f"  {change.why}:", f"    {change.command}"]
    lines.append("The batch size is part of a run's identity: another size is another run, with other bits.")
    return "\n".join(lines)


def _note(test: FoundSize, size: int) -> str:
    words = {"suggested": test.suggestion, "largest that fits": test.largest, "now": test.present.batch_size}
    return ", ".join(word for word, other in words.items() if other == size)


LINEAR = ("sgd", "lars")  # their update is as large as the gradient, or held to a share of the weights


def doubled(first: int, samples: int) -> Iterator[int]:
    """Yield `first`, twice it and so on, up to the number of samples; at least one size."""
    size = min(first, samples)
    while size <= samples:
        yield size
        size *= 2


def needed_mb(rows: Sequence[Size]) -> float:
    """Return the expected peak memory in MiB of twice the last batch: the last doubling's growth, twice."""
    # Twice the last growth, as the next doubling adds twice as many samples as the last one did; the fixed part cancels out.
    peaks = [row.peak_mb for row in rows[-2:]]
    return float(peaks[-1] + 2 * max(0.0, peaks[-1] - peaks[0]))


def needed_s(rows: Sequence[Size], steps: int) -> float:
    """Return the expected seconds of some steps of twice the last batch: a step takes twice as long at most."""
    return steps * 2 * rows[-1].step_us / 1e6


def suggest_size(rows: Sequence[Size], near_best: float) -> Suggestion:
    """Return the smallest batch whose throughput is within a share of the best.

    Args:
        rows: Sizes that fit, rising.
        near_best: Largest relative distance to the best throughput.
    """
    if not rows:
        return Suggestion(None, "no batch size fits: give a smaller --from")
    best = max(rows, key=lambda row: row.samples_per_s)
    chosen = next(row for row in rows if row.samples_per_s >= (1 - near_best) * best.samples_per_s)
    rate = f"{chosen.samples_per_s:,.0f} samples/s"
    rate += "; smaller ones were not tried" if chosen is rows[0] else ""
    if chosen is best:
        return Suggestion(chosen.batch_size, f"the most of all, {rate}")
    more = best.samples_per_s / chosen.samples_per_s - 1
    return Suggestion(chosen.batch_size, f"{rate}; {best.batch_size} would bring only {more:.1%} more")


def adaptations(size: int, config: TrainingConfig) -> list[Adaptation]:
    """Return the ways to train with micro-batches of another size, each with its effect.

    With more samples in a step the learning rate grows: with SGD as they do (Goyal et al., 2017, arXiv 1706.02677), with
    optimizers that divide by the gradients' size as their root does (Malladi et al., 2022, arXiv 2205.10287).
    """
    samples, lr = config.batch_size * config.accumulate, config.optimizer.lr
    ways: list[Adaptation] = []
    if size != config.batch_size and samples % size == 0:
        change: dict[str, float] = {"batch_size": size, "accumulate": samples // size}
        ways.append(Adaptation(changes=change, why=f"{samples} samples in a step, as now: the rate fits"))
    if size != samples:
        linear = config.optimizer.name in LINEAR
        rate = rounded(lr * (size / samples if linear else math.sqrt(size / samples)))
        law = "as the samples do" if linear else "as their root does"
        change = {"batch_size": size, "accumulate": 1, "optimizer.lr": rate}
        why = f"{size} samples in a step instead of {samples}; the rate changes {law}: try it with lr-find"
        ways.append(Adaptation(changes=change, why=why))
    return ways


app = command(
    batch_size,
    text,
    name="batch-size",
    help="Find a batch size: double it until memory, data or time ends, and measure throughput and memory.\n\n"
    "Nothing of it stays but a scratch folder: no run, no gate and no file of the project changes.",
    example="mltrainer batch-size --from 64",
    first=Option("--from", min=1, metavar="N", help="The first batch size."),
    minutes=Option(
        min=0, metavar="MINUTES", help="Time limit: no size begins that would exceed it; default: the explorer's page."
    ),
)
