"""Baseline: one training run of the planned config, with the numbers that later phases must beat."""

from __future__ import annotations

from mltrainer.configs.pages import diagnostic_page
from mltrainer.configs.templates import BASELINE
from mltrainer.diagnostics import input_starvation
from mltrainer.diagnostics.rules import acceptance_rows, changes_to_try, findings
from mltrainer.diagnostics.signals import Run
from mltrainer.observe.file_rows import unplanned
from mltrainer.phases.context import Context, Result, code_rows, file_row, rows_with_role
from mltrainer.phases.folds import cross_validated, mean_of
from mltrainer.phases.inputs import steady
from mltrainer.phases.lacking_classes import lacking_classes
from mltrainer.phases.planning import config_files
from mltrainer.phases.training import train
from mltrainer.records.baseline import Baseline, Folds
from mltrainer.records.common import InputRow, Source
from mltrainer.records.run import RunResult
from mltrainer.reproducibility.code import source
from mltrainer.reproducibility.fingerprint import CHAIN_FILE
from mltrainer.runs.contract import RESULT_FILE
from mltrainer.runs.references import boosting_ahead, measure_references
from mltrainer.runs.untaught import untaught
from mltrainer.workspace import without_none


def run(ctx: Context) -> Result:
    """Train the planned config."""
    config = ctx.planned_config()
    result = train(ctx, config)
    folds = cross_validated(ctx, config, result)
    thresholds = diagnostic_page("input_starvation", ctx.project.root).thresholds
    references = measure_references(ctx.tools, result, ctx.with_workers(config))
    judged = Run(result, references)
    rows = findings(judged, config.model_dump(), ctx.project.root)
    without = untaught(ctx.project, result, config, ablated=config)
    lacking = lacking_classes(ctx.planning.evidence.data, result)
    failed = result.state == "failed"  # the diagnostics are then never reached: their findings are used here
    evidence = Baseline(
        run=result,
        budget_minutes=config.budget.minutes,
        folds=folds,
        acceptance=acceptance_rows(config.acceptance, (folds or result).metrics, mean_of(folds)),
        waiting=input_starvation.waiting(judged, **thresholds),
        diagnostics=rows,
        changes=changes_to_try(rows, config.model_dump()) if failed else [],
        references=references,
        unplanned=unplanned(ctx.planning.evidence.opened, ctx.planning.evidence.unsteady, result.opened),
        **without_none(untaught=without or None, boosting=boosting_ahead(config, references), lacking=lacking),
    )
    pages = [row.page for row in rows] if failed else []
    inputs = [*run_inputs(ctx, result), *fold_inputs(ctx, folds)]
    return Result(evidence, run_source(ctx, result), inputs, pages)


def run_source(ctx: Context, result: RunResult) -> Source:
    """Return the code identity that planning recorded, with the files that this run imported."""
    planned = ctx.planning.source
    found = _but_for_data(ctx, planned, result) if planned.dirty and ctx.task.is_opaque else planned
    # The probe's few steps do not reach every import: planning could not check whether these files are committed.
    later = {row.path for row in result.code_files} - {row.path for row in planned.files}
    if later and not found.dirty and source(ctx.project.root, result.code_files, _bound(ctx, result)).dirty:
        note = f"imported after planning's steps, and not committed: {', '.join(sorted(later))}"
        found = found.model_copy(update={"dirty": True, "note": note})
    return found.model_copy(update={"imported": result.code_files})


def _but_for_data(ctx: Context, planned: Source, result: RunResult) -> Source:
    """Return a code identity, clean where the only uncommitted files are data that the task opened after planning's steps."""
    now = source(ctx.project.root, planned.files, _bound(ctx, result))
    if now.dirty or now.commit != planned.commit:
        return planned
    return planned.model_copy(update=now.model_dump(include={"dirty", "diff_sha256", "untracked"}))


def _bound(ctx: Context, result: RunResult) -> list[str]:
    """Return the files that are bound by their digests: configs, and the data that a program read."""
    configs = map(ctx.project.relative, config_files(ctx.project, ctx.planning.evidence.template or BASELINE))
    return [*configs, *(row.path for row in result.read)]


def fold_inputs(ctx: Context, folds: Folds | None) -> list[InputRow]:
    """Return the files that bind the runs of the other folds."""
    # The first row is the run itself, whose files `run_inputs` binds.
    return [row for fold in folds.rows[1:] for row in _run_files(ctx, fold.run)] if folds else []


def run_inputs(ctx: Context, result: RunResult) -> list[InputRow]:
    """Return the files that bind a run to its phase's gate: result, chain, checkpoints, code, a program's data and outputs."""
    rows = _run_files(ctx, result.id)
    for checkpoint in result.checkpoints:
        rows += rows_with_role(checkpoint.files, "checkpoint")
    rows += [*rows_with_role(result.outputs, "checkpoint"), *rows_with_role(result.read, "data")]
    rows += rows_with_role(steady(ctx, result), "data")
    return rows + code_rows(result.code_files)


def _run_files(ctx: Context, run: str) -> list[InputRow]:
    """Return the rows of a run's result and of its chain."""
    return [file_row(ctx.project, ctx.project.runs_dir / run / name, "run") for name in (RESULT_FILE, CHAIN_FILE)]
