"""`mltrainer hold-out`: two files of a table, one for the author of a model and one that a referee keeps."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, WrongValueError, group, path_name, share_of_one
from mltrainer.cli.output import show
from mltrainer.companions.proof.referee.rows import Table, held_places, table
from mltrainer.configs.project import NAME
from mltrainer.errors import InputError
from mltrainer.records.common import Part
from mltrainer.reports.values import counted
from mltrainer.workspace import sha256_bytes, write_atomic

app = group()


class HeldOut(Part):
    """The two files of a table.

    Attributes:
        author: The author's file; `author_rows`: its number of rows.
        held: The referee's file; `held_rows`: its number of rows; `held_sha256`: its digest.
        held_by: The referee's name.
        seed: The seed of the draw, which draws the same rows again; None: the latest rows are held.
    """

    author: str
    author_rows: int
    held: str
    held_rows: int
    held_sha256: str
    held_by: str
    seed: int | None

    @property
    def keys(self) -> str:
        """The keys of `split: {...}` in the author's mltrainer.yaml."""
        return f"held_by: {self.held_by}, held_rows: {self.held_rows}, held_sha256: {self.held_sha256}"


@app.command(name="hold-out", epilog="Example: mltrainer hold-out --data all.csv --share 10%")
def hold_out(
    data: Annotated[
        Path, typer.Option("--data", metavar="FILE", parser=path_name, help="The whole table: CSV, TSV, JSON lines.")
    ],
    share: Annotated[float, typer.Option("--share", metavar="SHARE", parser=share_of_one, help="What is held, such as 10%.")],
    by_group: Annotated[
        str | None, typer.Option("--group", metavar="COLUMN", help="Keep rows of equal value together, such as a patient's.")
    ] = None,
    by_time: Annotated[str | None, typer.Option("--time", metavar="COLUMN", help="Hold the latest rows by this column.")] = None,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Who holds the rows.")] = "referee",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", parser=path_name, help="The one folder of both files (default: that of FILE)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="The seed of the draw (default: a secret one).")] = None,
    as_json: AsJson = False,
) -> int:
    """Divide a table: what the author of a model trains on, and rows that the author never sees, for `mltrainer referee`.

    Rows are drawn; equal rows stay together. The author gets one file and three keys for mltrainer.yaml, which hold your name,
    the number of the held rows and their digest alone. The project then has no test split of its own.
    """
    if by_group is not None and by_time is not None:
        raise typer.BadParameter("--group and --time exclude each other.", param_hint="'--time'")
    if not re.match(NAME, name):
        raise WrongValueError("letters, digits, . _ and -", name, param_hint="'--name'")
    rows = table(data)
    seed = None if by_time is not None else secrets.randbits(48) if seed is None else seed
    held = held_places(rows, share, seed or 0, by_group, by_time)
    return show(_written(rows, held, out or data.parent, name, seed), text, as_json)


def _written(rows: Table, held: set[int], folder: Path, name: str, seed: int | None) -> HeldOut:
    parts = [[row for place, row in enumerate(rows.rows) if (place in held) is is_held] for is_held in (False, True)]
    paths = [folder / f"{rows.path.stem}-{word}{rows.path.suffix}" for word in ("author", "held")]
    if existing := next((path for path in paths if path.exists()), None):
        raise InputError("this file exists already", where=str(existing), hint="remove it, or name another folder with --out DIR")
    contents = [rows.header + b"".join(part) for part in parts]
    for path, content in zip(paths, contents, strict=True):
        write_atomic(path, content)
    return HeldOut(
        author=str(paths[0]),
        author_rows=len(parts[0]),
        held=str(paths[1]),
        held_rows=len(parts[1]),
        held_sha256=sha256_bytes(contents[1]),
        held_by=name,
        seed=seed,
    )


def text(found: HeldOut) -> str:
    """Return the two files in words."""
    drawn = (
        "the latest rows"
        if found.seed is None
        else f"drawn by seed {found.seed}: keep it secret, as it draws the same rows again"
    )
    return "\n".join(
        [
            f"{found.author}: {counted(found.author_rows, 'row')} for the author",
            f"{found.held}: {counted(found.held_rows, 'row')} for you alone; move this file to where the author cannot read it",
            f"  {drawn}",
            "in the author's mltrainer.yaml, in split: {...}, replace test by:",
            f"  {found.keys}",
        ]
    )
