"""`mltrainer checkpoints` and `mltrainer predict`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from mltrainer import plugins
from mltrainer.cli.common import (
    AnyRun,
    AsJson,
    Folder,
    Verbose,
    WrongValueError,
    file_name,
    group,
    one_of,
    open_project,
    path_name,
    tools,
    watched_metrics,
)
from mltrainer.cli.output import emit, say, show, warn
from mltrainer.configs.project import load_project
from mltrainer.configs.templates import ExportFormat
from mltrainer.follow.progress import Progress
from mltrainer.reports.runs import metrics_text
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, number, size
from mltrainer.runs.find import find_run

if TYPE_CHECKING:
    from mltrainer.checkpointing.selecting import Choice

app = group()
checkpoints = group(
    "checkpoints",
    help="List, verify, select, average, export, prune and import checkpoints.",
    epilog="Example: mltrainer checkpoints list",
)
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

    A run keeps its checkpoints if a gate, a record, a report, a config, a registered version, an export, an audit, an
    unfinished search, another run's job or a record of another local branch names it. A phase that needs a run without its
    checkpoint trains it again, in the same bits.
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
    step: Annotated[
        int | None, typer.Option("--step", min=1, metavar="N", help="The checkpoint of this step, not the best.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--to", metavar="DIR", parser=path_name, help="The folder to write, relative to where you are.")
    ] = Path("exported"),
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Export a run's best checkpoint, and compare it with the model.

    Without RUN: the newest phase's run. Exit 4 when a format disagrees with the trained model.
    """
    from mltrainer.runs.exports import export_run
    from mltrainer.runs.launcher import tools_of

    project = open_project(folder)
    name = find_run(project, run)
    with Progress() as progress, tools_of(project, progress) as tools:
        rows = export_run(tools, name, tuple(formats or ()), out, trained=trained, step=step)
    shown = [[row.format, row.state, number(row.max_difference), row.file or "", row.reason or ""] for row in rows]
    say(table(shown, ["format", "state", "largest difference", "file", ""]))
    agrees = all(row.agrees for row in rows if row.state == "written") and not any(row.state == "failed" for row in rows)
    if as_json:
        emit({"run": name, "folder": str(out), "agrees": agrees, "exports": [row.written() for row in rows]})
    return 0 if agrees else 4


@checkpoints.command(epilog="Example: mltrainer checkpoints select baseline --by accuracy,log_loss")
def select(
    run: AnyRun = None,
    by: Annotated[
        str, typer.Option("--by", metavar="METRICS", help="One or more, such as accuracy,log_loss:min (default: the project's).")
    ] = "",
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Rank a run's checkpoints by one metric on validation, or by several, with what each gives up.

    By several, one is taken of the Pareto set: of those that no other one beats in one metric without being worse in another.
    Nothing is changed. Without RUN: the newest phase's run.
    """
    from mltrainer.checkpointing.inventory import checkpoints as all_checkpoints
    from mltrainer.checkpointing.selecting import choices, modes_of, rule

    project = open_project(folder)
    name = find_run(project, run)
    metric = load_project(project.file).metric
    known = [row for row in all_checkpoints(project, name) if row.step is not None]
    modes = modes_of([one.strip() for one in by.split(",") if one.strip()], metric, known)
    rows = choices(known, modes, metric)
    if as_json:
        emit({"run": name, "by": modes, "rule": rule(modes), "checkpoints": [row.written() for row in rows]})
        return 0
    shown = [
        [str(row.step), *(_with_gap(row.metrics[one], row.behind[one]) for one in modes), _standing(row), row.path]
        for row in rows
    ]
    say(table(shown, ["step", *modes, "", "path"]))
    say(f"selected: step {rows[0].step}, {rule(modes)}")
    say(f"next: mltrainer checkpoints export {name} --step {rows[0].step}")
    return 0


def _with_gap(value: float, behind: float) -> str:
    return f"{number(value)} {f'({number(behind)} behind)' if behind else '(best)'}"


def _standing(row: Choice) -> str:
    if row.selected:
        return "selected"
    if row.beaten_by is not None:
        return f"beaten by step {row.beaten_by}"
    return "Pareto set" if len(row.metrics) > 1 else "equal"


@checkpoints.command(epilog="Example: mltrainer checkpoints average baseline --to averaged")
def average(
    run: AnyRun = None,
    how: Annotated[
        str,
        typer.Option(
            "--how", metavar="HOW", parser=one_of(("greedy", "uniform")), help="Of those that make it no worse, or all."
        ),
    ] = "greedy",
    most: Annotated[int, typer.Option("--most", min=2, metavar="N", help="The most checkpoints, the best on validation.")] = 5,
    out: Annotated[
        Path, typer.Option("--to", metavar="DIR", parser=path_name, help="The new folder, relative to where you are.")
    ] = Path("averaged"),
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Average the weights of a run's checkpoints, measure the mean on validation, and write it.

    Batch-norm statistics are measured again for it. A later training can begin with DIR: start.weights. Finalization delivers
    such a mean where `combine` of the production template asks for it, and only if it is better.
    """
    from mltrainer.runs.averaging import average as average_checkpoints
    from mltrainer.runs.averaging import in_words

    with tools(folder) as own:
        result, made = average_checkpoints(own, find_run(own.project, run), out, how, most)
        emit(made.written()) if as_json else say(in_words(own, result, made, out))
    return 0


def _renaming(text: str) -> tuple[str, str]:
    """Return a pattern and what takes its place."""
    found, sign, new = text.rpartition("=")  # a pattern may contain one
    try:
        re.compile(found)
    except re.error as error:
        raise WrongValueError(f"a pattern ({error})", found) from error
    if not found or not sign:
        raise WrongValueError("PATTERN=NAME, such as '^backbone\\.='", text)
    return found, new


@checkpoints.command(name="import", epilog="Example: mltrainer checkpoints import ../resnet18.pth --to weights/resnet18")
def import_(
    foreign: Annotated[Path, typer.Argument(metavar="FILE", parser=path_name, help="A .safetensors or torch file, or a folder.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="The new folder in the project (default: weights/ and FILE's name).")
    ] = None,
    rename: Annotated[
        list[Any] | None,
        typer.Option("--rename", metavar="PATTERN=NAME", parser=_renaming, help="Rename the file's tensors; may be repeated."),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Bring foreign weights into the project, for its model to begin with.

    FILE is .safetensors, .pt, .pth, .bin or .ckpt, or a folder of Hugging Face's libraries. Nothing in it is executed: a file
    that holds more than tensors is refused. Shown is each tensor that file and model do not have in common, and the keys of
    `start` for mltrainer.yaml. origin.json beside the weights has the digests of FILE.
    """
    from mltrainer.project.importing import import_weights, in_words

    with tools(folder) as own:
        imported = import_weights(own, foreign, to, dict(rename or ()))
    return show(imported, in_words, as_json)


@app.command(epilog="Example: mltrainer predict new_rows.csv --out answers.csv")
def predict(
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", parser=path_name, help="Rows, texts, conversations, or pictures or a folder of them, as in training."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=file_name, help="Write the rows with their answers to this .csv or .parquet instead."
        ),
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Predict with the delivered model, one JSON object per row on standard output; with --json one object of all.

    With --out the table comes back with columns behind its own: the prediction, and the probability of it or the ends of its
    interval.

    Every file of the model is compared with finalization's record first. Where the rows are of another population than those
    that it was trained on, that is told on standard error.
    """
    from mltrainer.runs.drift import drifted
    from mltrainer.runs.predict import delivered, predict, require_apart
    from mltrainer.runs.predicted_table import require_format, write_answers

    project = open_project(folder)
    found: dict[str, Any]
    if out is not None:
        require_apart(project, out, rows)
        count = write_answers(require_format(out), rows, delivered(project), predict(project, rows))
        say(f"wrote {counted(count, 'row')} to {out}")
        found = {"rows": count, "written": str(out)}
    elif as_json:
        answers = list(predict(project, rows))
        found = {"rows": len(answers), "answers": answers}
    else:
        for answer in predict(project, rows):
            sys.stdout.write(json.dumps(answer) + "\n")
    drifts = drifted(delivered(project), rows)
    for row in drifts:
        warn(str(row))
    if as_json:
        emit({"drifted": [asdict(row) for row in drifts], **found})
    return 0
