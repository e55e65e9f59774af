"""Finalization: the last training, its reproduction, one look at the sealed test split, and a model to deploy.

In: `final_config.yaml` and the production template. Out: `final_model/`, and as evidence the run, its
reproduction in a fresh process, the exports' agreement, and every opening of the test split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltrainer.configs.loading import apply, differences, parse_assignment, validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import PRODUCTION, overlay, production_template
from mltrainer.diagnostics.rules import acceptance_rows
from mltrainer.errors import InputError
from mltrainer.phases.baseline import run_inputs, run_source
from mltrainer.phases.context import Context, Result, file_row
from mltrainer.phases.training import train
from mltrainer.runs.contract import JOB_FILE, run_id
from mltrainer.runs.exporting import run_manager
from mltrainer.runs.retrain import reproduce
from mltrainer.workspace import read_json, write_json

MODEL_FOLDER = "final_model"
OPENINGS_FILE = "test_openings.json"
PLANNED = ("name", "id", "data", "split", "metric", "acceptance", "budget")
TEST_FILE = "test.json"  # in the folder of a run that was tested


def run(ctx: Context) -> Result:
    """Train the final model, reproduce it, test it once, export it."""
    template = production_template(ctx.project.root)
    export = template.pop("export")
    config = final_config(ctx, template)
    result = train(ctx, config, parent=ctx.earlier["baseline"]["evidence"]["run"]["id"])
    ctx.note("reproducing the final training in a fresh process")
    again = reproduce(ctx.tools, result["id"])
    exported = _export(ctx, config, result, export)
    written = sorted(path for path in (ctx.folder / MODEL_FOLDER).glob("[!.]*") if path.is_file() and path.name != "README.md")
    rows = [file_row(ctx.project, path, _role(path)) for path in written]
    evidence = {
        "run": result,
        "config": config.model_dump(),
        "changed": differences(ctx.earlier["planning"]["evidence"]["config"], config.model_dump()),
        "reproduction": again.row,
        "exports": exported["exports"],
        "inference": exported["inference"],
        "delivered_sha256": exported["weights_sha256"],
        "test": {"samples": exported["test"]["samples"], "metrics": exported["test"]["metrics"], "openings": _openings(ctx)},
        "model_files": rows,
        "acceptance": acceptance_rows(config.acceptance, result["metrics"]),
        "runs_tried": runs_tried(ctx),
        "data": ctx.earlier["planning"]["evidence"]["data"],
        "environment": ctx.earlier["planning"]["evidence"]["environment"],
    }
    inputs = [*run_inputs(ctx, result), *rows]
    ledger = ctx.folder / OPENINGS_FILE
    if ledger.exists():
        inputs.append(file_row(ctx.project, ledger, "ledger"))
    return Result(evidence, run_source(ctx, result), inputs, [PRODUCTION])


def final_config(ctx: Context, template: dict[str, Any]) -> TrainingConfig:
    """Return the optimized config under the production template's changes and the command line's.

    Raises:
        InputError: A `--set` or a key of the template does not fit.
    """
    for key, _ in map(parse_assignment, ctx.assignments):
        if key.partition(".")[0] in PLANNED:
            raise InputError(
                f"--set {key} belongs to planning: what a model is judged by is not chosen when it is known",
                mend=f"mltrainer phase run planning --set {key}=VALUE",
            )
    values = overlay(ctx.earlier["optimization"]["evidence"]["config"], template)
    return validate_values(TrainingConfig, *apply(values, ctx.assignments, PRODUCTION))


def _role(path: Path) -> str:
    return "model" if path.suffix in (".safetensors", ".onnx", ".pt2", ".pt", ".data") else "document"


def _openings(ctx: Context) -> list[dict[str, Any]]:
    """Return every opening of a test split: the ledger's, and as the last record and the tested runs themselves tell it."""
    recorded = (ctx.current or {}).get("evidence", {}).get("test", {}).get("openings", [])
    tested = (_opening(path.parent) for path in sorted(ctx.project.runs_dir.glob(f"*/{TEST_FILE}")))
    found: dict[str, dict[str, Any]] = {}
    for row in [*_ledger(ctx.folder / OPENINGS_FILE), *recorded, *tested]:
        found[row["run"]] = {**found.get(row["run"], {}), **row}
    return [{**row, "nr": number} for number, row in enumerate(found.values(), 1)]


def _ledger(path: Path) -> list[dict[str, Any]]:
    """Return the ledger's rows; none where it was removed or damaged, which the gate has told."""
    try:
        return [dict(row) for row in read_json(path)["openings"] if row["run"]]
    except (InputError, KeyError, TypeError, ValueError):
        return []


def _opening(folder: Path) -> dict[str, Any]:
    """Return the ledger's row of a run that was tested, set aside or not; which data that was, the run's name proves."""
    run = folder.name.partition(".")[0]
    try:
        contract = read_json(folder / JOB_FILE)["contract"]
        data = contract["data_sha256"] if run_id(contract) == run else None
    except (InputError, KeyError, TypeError):
        data = None
    return {"run": run, "data_sha256": data, "purpose": "final evaluation"}


def _export(ctx: Context, config: TrainingConfig, result: dict[str, Any], export: dict[str, Any]) -> dict[str, Any]:
    """Run the checkpoint manager: the test split's one opening, the exports and the files beside them.

    The opening is written down before the split is opened, so that a crash counts too; a run that was tested before is
    measured again, which shows nothing new, and does not count again.
    """
    folder, openings = ctx.project.runs_dir / result["id"], _openings(ctx)
    if config.split.test > 0 and result["id"] not in {row["run"] for row in openings}:
        openings.append({"nr": len(openings) + 1, **_opening(folder)})
    if openings:
        write_json(ctx.folder / OPENINGS_FILE, {"openings": openings})
    return run_manager(ctx.tools, result, ctx.with_workers(config), ctx.folder / MODEL_FOLDER, export, config.split.test > 0)


def runs_tried(ctx: Context) -> int:
    """Return how many runs were started in this project, not only the one reported."""
    return sum(1 for folder in ctx.project.runs_dir.iterdir() if (folder / "job.json").is_file())
