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
DIFFERS = 5  # the exit code of a difference from the record


@app.command(epilog="Example: mltrainer watch --days 7")
def watch(
    model: Model = None,
    days: Annotated[float, typer.Option(min=0.001, metavar="N", help="Length of the period until now, in days.")] = 30.0,
    database: Annotated[str | None, typer.Option(metavar="URL", help="Database with the answers: the same as `serve`'s.")] = None,
    rows: Annotated[
        Path | None,
        typer.Option(parser=path_name, metavar="FILE", help="File for the labelled rows, one JSON object a line."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Compare a served model's requests and quality with its training.

    Columns and predicted classes are compared by the population stability index, metrics by labels. Exit 5 if they differ; the
    alert also goes to MLTRAINER_ALERT_COMMAND and MLTRAINER_ALERT_WEBHOOK, and names the commands that train again.
    """
    from mltrainer.companions.serving.admission import admitted

    place = served(model, folder)
    model_admitted = admitted(place, allow_unchecked=True)
    url = database_of(database, model_admitted)
    if url is None or database == NOWHERE:
        raise InputError(
            "this model has no database of answers by default",
            where=str(place),
            hint="give --database URL, the same as `serve`'s",
        )
    try:
        from mltrainer.companions.serving.store import Store
    except ModuleNotFoundError as error:
        raise InputError(f"watch needs the package {error.name}", hint="pip install 'mltrainer[serve]'") from error
    from mltrainer.companions.serving.watching import final_of, labelled, watched

    _require_file(url)
    store = Store(url)
    kept = store.kept(model_admitted.identity.weights_sha256, days)
    store.close()
    seen = watched(model_admitted.spec, final_of(model_admitted.project), kept, days)
    if rows is not None:
        warn(f"{labelled(model_admitted.spec, kept, rows)} rows with their labels: {rows}")
    emit(seen.written()) if as_json else say(_text(seen))
    if not seen.alerts:
        return 0
    _send(model_admitted.identity.name, model_admitted.identity.run, seen)
    return DIFFERS


def _require_file(url: str) -> None:
    """Refuse a missing SQLite file, which would otherwise be created."""
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.is_file():
        raise InputError("no answers were kept", where=str(path), hint="mltrainer serve, which keeps answers there")


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
    parts += [f"ALERT: {alert}" for alert in seen.alerts] or [_quiet(seen)]
    parts += [f"next: {seen.next}"] if seen.alerts else []
    return "\n".join(parts)


def _quiet(seen: Watched) -> str:
    """Return the sentence for no alert; it says if too little was there to compare."""
    if seen.columns or seen.quality or seen.answers is not None:
        return "nothing differs from training"
    return "too few answers, rows or labels to compare: each needs 50"


def _send(name: str, run: str | None, seen: Watched) -> None:
    """Send the alert to its sinks, and wait for them."""
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
