"""`mltrainer export-config`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, one_of, open_project
from mltrainer.cli.output import emit, say

app = group()


@app.command(name="export-config", epilog="Example: mltrainer export-config --for transformers")
def export_config(
    trainer: Annotated[
        str, typer.Option("--for", parser=one_of(("transformers",)), metavar="TRAINER", help="transformers: its Trainer.")
    ],
    to: Annotated[str, typer.Option(metavar="DIR", help="The folder for the files, within the project.")] = "transformers",
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that a person made or changed.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Write the planned config for another trainer: its arguments with a reason each, and a script that trains with them.

    For transformers: TrainingArguments, accelerate's config, DeepSpeed's where launch.parallel is zero1. What no argument can
    say is named, in the file and here.
    """
    from mltrainer.project.argument_files import write_arguments

    notes = write_arguments(open_project(folder), to, force)
    for line in notes:
        say(line)
    if as_json:
        emit({"folder": to, "notes": notes})
    return 0
