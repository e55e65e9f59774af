"""`mltrainer checkpoints`."""

from __future__ import annotations

from pathlib import Path

import click

from mltrainer.cli.common import PATH, Progress, json_option, open_project, project_option
from mltrainer.cli.main import emit
from mltrainer.reports.terminal import table
from mltrainer.reports.values import number
from mltrainer.runs.find import find_run


@click.group(epilog="Example: mltrainer checkpoints list")
def checkpoints() -> None:
    """List, verify and export checkpoints."""


@checkpoints.command(name="list", epilog="Example: mltrainer checkpoints list")
@project_option
@json_option
def list_(folder: Path | None, as_json: bool) -> int:
    """List every checkpoint: its run, its step, its metrics, and which phase's record names it."""
    from mltrainer.checkpointing.registry import checkpoints as registered

    rows = registered(open_project(folder))
    if as_json:
        emit({"checkpoints": rows})
        return 0
    shown = [
        [
            r["run"],
            str(r["step"]),
            ", ".join(f"{k} {number(v)}" for k, v in r["metrics"].items()),
            ", ".join(r["phases"]),
            r["path"],
        ]
        for r in rows
    ]
    click.echo(table(shown, ["run", "step", "metrics", "used by", "path"]) if rows else "no checkpoints yet; next: mltrainer run")
    return 0


@checkpoints.command(epilog="Example: mltrainer checkpoints verify baseline")
@click.argument("run", required=False)
@project_option
@json_option
def verify(run: str | None, folder: Path | None, as_json: bool) -> int:
    """Hash every file of the checkpoints again; exit 4 when one is not what its manifest says."""
    from mltrainer.checkpointing.registry import verify as verify_files

    project = open_project(folder)
    rows = verify_files(project, find_run(project, run) if run is not None else None)
    damaged = [row for row in rows if not row["ok"]]
    if as_json:
        emit({"intact": not damaged, "checkpoints": rows})
    else:
        click.echo(table([["ok" if r["ok"] else "DAMAGED", r["path"], r["reason"] or ""] for r in rows], ["", "checkpoint", ""]))
        click.echo(f"{len(rows) - len(damaged)} of {len(rows)} intact")
    return 4 if damaged else 0


@checkpoints.command(epilog="Example: mltrainer checkpoints export baseline --format onnx --to exported")
@click.argument("run", required=False)
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(["safetensors", "onnx", "torch_export", "torchscript"]),
    help="May be given more than once; default: all.",
)
@click.option("--trained", is_flag=True, help="The trained weights, where averaged ones are delivered.")
@click.option("--to", "out", type=PATH, default=Path("exported"), help="The folder to write.")
@project_option
def export(run: str | None, formats: tuple[str, ...], trained: bool, out: Path, folder: Path | None) -> int:
    """Export a run's best checkpoint, each format compared with the trained model; exit 4 when one disagrees."""
    from mltrainer.runs.exports import export_run
    from mltrainer.runs.launcher import tools_of

    project = open_project(folder)
    progress = Progress()
    try:
        rows = export_run(tools_of(project, progress), find_run(project, run), formats, out, trained=trained)
    finally:
        progress.close()
    shown = [[r["format"], r["state"], number(r.get("max_difference")), r["file"] or "", r["reason"] or ""] for r in rows]
    click.echo(table(shown, ["format", "state", "largest difference", "file", ""]))
    return 0 if all(r["agrees"] for r in rows if r["state"] == "written") and not any(r["state"] == "failed" for r in rows) else 4
