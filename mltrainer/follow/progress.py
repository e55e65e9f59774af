"""The display of a run's progress: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from mltrainer.follow.live import running_words, short, study_words
from mltrainer.records.event import Alert, Copy, Event, Study, Tell, Trial
from mltrainer.reports.terminal import folded
from mltrainer.reports.values import rates, size, time_left, visible

if TYPE_CHECKING:
    from types import TracebackType

    from mltrainer.follow.bar import Bar

Drawn = tuple[int, int, str, Sequence[str]]  # a line: done, total, the words before the bar and after it


@dataclass(frozen=True)
class Training:
    """The progress of a training, by its events `start`, `progress` and `row` so far."""

    epoch: float | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    loss: float | str | None = None
    steps_per_s: float = 0.0
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    metric: str | None = None
    validation: Mapping[str, Any] = field(default_factory=dict)

    def after(self, event: Event) -> Training:
        """Return the progress after one more event."""
        changed = {one.name: event[one.name] for one in fields(self) if one.name in event}
        return replace(self, **changed)


class Progress:
    """Shows events on standard error, in a notebook on standard output: a bar on a terminal, occasional plain lines in a log.

    Under continuous integration (`CI` is set and there is no terminal), it shows only phases, notes, trials and alerts. As a
    context manager it restores the terminal.
    """

    LOG_EVERY_S = 10.0

    def __init__(self, verbose: bool = False) -> None:
        """Begin with nothing shown; with `verbose` an evaluation's line in a log has every metric."""
        self._row_text = row_text if verbose else progress_text
        self._live = is_live()
        self._quiet = not self._live and os.environ.get("CI", "").lower() not in ("", "0", "false")
        self._shown_at = -self.LOG_EVERY_S  # the clock begins when the machine does
        self._bar: Bar | None = None
        self._state = Training()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case {"event": "note", "text": text}:
                self._line(f"  {text}")
            case {"event": "phase", "phase": phase}:
                self._line(f"{phase}:")
            case {"event": "start"}:
                self._state = Training().after(event)
            case {"event": "progress"}:
                self._status(event, progress_text)
            case {"event": "row", "train_loss": loss}:
                self._status({**event, "loss": loss}, self._row_text)
            case {"event": "trial"}:
                self._line(f"  {trial_text(Trial.model_validate(event))}")
            case {"event": "study"}:
                self._study(Study.model_validate(event))
            case {"event": "copy"}:
                self._copy(Copy.model_validate(event))
            case {"event": "alert"}:
                self._line(f"  {alert_text(Alert.model_validate(event))}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _line(self, text: str) -> None:
        self.close()
        _write_line(text)

    def _status(self, event: Event, text: Callable[[Training], str]) -> None:
        """Show a passing state: redrawn on a terminal; in a log at most every `LOG_EVERY_S`."""
        self._state = self._state.after(event)
        if self._live:
            self._draw()
        else:
            self._now_and_then(lambda: text(self._state))

    def _now_and_then(self, text: Callable[[], str]) -> None:
        """Show a passing state in a log, at most every `LOG_EVERY_S`."""
        now = time.monotonic()
        if not self._quiet and now - self._shown_at >= self.LOG_EVERY_S:
            self._shown_at = now
            _write_line(f"  {text()}")

    def _copy(self, copy: Copy) -> None:
        first, *rest = copy_parts(copy)
        if self._live:
            self._show((copy.done, copy.size, first, rest))
        else:
            self._now_and_then(lambda: "  ".join([first, *rest]))

    def _study(self, study: Study) -> None:
        """Show the progress of a search and of each of its workers on a terminal; a log has a line for each trial."""
        if self._live:
            self._show(*study_lines(study))

    def _draw(self) -> None:
        first, *rest = progress_parts(self._state)
        self._show((self._state.step or 0, self._state.steps or 0, first, rest))

    def _show(self, *lines: Drawn) -> None:
        from mltrainer.follow.bar import Bar, Line  # imported late: only a terminal needs its library

        self._bar = self._bar or Bar()
        seen = [(done, total, visible(first), [*map(visible, rest)]) for done, total, first, rest in lines]
        self._bar.show(*(Line(*line) for line in seen))

    def close(self) -> None:
        """Remove the bar, and restore the terminal."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def is_live() -> bool:
    """Return True if standard error is a terminal that can redraw a line."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _write_line(text: str) -> None:
    """Write a line on standard error; in a notebook, which shows standard error as a fault, on standard output."""
    stream = sys.stdout if "ipykernel" in sys.modules else sys.stderr
    line = folded(visible(text), stream)  # an author's code writes notes, too
    stream.write(f"{line}\n")
    stream.flush()


def shown(tell: Tell | None) -> AbstractContextManager[Tell]:
    """Return a context manager that gives the function for events: the given one, or progress on standard error."""
    return Progress() if tell is None else nullcontext(tell)


def progress_parts(state: Training) -> list[str]:
    """Return the progress of a training, as far as known: epoch, step, loss, metric, time left, rate."""
    places = [f"epoch {state.epoch}/{state.epochs}"] if state.epoch is not None else []
    places += [f"step {state.step}/{state.steps}"] if state.step is not None else []
    return [*places, *_measured(state), *_pace(state)]


def _measured(state: Training) -> list[str]:
    """Return the loss and the metric, each with its split: the metric may be a loss, too."""
    parts = [f"train loss {short(state.loss)}"] if state.loss is not None else []
    if state.metric is not None:
        parts.append(f"validation {state.metric.replace('_', ' ')} {short(state.validation[state.metric])}")
    return parts


def _pace(state: Training) -> list[str]:
    rate = float(state.steps_per_s)
    left = [time_left(((state.steps or 0) - (state.step or 0)) / rate), f"{rate:.0f} steps/s"] if rate > 0 else []
    return [*left, *rates(state.samples_per_s, state.tokens_per_s)]


def progress_text(state: Training) -> str:
    """Return the progress of a training as a line for a log."""
    return "  ".join(progress_parts(state))


def row_text(state: Training) -> str:
    """Return an evaluation's place and metrics as a line for a log."""
    place = f"epoch {state.epoch}/{state.epochs}  step {state.step}/{state.steps}"
    measured = {"train loss": state.loss, **{f"validation {name}": value for name, value in state.validation.items()}}
    return "  ".join([place, *(f"{name.replace('_', ' ')} {short(value)}" for name, value in measured.items())])


def trial_text(trial: Trial) -> str:
    """Return the number and the values of a trial that begins, as a line for a log."""
    values = ", ".join(f"{key}={short(value)}" for key, value in trial.values.items())
    return f"trial {trial.nr} of {trial.trials}: {values}"


def copy_parts(copy: Copy) -> list[str]:
    """Return the progress of a copy: bytes of all, rate, time left."""
    left = [time_left((copy.size - copy.done) / copy.bytes_per_s)] if copy.bytes_per_s > 0 else []
    return [f"{copy.what} {size(copy.done)} of {size(copy.size)}", f"{size(copy.bytes_per_s)}/s", *left]


def alert_text(alert: Alert) -> str:
    """Return a diagnostic's alert as a line for a log, with the page to read."""
    page = alert.page.removesuffix(".md")
    return f"{alert.severity}: {alert.title}, epoch {alert.epoch}: {alert.reason} (mltrainer guide {page})"


def study_lines(study: Study) -> list[Drawn]:
    """Return a line for the whole search, and one for each of its workers."""
    whole = (study.done, study.planned, f"{study.what} {study.done}/{study.planned}", study_words(study))
    each = [
        (run.step, run.steps, f"{study.what.removesuffix('s')} {run.nr}", running_words(run, study.metric or "metric"))
        for run in study.running
    ]
    return [whole, *each]
