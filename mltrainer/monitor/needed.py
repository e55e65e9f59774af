"""The terminal view, where what it draws with is installed."""

from __future__ import annotations

from collections.abc import Callable

from mltrainer.errors import InputError
from mltrainer.workspace import Project


def terminal() -> Callable[[Project, list[str]], int]:
    """Return the function that opens the terminal view of a project with a list of runs.

    Raises:
        InputError: Textual is not installed.
    """
    try:
        from mltrainer.monitor.terminal import show
    except ModuleNotFoundError as error:
        hint = (
            "pip install 'mltrainer[monitor]', or look at it in the browser with `mltrainer monitor --web`, which needs nothing"
        )
        raise InputError("the terminal view needs the package textual", hint=hint) from error
    return show
