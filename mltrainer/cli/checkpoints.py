"""`mltrainer checkpoints` and `mltrainer predict`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, get_args

import typer

from mltrainer import plugins
from mltrainer.cli.common import (
    AnyRun,
    AsJson,
    Folder,
    Verbose,
    file_name,
    group,
    one_of,
    open_project,
    path_name,
    watched_metrics,
)
from mltrainer.cli.output import emit, say, warn
from mltrainer.configs.project import load_project
from mltrainer.configs.templates import ExportFormat
from mltrainer.follow.progress import Progress
from mltrainer.reports.runs import metrics_text
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, number, size
from mltrainer.runs.find import find_run

app = group()
checkpoints = group("checkpoints", help="List, verify and export checkpoints.", epilog="Example: mltrainer checkpoints list")
app.add_typer(checkpoints)


def _format(text: str) -> str:
    """Return a format's name; installed formats are searched if it is not built in."""
    built_in = get_args(ExportFormat)
    return one_of(built_in if text in built_in else (*built_in, *plugins.installed("exporters")))(text)


@checkpoints.command(name="list", epilog="Example: mltrainer checkpoints list")
def list_(folder: Folder = None, verbose: Verbose = False, as_json: AsJson = False) -> int:
    """List every checkpoint, and which phase's record names it.

    Shown are the metric that the project chooses by and the loss; -v shows all.
    """
    from mltrainer.checkpointing.inventory import checkpoints as all_checkpoints

    project = open_project(folder)
    rows = all_checkpoints(project)
    if as_json:
        emit({"checkpoints": [row.written() for row in rows]})
        return 0
    keeps_own = not rows and load_project(project.file).task.is_opaque
    none = "the task is a program, which keeps its own" if keeps_own else "mltrainer run makes them"
    watched = watched_metrics(project, verbose)
    shown = [
        [row.run, str(row.step), row.fault or metrics_text(row.metrics or {}, watched), ", ".join(row.phases), row.path]
        for row in rows
    ]
    say(table(shown, ["run", "step", "metrics", "used by", "path"]) if rows else f"no checkpoints: {none}")
    return 0


@checkpoints.command(epilog="Example: mltrainer checkpoints verify baseline")
def verify(run: AnyRun = None, folder: Folder = None, as_json: AsJson = False) -> int:
    """Hash every file of the checkpoints again.

    Without RUN: those of every run. Exit 4 when one is not what its manifest says.
    """
    from mltrainer.checkpointing.inventory import verify as verify_files

    project = open_project(folder)
    rows = verify_files(project, find_run(project, run) if run is not None else None)
    damaged = [row for row in rows if not row.is_intact]
    if as_json:
        emit({"intact": not damaged, "checkpoints": [row.written() for row in rows]})
    else:
        say(table([["ok" if row.is_intact else "DAMAGED", row.path, row.reason or ""] for row in rows], ["", "checkpoint", ""]))
        say(f"{len(rows) - len(damaged)} of {len(rows)} intact")
    return 4 if damaged else 0


@checkpoints.command(epilog="Example: mltrainer checkpoints prune --dry-run")
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing; show what would go.")] = False,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Remove the checkpoints of ended runs that nothing refers to; their results and logs stay.

    A run keeps its checkpoints if a gate, a record, a report, a config, an export, an audit, an unfinished search, another run's
    job or a record of another local branch names it. A phase that needs a run without its checkpoint trains it again, in the
    same bits.
    """
    from mltrainer.runs.pruning import prune as prune_checkpoints

    rows = prune_checkpoints(open_project(folder), only_look=dry_run)
    if as_json:
        emit({"removed": not dry_run, "checkpoints": [row.written() for row in rows]})
        return 0
    for row in rows:
        say(f"{'would remove' if dry_run else 'removed'} {row.path}: {size(row.bytes)}")
    say(f"{counted(len(rows), 'checkpoint')}, {size(sum(row.bytes for row in rows))}")
    return 0


@checkpoints.command(epilog="Example: mltrainer checkpoints export baseline --format onnx --to exported")
def export(
    run: AnyRun = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="FORMAT", parser=_format, help="May be given more than once; default: all."),
    ] = None,
    trained: Annotated[bool, typer.Option("--trained", help="The trained weights, where averaged ones are delivered.")] = False,
    out: Annotated[
        Path, typer.Option("--to", metavar="DIR", parser=path_name, help="The folder to write, relative to where you are.")
    ] = Path("exported"),
    folder: Folder = None,
) -> int:
    """Export a run's best checkpoint, and compare it with the model.

    Without RUN: the newest phase's run. Exit 4 when a format disagrees with the trained model.
    """
    from mltrainer.runs.exports import export_run
    from mltrainer.runs.launcher import tools_of

    project = open_project(folder)
    with Progress() as progress, tools_of(project, progress) as tools:
        rows = export_run(tools, find_run(project, run), tuple(formats or ()), out, trained=trained)
    shown = [[row.format, row.state, number(row.max_difference), row.file or "", row.reason or ""] for row in rows]
    say(table(shown, ["format", "state", "largest difference", "file", ""]))
    return (
        0 if all(row.agrees for row in rows if row.state == "written") and not any(row.state == "failed" for row in rows) else 4
    )


@app.command(epilog="Example: mltrainer predict new_rows.csv --out answers.csv")
def predict(
    rows: Annotated[
        Path, typer.Argument(metavar="FILE", parser=path_name, help="Rows, texts, pictures or a folder of them, as training had.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=file_name, help="Write the rows with their answers to this .csv or .parquet instead."
        ),
    ] = None,
    folder: Folder = None,
) -> int:
    """Predict with the delivered model, one JSON object per row on standard output.

    With --out the table comes back with columns behind its own: the prediction, and the probability of it or the ends of its
    interval.

    Every file of the model is compared with finalization's record first. Where the rows are of another population than those
    that it was trained on, that is told on standard error.
    """
    from mltrainer.runs.drift import drifted
    from mltrainer.runs.predict import delivered, predict
    from mltrainer.runs.predicted_table import require_format, write_answers

    project = open_project(folder)
    if out is not None:
        count = write_answers(require_format(out), rows, delivered(project), predict(project, rows))
        say(f"wrote {counted(count, 'row')} to {out}")
    else:
        for answer in predict(project, rows):
            sys.stdout.write(json.dumps(answer) + "\n")
    for row in drifted(delivered(project), rows):
        warn(str(row))
    return 0
