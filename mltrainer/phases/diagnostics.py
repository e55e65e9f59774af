"""Diagnostics: every rule of the handbook on the recorded baseline, and a recommendation."""

from __future__ import annotations

from mltrainer.diagnostics.rules import RULES, acceptance_rows, assess, changes_to_try, findings, not_fired, recommend
from mltrainer.diagnostics.signals import Run
from mltrainer.phases.context import Context, Result
from mltrainer.phases.folds import mean_of
from mltrainer.records.diagnostics import Diagnostics
from mltrainer.reports.views import mistakes_of
from mltrainer.workspace import without_none


def run(ctx: Context) -> Result:
    """Analyse the baseline's record; nothing is trained and no data is read."""
    baseline, config = ctx.baseline.evidence, ctx.planned_config()
    run, folds = baseline.run, baseline.folds
    judged = Run(run, baseline.references)
    rows = findings(judged, config.model_dump(), ctx.project.root)
    assessment, warnings = assess(rows, judged), not_fired(ctx.planning.evidence.data.warnings, rows)
    metrics = (folds or run).metrics
    acceptance = acceptance_rows(config.acceptance, metrics, mean_of(folds))
    recommendation, reasons = recommend(rows, acceptance, assessment, judged.beaten_by, warnings)
    claimed = ctx.planning.evidence.claim
    evidence = Diagnostics(
        run_id=run.id,
        evaluations=len(run.history),
        layers=len(run.layers),
        numerics=run.numerics,
        metrics=metrics,
        diagnostics=rows,
        expected_diagnostics=sorted(RULES),
        assessment=assessment,
        acceptance=acceptance,
        recommendation=recommendation,
        reasons=reasons,
        changes=changes_to_try(rows, config.model_dump()),
        errors=run.errors,
        mistakes=mistakes_of(run.task_evaluation),
        **without_none(
            program=run.program, boosting=baseline.boosting, warnings=warnings or None, claim=claimed and claimed.hypothesis
        ),
    )
    return Result(evidence, ctx.baseline.source, [], [row.page for row in rows])
