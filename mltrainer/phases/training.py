"""The run that a phase needs: returned at once when it exists, resumed when it was interrupted, else trained now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.follow.alerts import Alerts
from mltrainer.phases.context import Context
from mltrainer.phases.side_by_side import prepare
from mltrainer.records.job import TrainingJob
from mltrainer.records.run import RunResult
from mltrainer.reproducibility.evidence import has_ended, set_aside
from mltrainer.runs.contract import JOB_FILE, contract_of, existing_result, keeps, left_behind, run_id
from mltrainer.runs.exporting import MANAGER
from mltrainer.runs.forgetting import earlier_runs
from mltrainer.runs.references import TOOL as REFERENCES
from mltrainer.runs.references import is_compared
from mltrainer.workspace import read_if_whole, without_none


def train(ctx: Context, config: TrainingConfig, parent: str | None = None, formats: Sequence[str] | None = None) -> RunResult:
    """Return the result of the run that a config determines: found, resumed, or trained now.

    Args:
        ctx: The phase's context.
        config: The run's config.
        parent: The id of the run that it follows; None where it follows none.
        formats: The formats of the export after it; None where there is none.

    Raises:
        MltrainerError: Training was refused, failed or was stopped.
    """
    _require_checkpoints(ctx)
    contract = contract_of(ctx.earlier["planning"], config, ctx.project.root)
    run = run_id(contract)
    folder = ctx.project.runs_dir / run
    # An existing folder is of this very run, which is returned or resumed: other runs are no news then.
    if not folder.exists():
        for line in left_behind(ctx.project, ctx.page.phase, contract, config):
            ctx.note(line)
    known = existing_result(ctx.project, run, contract)
    if known is not None and ("checkpoints" not in ctx.trainer.capabilities or keeps(known, config)):
        ctx.note(f"run {run} exists and verifies: not trained again")
        # Another phase may have trained it: with the planned config as the final one, the run is the baseline's.
        return known.model_copy(update={"phase": ctx.page.phase})
    if has_ended(folder):
        # Kept, not removed: if it was tested, that was an opening of the test split.
        ctx.note(f"run {run} has changed on disk: kept as {set_aside(folder).name}, and trained again")
    alerts = Alerts(folder, ctx.project.root, config.model_dump(), ctx.tell)
    job = TrainingJob(
        run=run,
        phase=ctx.page.phase,
        purpose="train",
        folder=ctx.project.relative(folder),
        config=ctx.with_workers(config),
        gate=ctx.previous,
        contract=contract,
        code_files=ctx.planning.source.files,
        parent=parent,
        threads=config.threads,
        **without_none(claim=_claim(ctx, folder), earlier=earlier_runs(ctx.project, contract, config) or None),
        **ctx.planned_data(),
    )
    tools = [*([REFERENCES] if is_compared(config) else []), *([] if formats is None else [MANAGER])]
    prepare(ctx, job.config, ctx.planning.evidence.estimate.peak_mb or 0, tools, formats or ())
    return ctx.trainer_reporting_to(alerts).run(job)


def _claim(ctx: Context, folder: Path) -> str | None:
    """Return the seal of the claim that a run is trained under: of a run that goes on, the one that it began under."""
    if begun := read_if_whole(folder / JOB_FILE):
        seal: str | None = begun.get("claim")
        return seal
    planned = ctx.planning.evidence.claim
    return planned.claim.seal if planned is not None and not planned.removed else None


def _require_checkpoints(ctx: Context) -> None:
    if ctx.page.phase == "finalization" and "checkpoints" not in ctx.trainer.capabilities and not ctx.task.is_opaque:
        hint = "name training_orchestrator on the pages of planning, baseline and finalization"
        raise InputError(f"{ctx.page.tool} keeps no checkpoints, and a final model is exported from one", hint=hint)
