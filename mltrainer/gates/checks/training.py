"""The items of a run, the baseline's and the final one's: it ended by itself, with finite numbers and checkpoints, in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mltrainer.configs.items import CheckpointSettings, UtilizationSettings
from mltrainer.configs.loading import as_typed
from mltrainer.diagnostics.nan_loss import line_fix, located_text
from mltrainer.gates.check import RUN_PLANNING, Outcome, check, recorded, when
from mltrainer.observe.file_rows import unbound
from mltrainer.records.baseline import Baseline, Folds
from mltrainer.records.diagnostics import Change
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.run import WITHOUT_STEPS, NonFinite, Run

NO_STEPS = f"not applicable: {WITHOUT_STEPS}"


@check(Finalization, item="training_finished")
@check(Baseline)
def finished(record: Envelope[Baseline] | Envelope[Finalization]) -> Outcome:
    """Training ended by itself: all epochs, or early stopping; its history and its chain are complete."""
    run = record.evidence.run
    # The last step always is evaluated: a history that ends before it was cut off.
    last = len(run.history) if run.is_without_steps else run.steps
    complete = bool(run.history) and run.history[-1].step == last
    chained = run.chain.entries > 0 if run.is_without_steps else run.chain.entries >= run.steps > 0
    folds = record.evidence.folds if isinstance(record.evidence, Baseline) else None
    holds = run.state == "finished" and run.stop_reason in ("epochs", "early_stopping") and complete and chained
    shown = {"state": run.state, "stop_reason": run.stop_reason, **_course(run), **_counted(folds)}
    log = f"read the log in .mltrainer/runs/{run.id}/, fix the cause, then mltrainer phase run {record.phase}"
    if run.stop_reason == "budget":
        shown["stopped"] = f"by its time budget, after step {run.steps} of {run.planned_steps}; its checkpoint goes on"
        log = f"mltrainer phase run {record.phase} --set budget.minutes=MINUTES goes on to its end; or plan fewer epochs"
    hint = _after_spikes(run) or _fix_for(record) or log
    return when(holds and are_whole(folds), {**shown, **_finding(record)}, hint)


def _after_spikes(run: Run) -> str | None:
    if run.stop_reason != "spikes" or not run.skipped:
        return None
    look = f"look at the samples of the last spike (mltrainer rows {run.id} --step {run.skipped[-1].step})"
    return f"{look}, or take a smaller optimizer.lr or a larger spikes.most, then {RUN_PLANNING}"


def _course(run: Run) -> dict[str, Any]:
    if run.is_without_steps:
        return {"steps": NO_STEPS, "evaluations": len(run.history)}
    return {"steps": run.steps, "epochs": run.epochs}


def are_whole(folds: Folds | None) -> bool:
    """Return True if each fold was trained to its end, once; vacuously true without folds."""
    if folds is None:
        return True
    return len({row.fold for row in folds.rows}) == folds.count == sum(row.state == "finished" for row in folds.rows)


def _counted(folds: Folds | None) -> dict[str, Any]:
    return {"folds": folds.count, "unfinished": [r.run for r in folds.rows if r.state != "finished"]} if folds else {}


def _finding(record: Envelope[Baseline] | Envelope[Finalization]) -> dict[str, Any]:
    """Return the page and the reason of each diagnostic that fired on a run that did not end well."""
    if record.evidence.run.state != "failed":
        return {}
    fired = [row for row in record.evidence.diagnostics or [] if row.state == "fired"]
    return {row.id: f"{row.reason} (mltrainer guide {row.page.removesuffix('.md')})" for row in fired}


def _fix_for(record: Envelope[Baseline] | Envelope[Finalization]) -> str | None:
    """Return the fix for a run that did not end well: data that explains it, the line of code at fault, a suggested change."""
    located = record.evidence.run.nonfinite and record.evidence.run.nonfinite.located
    line, data = line_fix(located) if located else None, None
    if located and located.outlier:
        data = f"look at training sample {located.outlier.sample}, then {RUN_PLANNING}"
    elif any(row.id == "input_scale" and row.state == "fired" for row in record.evidence.diagnostics or []):
        data = f"scale the inputs (mltrainer guide diagnostics/input_scale), then {RUN_PLANNING}"
    change = change_to_try(record.phase, record.evidence.changes)
    return "; or ".join(filter(None, (data, line, change))) or None


def change_to_try(phase: str, changes: Sequence[Change] | None) -> str | None:
    """Return the command for the first change that a fired diagnostic suggests; None if there is none."""
    rerun = "finalization" if phase == "finalization" else "planning"
    return f"mltrainer phase run {rerun} {as_typed(changes[0].set)}" if changes else None


@check(Baseline)
def losses_finite(record: Envelope[Baseline]) -> Outcome:
    """No loss, metric or gradient norm was NaN or infinite in any step; steps that fp16 skipped are reported, not counted."""
    run = record.evidence.run
    measured = (
        value
        for row in run.history
        for value in (row.train_loss, row.grad_norm.max, *row.train.values(), *row.validation.values())
    )
    values = [value for value in measured if value is not None]  # where all steps of an interval were skipped, no norm is
    bad = sum(isinstance(value, str) for value in values)
    # fp16's scaler lowers its scale by skipping steps that overflow: they belong to its working and are no fault.
    skipped = sum(not isinstance(row.skipped, str) and row.skipped > 0 for row in run.history)
    bad = max(bad, int(run.nonfinite is not None))  # the step that ended the run is in no row of its history
    shown: dict[str, Any] = {"values": len(values), "not_finite": bad, "first": _first(run.nonfinite)}
    if run.is_without_steps:
        shown["losses_and_gradients"] = NO_STEPS
    if skipped:
        shown["evaluations_after_skipped_steps"] = skipped
    hint = _fix_for(record) or f"fix the cause by `mltrainer guide diagnostics/nan_loss`, then {RUN_PLANNING}"
    return when(bool(values) and bad == 0, shown, hint)


def _first(nonfinite: NonFinite | None) -> dict[str, Any] | None:
    """Return the first number that was not finite, with its origin as one sentence in place of all recorded details."""
    values = dict(recorded(nonfinite) or {})
    values.pop("located", None)
    return {**values, "where": located_text(nonfinite.located)} if nonfinite and nonfinite.located else values or None


@check(Baseline)
def checkpoints_verified(record: Envelope[Baseline], settings: CheckpointSettings) -> Outcome:
    """The best and the last checkpoint were read back and gave the recorded metric again; the best is of the described step."""
    run = record.evidence.run
    # A checkpoint that names no files was verified against nothing.
    roles = {role for row in run.checkpoints if row.verified and row.files for role in row.roles}
    saved = {"best": run.saved.save_best, "last": run.saved.save_last}
    wanted = {name for name, on in saved.items() if on or settings.demand == "both"}
    shown = {"verified": sorted(roles), "wanted": sorted(wanted), "checkpoints": len(run.checkpoints)}
    best, described = next((row.step for row in run.checkpoints if "best" in row.roles), None), run.best and run.best.step
    is_described = not settings.described or best is None or best == described
    shown |= {} if is_described else {"best_step": best, "described_step": described}
    return when(bool(wanted) and wanted <= roles and is_described, shown, f"mltrainer phase run {record.phase}")


@check(Baseline)
def inputs_planned(record: Envelope[Baseline]) -> Outcome:
    """Every file that the run opened was bound by planning, with the digest that it has.

    Files that a program opens only after planning's steps are bound by its baseline's own record.
    """
    evidence = record.evidence
    if evidence.run.program is not None:
        read = evidence.run.program.read
        missing = unbound(read, record.inputs)
        return when(not missing, {"opened": len(read), "unbound": missing}, f"mltrainer phase run {record.phase}")
    if evidence.unplanned is None:
        return Outcome("not_applicable", {"rule": "not observed: the opened files were not recorded"})
    shown = {"opened": len(evidence.run.opened or []), "unplanned": evidence.unplanned}
    return when(not evidence.unplanned, shown, RUN_PLANNING)  # which binds what the run opened, too


@check(Baseline)
def within_time_budget(record: Envelope[Baseline]) -> Outcome:
    """Training took no longer than the budget; the folds count together."""
    folds, budget = record.evidence.folds, record.evidence.budget_minutes
    minutes = (sum(row.wall_s for row in folds.rows) if folds else record.evidence.run.wall_s) / 60
    shown = {"minutes": minutes, "budget_minutes": budget}
    return when(minutes <= budget, shown, f"lower epochs or raise budget.minutes, then {RUN_PLANNING}")


@check(Baseline)
def gpu_utilization(record: Envelope[Baseline], settings: UtilizationSettings) -> Outcome:
    """The GPU was busy; on a CPU the item does not apply."""
    run = record.evidence.run
    if run.gpu is None and run.device == "cpu":
        return Outcome("not_applicable", {"rule": "no GPU: trained on the CPU"})
    busy = run.gpu.utilization if run.gpu else None
    shown = {"utilization": busy, "samples": run.gpu.samples if run.gpu else 0}
    hint = f"fix the cause by `mltrainer guide diagnostics/resource_inefficiency`, then {RUN_PLANNING}"
    return when(busy is not None and busy > settings.min_percent, shown, hint)
