"""Diagnostics: every rule of the handbook on the recorded baseline, and a recommendation."""

from __future__ import annotations

from mltrainer.diagnostics.rules import RULES, acceptance_rows, assess, beside, changes_to_try, diagnose, fitting, recommend
from mltrainer.diagnostics.signals import Run
from mltrainer.phases.context import Context, Result
from mltrainer.phases.folds import mean_of, metrics_of


def run(ctx: Context) -> Result:
    """Analyse the baseline's record; nothing is trained and no data is read."""
    baseline = ctx.earlier["baseline"]
    result = baseline["evidence"]["run"]
    config = ctx.planned_config()
    judged = beside(result, baseline["evidence"].get("references"))
    rows = fitting(diagnose(judged, ctx.project.root), config.model_dump())
    assessment = assess(rows, judged)
    metrics = metrics_of(baseline["evidence"])
    acceptance = acceptance_rows(config.acceptance, metrics, mean_of(baseline["evidence"].get("folds")))
    recommendation, reasons = recommend(rows, acceptance, assessment, Run(judged).beaten_by)
    evidence = {
        "run_id": result["id"],
        "evaluations": len(result["history"]),
        "layers": len(result["layers"]),
        "numerics": result["numerics"],
        "metrics": metrics,
        "diagnostics": rows,
        "expected_diagnostics": sorted(RULES),
        "assessment": assessment,
        "acceptance": acceptance,
        "recommendation": recommendation,
        "reasons": reasons,
        "changes": changes_to_try(rows, config.model_dump()),
    }
    return Result(evidence, baseline["source"], [], [row["page"] for row in rows])
