"""A command that answers one question about a run."""

from pathlib import Path
from typing import Annotated

import typer

from mltrainer.project.front import Project

app = typer.Typer()


@app.command(epilog="Example: mltrainer epochs baseline")
def epochs(run: str = typer.Argument("baseline"), folder: Annotated[Path | None, typer.Option("--project")] = None) -> int:
    """Say how many evaluations a run has."""
    print(len(Project(folder).load_run(run).history))
    return 0
