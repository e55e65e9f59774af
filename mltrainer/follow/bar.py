"""A training's progress as a bar on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

WIDEST, NARROWEST = 24, 6  # of the bar itself, in columns


@dataclass(frozen=True)
class Line:
    """A bar with words beside it.

    Attributes:
        done: The number of steps that are done.
        total: The number of all steps.
        place: The text before the bar.
        rest: The texts after the bar; on a narrow terminal the last ones are left out.
    """

    done: int
    total: int
    place: str
    rest: Sequence[str]


class Bar:
    """Lines on standard error that are redrawn on request, and leave nothing behind.

    They are drawn only on request: no thread runs beside the command, and none can draw over a line that was just printed.
    """

    def __init__(self) -> None:
        self._column = BarColumn(bar_width=WIDEST)
        columns = [
            TextColumn("  {task.description}", markup=False),
            self._column,
            TextColumn("{task.fields[rest]}", markup=False),
        ]
        console = Console(stderr=True, force_terminal=True)
        self._drawn = Progress(
            *columns, console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def show(self, *lines: Line) -> None:
        """Draw the lines, one below the other, in place of the former ones."""
        room = self._drawn.console.width - max(len(f"  {line.place}  ") for line in lines)
        texts = [fitting(line.rest, room - NARROWEST) for line in lines]
        self._column.bar_width = max(NARROWEST, min(WIDEST, room - max(map(len, texts))))
        for task, line, text in zip(self._tasks(len(lines)), lines, texts, strict=True):
            self._drawn.update(task, completed=line.done, total=line.total, description=line.place, rest=text)
        self._drawn.start()
        self._drawn.refresh()

    def _tasks(self, count: int) -> list[TaskID]:
        """Return `count` of the library's tasks, each a line; surplus ones are removed."""
        for left_over in self._drawn.task_ids[count:]:
            self._drawn.remove_task(left_over)
        for _ in range(count - len(self._drawn.task_ids)):
            self._drawn.add_task("", rest="")
        return self._drawn.task_ids

    def close(self) -> None:
        """Erase the bar and show the cursor again."""
        self._drawn.stop()


def fitting(parts: Sequence[str], room: int) -> str:
    """Return the first parts, as many as fit completely into a number of columns, as a line."""
    lines = ("  ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((line for line in lines if len(line) <= room), "")
