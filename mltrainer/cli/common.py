"""What the commands share: the project option, progress, and output."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mltrainer.reports.values import duration, visible
from mltrainer.workspace import Project, find_project

Event = dict[str, Any]


class _PathName(click.Path):
    """A path's name; one that no file can have is wrong usage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if "\0" in os.fspath(value):
            self.fail(f"{visible(value)!r} cannot be a file's name.", param, ctx)
        return super().convert(value, param, ctx)


PATH = _PathName(path_type=Path)
project_option = click.option(
    "--project",
    "folder",
    type=PATH,
    default=None,
    help="The project's folder (default: upwards from here).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")


def open_project(folder: Path | None) -> Project:
    """Return the project that a command works on."""
    return find_project(folder or Path.cwd())


class Progress:
    """Shows events: one line that is rewritten on a terminal, plain lines in a log, each on standard error.

    Args:
        quiet: Show nothing but phases and notes.
    """

    LOG_EVERY_S = 10.0

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._shown_at = 0.0
        self._open_line = False
        self._handlers: dict[str, Callable[[Event], None]] = {
            "note": lambda e: self._line(f"  {e['text']}"),
            "phase": lambda e: self._line(f"{e['phase']}:"),
            "progress": self._progress,
            "row": self._row,
            "trial": lambda e: self._line(
                f"  trial {e['nr']} of {e['trials']}: " + ", ".join(f"{k}={_short(v)}" for k, v in e["values"].items())
            ),
        }

    def __call__(self, event: Event) -> None:
        """Show one event."""
        handler = self._handlers.get(event["event"])
        if handler is not None:
            handler(event)

    def _line(self, text: str) -> None:
        if self._open_line:
            sys.stderr.write("\r\x1b[2K")
            self._open_line = False
        click.echo(text, err=True)

    def _status(self, text: str) -> None:
        """Show a passing state: rewritten on a terminal; in a log at most every few seconds."""
        now = time.monotonic()
        if self._live:
            sys.stderr.write(f"\r\x1b[2K  {text}")
            sys.stderr.flush()
            self._open_line = True
        elif not self._quiet and now - self._shown_at >= self.LOG_EVERY_S:
            self._shown_at = now
            click.echo(f"  {text}", err=True)

    def _progress(self, event: Event) -> None:
        rate = float(event["steps_per_s"])
        left = duration((event["steps"] - event["step"]) / rate) if rate > 0 else "?"
        self._status(f"step {event['step']}/{event['steps']}  loss {_short(event['loss'])}  {rate:.0f} steps/s  {left} left")

    def _row(self, event: Event) -> None:
        place = f"epoch {event['epoch']}/{event['epochs']}  step {event['step']}/{event['steps']}"
        measured = [f"{k.replace('_', ' ')} {_short(v)}" for k, v in event.items() if k.startswith(("train_", "validation_"))]
        self._status("  ".join([place, *measured]))

    def close(self) -> None:
        """End a line that is still being rewritten."""
        if self._open_line:
            sys.stderr.write("\n")
            self._open_line = False


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
