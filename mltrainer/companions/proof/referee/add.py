"""`mltrainer verdict FILE`: a referee's verdict added to the project that it is on, whose card and report then show it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project, path_name
from mltrainer.cli.output import show
from mltrainer.companions.proof.referee.words import summary
from mltrainer.errors import InputError
from mltrainer.gates.verdicts import PHASE
from mltrainer.project.engine import render_phase
from mltrainer.records.reading import sound_record
from mltrainer.records.verdict import VERDICT_FILE, WRITTEN, Verdict, verdict_of
from mltrainer.workspace import Project, locked_project, read_json, write_json

app = group()


@app.command(epilog="Example: mltrainer verdict verdict.json")
def verdict(
    file: Annotated[Path, typer.Argument(metavar="FILE", parser=path_name, help="The verdict that a referee wrote.")],
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Add a referee's verdict to the project: the model card and the final report then show it.

    It must be on the record of finalization as it is now. Whoever reads the card asks the referee whether the verdict is theirs.
    """
    project = open_project(folder)
    found = verdict_of(read_json(file, WRITTEN), str(file))
    add(project, found, str(file))
    return show(
        found, lambda one: f"{summary(one)}\nshown by the model card and the report of finalization: commit them", as_json
    )


def add(project: Project, found: Verdict, where: str) -> None:
    """Write a verdict beside the record that it is on, and render the card and the report again.

    Raises:
        InputError: It is on another record.
    """
    with locked_project(project):
        record = sound_record(project, PHASE)
        if record is None or record.seal != found.record:
            message = (
                f"it is on the record {found.record[:12]}, and this project's is {record.seal[:12] if record else 'not sound'}"
            )
            raise InputError(message, where=where, hint="ask the referee to judge the present commit")
        write_json(project.phase_dir(PHASE) / VERDICT_FILE, found.written())
        render_phase(project, PHASE)
