"""Diagnostics: every rule of the handbook on the recorded baseline, and a recommendation."""

from __future__ import annotations

from typing import Any

from mltrainer.diagnostics.rules import RULES, acceptance_rows, assess, changes_to_try, findings, recommend
from mltrainer.diagnostics.signals import Run
from mltrainer.phases.context import Context, Result
from mltrainer.phases.folds import mean_of, metrics_of
from mltrainer.records.common import dumped
from mltrainer.records.run import TaskEvaluation
from mltrainer.reports.views import MAX_MISTAKES, confused


def run(ctx: Context) -> Result:
    """Analyse the baseline's record; nothing is trained and no data is read."""
    baseline, run, config = ctx.earlier["baseline"], ctx.baseline.evidence.run, ctx.planned_config()
    judged = Run(run, ctx.baseline.evidence.references)
    rows = findings(judged, config.model_dump(), ctx.project.root)
    assessment = assess(rows, judged)
    metrics = metrics_of(baseline.evidence)
    acceptance = acceptance_rows(config.acceptance, metrics, mean_of(baseline.evidence.get("folds")))
    recommendation, reasons = recommend(rows, acceptance, assessment, judged.beaten_by)
    evidence = {
        "run_id": run.id,
        "evaluations": len(run.history),
        "layers": len(run.layers),
        "numerics": run.numerics,
        "metrics": metrics,
        "diagnostics": dumped(rows),
        "expected_diagnostics": sorted(RULES),
        "assessment": assessment.model_dump(),
        "acceptance": dumped(acceptance),
        "recommendation": recommendation,
        "reasons": reasons,
        "changes": dumped(changes_to_try(rows, config.model_dump())),
        "errors": baseline.evidence["run"].get("errors"),
        "mistakes": mistakes_of(run.task_evaluation),
        **({"program": baseline.evidence["run"]["program"]} if run.program else {}),
    }
    return Result(evidence, baseline.data["source"], [], [row.page for row in rows])


def mistakes_of(found: TaskEvaluation) -> list[dict[str, Any]] | None:
    """Return the most frequent mistakes of a classifier; None of another model."""
    if found.kind != "classification" or not found.confusion:
        return None
    pairs = confused(found)[:MAX_MISTAKES]
    return [{"true": true, "predicted": taken, "samples": count} for true, taken, count in pairs]
