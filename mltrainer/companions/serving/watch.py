"""`mltrainer watch`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, path_name
from mltrainer.cli.output import emit, say, warn
from mltrainer.companions.serving.serve import NOWHERE, Model, database_of, served
from mltrainer.errors import InputError

if TYPE_CHECKING:
    from mltrainer.companions.serving.watching import Watched

app = group()
DIFFERS = 5  # the exit code of what differs from the record


@app.command(epilog="Example: mltrainer watch --days 7")
def watch(
    model: Model = None,
    days: Annotated[float, typer.Option(min=0.001, metavar="N", help="How far back to look.")] = 30.0,
    database: Annotated[str | None, typer.Option(metavar="URL", help="Where the answers are kept, as `serve` was told.")] = None,
    rows: Annotated[
        Path | None,
        typer.Option(parser=path_name, metavar="FILE", help="Write the kept rows that have a label, one a line, as JSON."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Compare what a served model was asked, and how right it was, with its training.

    Columns and predicted classes by the population stability index, metrics by their labels. Exit 5 where something differs; the
    alert goes to MLTRAINER_ALERT_COMMAND and MLTRAINER_ALERT_WEBHOOK, too, and names the commands that train anew.
    """
    from mltrainer.companions.serving.admission import admitted

    place = served(model, folder)
    found = admitted(place, allow_unchecked=True)
    url = database_of(database, found)
    if url is None or database == NOWHERE:
        raise InputError(
            "this model keeps its answers nowhere by itself", where=str(place), hint="name the --database of `serve`"
        )
    try:
        from mltrainer.companions.serving.store import Store
    except ModuleNotFoundError as error:
        raise InputError(f"it needs the package {error.name}", hint="pip install 'mltrainer[serve]'") from error
    from mltrainer.companions.serving.watching import final_of, labelled, watched

    _require_file(url)
    store = Store(url)
    kept = store.kept(found.identity.weights_sha256, days)
    store.close()
    seen = watched(found.spec, final_of(found.project), kept, days)
    if rows is not None:
        warn(f"{labelled(found.spec, kept, rows)} rows with their labels: {rows}")
    emit(seen.written()) if as_json else say(_text(seen))
    if not seen.alerts:
        return 0
    _send(found.identity.name, found.identity.run, seen)
    return DIFFERS


def _require_file(url: str) -> None:
    """Refuse a SQLite file that is not there, before one is made."""
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.is_file():
        raise InputError("no answers have been kept", where=str(path), hint="mltrainer serve keeps them")


def _text(seen: Watched) -> str:
    from mltrainer.reports.terminal import table
    from mltrainer.reports.values import number

    head = f"{seen.predictions} answers within {seen.days:g} days, {seen.inputs} with their rows, {seen.labels} with labels"
    shifts = [["DRIFTED" if row.has_drifted else "", row.name, number(row.index), number(row.missing)] for row in seen.columns]
    metrics = [
        ["WORSE" if row.is_worse else "", row.metric, number(row.live), number(row.test), str(row.rows)] for row in seen.quality
    ]
    parts = [head]
    parts += [table(shifts, ["", "column", "stability index", "missing"]).rstrip("\n")] if shifts else []
    parts += [f"predicted classes: stability index {number(seen.answers)}"] if seen.answers is not None else []
    parts += [table(metrics, ["", "metric", "live", "test split", "labels"]).rstrip("\n")] if metrics else []
    parts += [f"ALERT: {told}" for told in seen.alerts] or [_quiet(seen)]
    parts += [f"next: {seen.next}"] if seen.alerts else []
    return "\n".join(parts)


def _quiet(seen: Watched) -> str:
    """Return the sentence for no alert, which says what could not be compared."""
    if seen.columns or seen.quality or seen.answers is not None:
        return "nothing differs from training"
    return "too few answers, rows or labels to compare: 50 of each are needed"


def _send(name: str, run: str | None, seen: Watched) -> None:
    """Send the alert on, and wait until it was."""
    from mltrainer.follow.alert_sinks import SECONDS, send

    alert = {
        "event": "alert",
        "project": name,
        "run": run,
        "title": "a served model",
        "reason": "; ".join(seen.alerts),
        "next": seen.next,
    }
    for thread in send(alert, warn):
        thread.join(SECONDS)
