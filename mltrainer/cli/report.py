"""`mltrainer report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, file_name, group
from mltrainer.cli.output import emit
from mltrainer.project.front import Project
from mltrainer.workspace import write_text

app = group()


@app.command(epilog="Example: mltrainer report --against main --out comment.md")
def report(
    against: Annotated[str, typer.Option("--against", metavar="BRANCH", help="A branch, a tag or a commit of this repository.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=file_name, help="Write the comment to a file, and print where.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Tell what a pull request brings, as the body of a comment in Markdown: every verdict, and what changed against BRANCH.

    Recomputed from the records, as `gate check` does: no data, no weights, no torch. Exit 4 when a gate does not hold.
    """
    review = Project(folder).report(against)
    if out is not None:
        write_text(out, review.markdown)
    if as_json:
        emit(review.found)
    else:
        print(review.markdown.rstrip("\n") if out is None else f"written to {out}")
    return 0 if review.holds else 4
