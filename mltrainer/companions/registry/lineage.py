"""`mltrainer lineage`: data, code, config, environment, runs and gates that led to a file, a run or a registered version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, one_of, open_project
from mltrainer.cli.output import emit, printable, say
from mltrainer.companions.registry.entries import MODEL_PREFIX
from mltrainer.companions.registry.graph import Lineage, as_mermaid, as_text
from mltrainer.companions.registry.log import VARIABLE, opened
from mltrainer.companions.registry.origins import MODEL, of_project, with_version
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates
from mltrainer.leftovers import scratch
from mltrainer.runs.find import find_run
from mltrainer.workspace import Project, sha256_file

FORMATS = ("text", "json", "mermaid")
app = group()


@app.command(epilog="Example: mltrainer lineage --format mermaid")
def lineage(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[WHAT]", help="A file, a run, or a registered NAME:VERSION (default: the delivered model)."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", parser=one_of(FORMATS), help="text, json or mermaid.")
    ] = "text",
    place: Annotated[
        str | None, typer.Option("--registry", metavar="FOLDER_OR_URL", envvar=VARIABLE, help="The registry of NAME:VERSION.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Show what a file, a run or a registered version came from, by the records: data, code, config, runs, gates.

    A file is found by its digest, wherever it is and whatever its name, in the registry too where one is named. Mermaid is
    drawn by GitHub and GitLab in Markdown.
    """
    reference = _reference(what, place)
    found = _of_version(reference, place) if reference else _of_project(open_project(folder), what)
    if as_json or form == "json":
        emit(found.written())
    elif form == "text":
        say(as_text(found))
    else:
        print(printable(as_mermaid(found)))  # never folded, as a drawing's lines end its statements
    return 0


def _reference(what: str | None, place: str | None) -> str | None:
    """Return the version that is asked for: by its reference, or by one of its files; None for anything else."""
    if what is None:
        return None
    if not Path(what).is_file():
        return what if any(sign in what for sign in ":@") else None
    return opened(place).holder(sha256_file(Path(what))) if place else None


def _of_project(project: Project, what: str | None) -> Lineage:
    whole = of_project(project, check_gates(project))
    return whole.of(_focus(project, whole, what))


def _of_version(reference: str, place: str | None) -> Lineage:
    registry = opened(place)
    model, added = registry.version(reference)
    with scratch("registry-") as root:
        registry.fetch(added.files, root)
        project = Project(root)
        whole = of_project(project, check_gates(project))
        return whole.of(with_version(whole, model, added))


def _focus(project: Project, whole: Lineage, what: str | None) -> str:
    """Return the id of the thing whose lineage is asked for.

    Raises:
        InputError: No record speaks of it.
    """
    if what is None:
        if MODEL not in whole.nodes:
            raise InputError("there is no delivered model yet", hint="mltrainer lineage RUN, or mltrainer run")
        return MODEL
    path = Path(what)
    if path.is_file():
        sha256 = sha256_file(path)
        if (found := whole.files.get(sha256)) is None:
            message = f"no record of this project has a file of sha256 {sha256[:12]}"
            raise InputError(message, where=what, hint="mltrainer lineage NAME:VERSION --registry FOLDER_OR_URL")
        return found
    inside = project.relative(path.resolve())
    if f"{inside}/" == MODEL_PREFIX or f"checkpoint {inside}" in whole.nodes:
        return MODEL if f"{inside}/" == MODEL_PREFIX else f"checkpoint {inside}"
    return f"run {find_run(project, what)}"
