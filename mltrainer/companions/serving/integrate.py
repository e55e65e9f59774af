"""`mltrainer integrate`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import Folder, group, one_of, open_project
from mltrainer.cli.output import say
from mltrainer.companions.serving.templates import KINDS, Kind

app = group()


@app.command(epilog="Example: mltrainer integrate fastapi")
def integrate(
    kind: Annotated[
        Kind,
        typer.Argument(metavar="KIND", parser=one_of(KINDS), help="fastapi, nextjs, supabase or docker.", show_default=False),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder for the files, within the project; default: integrations/KIND.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that a person made or changed.")] = False,
    allow_unchecked: Annotated[
        bool, typer.Option("--allow-unchecked", help="Accept a model whose checks fail, and note it in every file.")
    ] = False,
    folder: Folder = None,
) -> int:
    """Write files with which your own stack calls the delivered model, typed by the model's own columns and classes.

    fastapi: a router for your app. nextjs: a form, and a route that keeps the token on the server. supabase: a migration with
    tables whose rows each user sees alone. docker: an unprivileged image of `mltrainer serve`. The files and the
    gates of the model are checked first: exit 4 if one fails. A changed file is not overwritten.
    """
    from mltrainer.companions.serving.templates.rendering import integrate as write

    for path in write(open_project(folder), kind, to, force, allow_unchecked):
        say(path)
    return 0
