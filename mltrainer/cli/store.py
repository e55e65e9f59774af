"""`mltrainer store`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project
from mltrainer.cli.output import emit, say
from mltrainer.project.syncing import Copied, pull, push
from mltrainer.reports.values import counted, size

app = group()
store = group(
    "store",
    help="Copy data, checkpoints and records to an object store, and back.",
    epilog="Example: mltrainer store push s3://bucket/prefix",
)
app.add_typer(store)

Address = Annotated[
    str, typer.Argument(metavar="URL", help="As fsspec reads it: s3://bucket/prefix, gs://, az://, file:///folder.")
]


@store.command(name="push", epilog="Example: mltrainer store push s3://bucket/prefix")
def push_(
    url: Address,
    force: Annotated[bool, typer.Option("--force", help="Take from here what changed on both sides.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Copy what changed here to a store: the data that git does not have, records, reports, runs and checkpoints.

    Keys come from the environment, as the store's own package reads them. A copy that is cut off leaves what was there.
    """
    return _show(push(open_project(folder), url, force), "sent", as_json)


@store.command(name="pull", epilog="Example: mltrainer store pull s3://bucket/prefix")
def pull_(
    url: Address,
    force: Annotated[bool, typer.Option("--force", help="Take from there whatever is another file here.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Copy what changed in a store into the project; every file is compared by its digest before any is replaced.

    What changed here alone stays, and nothing is removed.
    """
    return _show(pull(open_project(folder), url, force), "fetched", as_json)


def _show(copied: Copied, what: str, as_json: bool) -> int:
    emit(asdict(copied)) if as_json else say(_summary(copied, what))
    return 0


def _summary(copied: Copied, what: str) -> str:
    parts = [f"{what} {counted(copied.files, 'file')}, {size(copied.size)}; {copied.same} were the same"]
    parts += [f"{counted(copied.dropped, 'file')} removed from the store's list"] if copied.dropped else []
    parts += [f"{counted(copied.kept, 'file')} newer or removed here stayed so (--force: as there)"] if copied.kept else []
    return "; ".join(parts)
