"""`mltrainer integrate`."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from mltrainer import plugins
from mltrainer.cli.common import AsJson, Folder, group, one_of, open_project
from mltrainer.cli.output import emit, say
from mltrainer.companions.serving.templates import KINDS, Kind

app = group()
OTHERS = plugins.parts("integrate")  # kinds of other companions, which need no delivered model


@app.command(epilog="Example: mltrainer integrate fastapi")
def integrate(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            parser=one_of((*KINDS, *OTHERS)),
            help="fastapi, nextjs, supabase, docker or agents.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder for the files, within the project; default: integrations/KIND.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that a person made or changed.")] = False,
    allow_unchecked: Annotated[
        bool, typer.Option("--allow-unchecked", help="Accept a model whose checks fail, and note it in every file.")
    ] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Write files with which your own stack calls the delivered model, typed by the model's own columns and classes.

    fastapi: a router for your app. nextjs: a form, and a route that keeps the token on the server. supabase: a migration with
    tables whose rows each user sees alone. docker: an unprivileged image of `mltrainer serve`. The files and the
    gates of the model are checked first: exit 4 if one fails. A changed file is not overwritten.

    agents: AGENTS.md and a skill in .claude/skills/mltrainer, from the handbook's pages; it needs no model.
    """
    if kind in OTHERS:
        if to is not None or allow_unchecked:
            raise typer.BadParameter("--to and --allow-unchecked are about a model's files: leave them out.", param_hint="KIND")
        written = plugins.part("integrate", kind)(open_project(folder), force)
    else:
        from mltrainer.companions.serving.templates.rendering import integrate as write

        written = write(open_project(folder), cast("Kind", kind), to, force, allow_unchecked)
        for path in written:
            say(path)
    if as_json:
        emit({"files": written})
    return 0
