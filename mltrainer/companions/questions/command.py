"""A question's command, made of its call: what the call takes by name are the command's options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mltrainer.cli.common import AnyRun, AsJson, Assignments, Folder, group, tools
from mltrainer.cli.output import AnyWritten, show
from mltrainer.companions.questions.findings import changed_files

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
        return show(answer, lambda found: "\n".join([text(found), *changed_files(found)]), as_json)

    hints = get_type_hints(call)
    typed = {key: Annotated[LISTED.get(hints[key], hints[key]), option] for key, option in options.items()} | COMMON
    parameters = [
        one.replace(kind=one.KEYWORD_ONLY, annotation=typed[one.name], default=one.default or None)
        for one in inspect.signature(call).parameters.values()
        if one.name in typed
    ]
    for key, annotation, default in (("folder", Folder, None), ("as_json", AsJson, False)):
        parameters.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default))
    ask.__annotations__ = {one.name: one.annotation for one in parameters}
    ask.__dict__["__signature__"] = inspect.Signature(parameters)
    app = group()
    app.command(name=name, help=help, epilog=f"Example: {example}")(ask)
    return app
