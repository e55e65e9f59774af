"""A training's progress as a bar on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

WIDEST, NARROWEST = 24, 6  # of the bar itself, in columns


class Bar:
    """One line on standard error that is drawn anew when told, and leaves nothing behind.

    Nothing draws by itself, so that no thread runs beside the command, and none can draw over a line that was just printed.
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
        self._task = self._drawn.add_task("", rest="")

    def show(self, done: int, total: int, place: str, rest: Sequence[str]) -> None:
        """Draw the bar.

        Args:
            done: Steps that are done.
            total: Of how many.
            place: What stands before the bar.
            rest: What stands after it; on a narrow terminal the last of it is left out.
        """
        room = self._drawn.console.width - len(f"  {place}  ")
        text = fitting(rest, room - NARROWEST)
        self._column.bar_width = max(NARROWEST, min(WIDEST, room - len(text)))
        self._drawn.update(self._task, completed=done, total=total, description=place, rest=text)
        self._drawn.start()
        self._drawn.refresh()

    def close(self) -> None:
        """Erase the bar and show the cursor again."""
        self._drawn.stop()


def fitting(parts: Sequence[str], room: int) -> str:
    """Return as many parts, from the first on, as fit whole into a number of columns."""
    lines = ("  ".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((line for line in lines if len(line) <= room), "")
