"""A run's progress as it is reported: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Self

from mltrainer.follow.live import running_words, short, study_words
from mltrainer.reports.values import duration

if TYPE_CHECKING:
    from types import TracebackType

    from mltrainer.follow.bar import Bar

Event = dict[str, Any]
Tell = Callable[[Event], None]
Drawn = tuple[int, int, str, Sequence[str]]  # of a line: done, of how many, and the words before and after


class Progress:
    """Shows events on standard error: a bar on a terminal, a plain line now and then in a log.

    Under continuous integration (`CI` is set and nobody looks on), only phases, notes and trials. As a context manager it
    leaves the terminal as it was.
    """

    LOG_EVERY_S = 10.0

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self._quiet = not self._live and os.environ.get("CI", "").lower() not in ("", "0", "false")
        self._shown_at = 0.0
        self._bar: Bar | None = None
        self._state: Event = {}
        self._handlers: dict[str, Callable[[Event], None]] = {
            "note": lambda e: self._line(f"  {e['text']}"),
            "phase": lambda e: self._line(f"{e['phase']}:"),
            "start": self._start,
            "progress": lambda e: self._status(e, progress_text),
            "row": lambda e: self._status({**e, "loss": e["train_loss"]}, row_text),
            "trial": lambda e: self._line(f"  {trial_text(e)}"),
            "study": self._study,
            "alert": lambda e: self._line(f"  {alert_text(e)}"),
        }

    def __call__(self, event: Event) -> None:
        """Show one event."""
        handler = self._handlers.get(event["event"])
        if handler is not None:
            handler(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _line(self, text: str) -> None:
        self.close()
        _tell(text)

    def _start(self, event: Event) -> None:
        self._state = event

    def _status(self, event: Event, text: Callable[[Event], str]) -> None:
        """Show a passing state: drawn anew on a terminal; in a log at most every few seconds."""
        self._state = {**self._state, **event}
        now = time.monotonic()
        if self._live:
            self._draw()
        elif not self._quiet and now - self._shown_at >= self.LOG_EVERY_S:
            self._shown_at = now
            _tell(f"  {text(self._state)}")

    def _study(self, event: Event) -> None:
        """Show where a search and each of its workers stand, on a terminal; a log has a line for each trial."""
        if self._live:
            self._show(*study_lines(event))

    def _draw(self) -> None:
        first, *rest = progress_parts(self._state)
        self._show((self._state["step"], self._state["steps"], first, rest))

    def _show(self, *lines: Drawn) -> None:
        from mltrainer.follow.bar import Bar, Line  # only who looks at it waits for its library

        self._bar = self._bar or Bar()
        self._bar.show(*(Line(*line) for line in lines))

    def close(self) -> None:
        """Take the bar away, and leave the terminal as it was."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def shown(tell: Tell | None) -> AbstractContextManager[Tell]:
    """Return a context manager of the function that takes events: the given one, or progress on standard error."""
    return Progress() if tell is None else nullcontext(tell)


def progress_parts(state: Event) -> list[str]:
    """Return the progress of a training: epoch, step, loss, the metric of its last evaluation, rate, time left; as known."""
    places = [f"{name} {state[name]}/{state[f'{name}s']}" for name in ("epoch", "step") if name in state]
    return [*places, *_measured(state), *_pace(state)]


def _measured(state: Event) -> list[str]:
    """Return the loss and the metric, each with the split that it is of: the metric may be a loss, too."""
    parts = [f"train loss {short(state['loss'])}"] if "loss" in state else []
    if "metric" in state:
        name = state["metric"]
        parts.append(f"validation {name.replace('_', ' ')} {short(state['validation'][name])}")
    return parts


def _pace(state: Event) -> list[str]:
    rate = float(state.get("steps_per_s", 0.0))
    return [f"{rate:.0f} steps/s", f"{duration((state['steps'] - state['step']) / rate)} left"] if rate > 0 else []


def progress_text(state: Event) -> str:
    """Return the progress of a training as a line for a log."""
    return "  ".join(progress_parts(state))


def row_text(state: Event) -> str:
    """Return an evaluation's place and metrics as a line for a log."""
    place = f"epoch {state['epoch']}/{state['epochs']}  step {state['step']}/{state['steps']}"
    measured = {"train loss": state["train_loss"], **{f"validation {name}": v for name, v in state["validation"].items()}}
    return "  ".join([place, *(f"{name.replace('_', ' ')} {short(value)}" for name, value in measured.items())])


def trial_text(event: Event) -> str:
    """Return the number and the values of a trial that begins, as a line for a log."""
    values = ", ".join(f"{key}={short(value)}" for key, value in event["values"].items())
    return f"trial {event['nr']} of {event['trials']}: {values}"


def alert_text(event: Event) -> str:
    """Return a diagnostic's alert as a line for a log, with the page to read."""
    page = event["page"].removesuffix(".md")
    return f"{event['severity']}: {event['title']}, epoch {event['epoch']}: {event['reason']} (mltrainer guide {page})"


def study_lines(event: Event) -> list[Drawn]:
    """Return a line for a search as a whole, and one for each of its workers."""
    what, metric = event["what"], event.get("metric", "metric")
    whole = (event["done"], event["planned"], f"{what} {event['done']}/{event['planned']}", study_words(event))
    each = [
        (one.get("step", 0), one.get("steps", 1), f"{what.removesuffix('s')} {one['nr']}", running_words(one, metric))
        for one in event["running"]
    ]
    return [whole, *each]
