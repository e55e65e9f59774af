"""A question's command, made of its call: what the call takes by name are the command's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mltrainer.cli.common import AnyRun, AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import AnyWritten, show

COMMON = {"run": AnyRun, "set": Assignments}  # parameters that mean the same in every call
LISTED: dict[Any, Any] = {Sequence[str]: list[str] | None}  # a parameter that may be typed more than once


def command(
    call: Callable[..., AnyWritten], text: Callable[[AnyWritten], str], *, name: str, help: str, example: str, **options: Any
) -> typer.Typer:
    """Return the app with the command that asks a question and prints its answer.

    Args:
        call: The call; its first parameter takes the project's tools.
        text: Function that returns an answer as text for the terminal.
        name: The command's name.
        help: Its help.
        example: The example at the end of the help.
        **options: Option of each parameter of the call; a parameter without one, and not in `COMMON`, is for Python alone.
    """

    def ask(folder: Path | None, as_json: bool, **given: Any) -> int:
        with tools(folder) as running:
            answer = call(running, **{key: value for key, value in given.items() if value is not None})
        return show(answer, text, as_json)

    hints, parameters = get_type_hints(call), [*inspect.signature(call).parameters.values()]
    taken = [
        (key, COMMON.get(key) or Annotated[LISTED.get(hints[key], hints[key]), options[key]], one.default or None)
        for one in parameters
        if (key := one.name) in COMMON or key in options
    ]
    rows = [*taken, ("folder", Folder, None), ("as_json", AsJson, False)]
    ask.__annotations__ = {key: hint for key, hint, _ in rows}
    ask.__dict__["__signature__"] = inspect.Signature(
        [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint) for key, hint, default in rows]
    )
    app = group()
    app.command(name=name, help=help, epilog=f"Example: {example}")(ask)
    return app
