"""`mltrainer gate check --projects`: the gates of many projects in one process, a line for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from mltrainer.cli.output import emit, say
from mltrainer.follow.progress import is_live
from mltrainer.gates.projects import Checked, check_project, worst
from mltrainer.reports.values import counted, time_left, visible

if TYPE_CHECKING:
    from mltrainer.follow.bar import Bar

OPTION = "--projects"
LOG_EVERY_S = 10.0
DRAW_EVERY_S = 0.2


class TakesProjects(TyperCommand):
    """A command whose `--projects` takes all folders that follow it, as a shell's pattern expands to them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with each folder under a separate option."""
        return super().parse_args(ctx, list(_one_each(args)))


def _one_each(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with the option before each of its folders."""
    taking = False
    for nr, argument in enumerate(arguments):
        if argument.startswith("-"):
            taking = argument == OPTION or argument.startswith(f"{OPTION}=")
        elif taking and arguments[nr - 1] != OPTION:
            yield OPTION
        yield argument


def check_projects(folders: Sequence[Path], phase: str | None, demand_files: bool, trust: Path | None, as_json: bool) -> int:
    """Check the gates of some projects, print a line or a row of JSON for each, and return the exit code of the worst."""
    from mltrainer.cli.faults import reported

    width = max(len(visible(folder)) for folder in folders)
    checked = []
    with Pace(len(folders)) as pace:
        for folder in folders:
            one = check_project(folder, phase, demand_files, reported, trust)
            checked.append(one)
            if not as_json:
                pace.hide()
                say(line(one, width))
            pace.at(len(checked))
    if as_json:
        emit({"holds": all(one.holds for one in checked), "projects": [_row(one) for one in checked]})
    else:
        say(summary(checked))
    return worst(checked)


def line(one: Checked, width: int) -> str:
    """Return a project's line: its verdict, folder, the phases that hold, and the first that does not with its reason."""
    verdict = "holds" if one.holds else "closed" if one.closed else "error"
    custom = f"{counted(one.not_recomputed, 'verdict')} by its own checks, not recomputed" if one.not_recomputed else ""
    parts = [", ".join(one.holding), visible(one.why or ""), custom]
    return f"{verdict:<8}{visible(one.folder):<{width}}  {'; '.join(part for part in parts if part)}"


def summary(checked: Sequence[Checked]) -> str:
    """Return the numbers of projects that hold, that do not, and that could not be checked, as a sentence."""
    closed = sum(one.closed is not None for one in checked)
    broken = sum(not one.holds and one.closed is None for one in checked)
    holding = len(checked) - closed - broken
    parts = [f"{holding} {'holds' if holding == 1 else 'hold'}"]
    parts += [f"{closed} {'does' if closed == 1 else 'do'} not"] if closed else []
    parts += [f"{broken} could not be checked"] if broken else []
    return f"{counted(len(checked), 'project')}: {', '.join(parts)}"


def _row(one: Checked) -> dict[str, Any]:
    return {
        "project": str(one.folder),
        "holds": one.holds,
        "holding": list(one.holding),
        "closed": one.closed,
        "why": one.why,
        "not_recomputed": one.not_recomputed,
        "exit_code": one.exit_code,
    }


class Pace:
    """Shows on standard error the number of finished items, their rate, and the time left.

    A bar on a terminal; elsewhere a line now and then, so that a check of few projects says nothing there.

    Args:
        total: Number of things.
        now: The clock.
    """

    def __init__(self, total: int, now: Callable[[], float] = time.monotonic) -> None:
        self._total, self._now, self._started = total, now, now()
        self._live = is_live()
        self._shown_at = self._started
        self._bar: Bar | None = None

    def __enter__(self) -> Pace:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def at(self, done: int) -> None:
        """Show the number of finished items, unless the last time is too recent."""
        now = self._now()
        if done == self._total or now - self._shown_at < (DRAW_EVERY_S if self._live else LOG_EVERY_S):
            return
        self._shown_at = now
        rate = done / max(now - self._started, 1e-9)
        rest = [f"{rate:.3g} a second", time_left((self._total - done) / rate)]
        if self._live:
            from mltrainer.follow.bar import Bar, Line  # only a terminal needs its library

            self._bar = self._bar or Bar()
            self._bar.show(Line(done, self._total, f"projects {done}/{self._total}", rest))
        else:
            sys.stderr.write(f"{'  '.join([f'projects {done}/{self._total}', *rest])}\n")
            sys.stderr.flush()

    def hide(self) -> None:
        """Remove the bar, so that a line can be printed."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
