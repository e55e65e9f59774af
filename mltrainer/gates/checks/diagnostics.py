"""The items of diagnostics: every diagnostic was evaluated, with a reason, and a recommendation follows."""

from __future__ import annotations

from collections.abc import Sequence

from mltrainer.configs.items import CurvesSettings
from mltrainer.gates.check import RUN_DIAGNOSTICS, RUN_PLANNING, Outcome, check, when
from mltrainer.gates.checks.training import change_to_try
from mltrainer.records.diagnostics import Diagnosis, Diagnostics
from mltrainer.records.envelope import Envelope
from mltrainer.records.run import WITHOUT_STEPS

TRAIN_LONGER = f"evaluate more often or train longer, then {RUN_PLANNING}"


@check(Diagnostics)
def curves_analysed(record: Envelope[Diagnostics], settings: CurvesSettings) -> Outcome:
    """The learning curves have enough points to be judged, and were."""
    rows, program = record.evidence.evaluation_count, record.evidence.program
    if program is not None and program.evaluations < settings.min_evaluations:
        rule = f"the program does not offer it: it wrote {program.evaluations} evaluations"
        return Outcome("not_applicable", {"rule": rule, "evaluations": program.evaluations})
    judged = rows >= settings.min_evaluations and bool(record.evidence.assessment.curves)
    return when(judged, {"evaluations": rows}, TRAIN_LONGER)


@check(Diagnostics)
def fit_assessed(record: Envelope[Diagnostics]) -> Outcome:
    """Over- and underfitting were judged from the measured curves."""
    evidence = record.evidence
    fit, critical = evidence.assessment.fit, critical_fired(evidence.diagnostics)
    if evidence.program is not None and fit == "unknown" and not critical:
        rule = "the program does not offer it: that needs loss and train_loss among its metrics"
        return Outcome("not_applicable", {"rule": rule, "fit": fit})
    hint = f"fix the critical diagnostics first ({', '.join(critical)}), then {RUN_PLANNING}" if critical else TRAIN_LONGER
    return when(fit in ("good", "overfitting", "underfitting"), {"fit": fit}, hint)


@check(Diagnostics)
def gradients_checked(record: Envelope[Diagnostics]) -> Outcome:
    """Gradient norms of every layer were recorded and judged."""
    if record.evidence.program is not None and record.evidence.program.left is not None:
        return Outcome("not_applicable", {"rule": WITHOUT_STEPS})
    health = record.evidence.assessment.gradients
    evidence = {"gradients": health, "layers": record.evidence.layer_count}
    hint = f"give the model a weight that is trained, then {RUN_PLANNING}"
    return when(health in ("healthy", "exploding", "vanishing"), evidence, hint)


@check(Diagnostics)
def triggers_evaluated(record: Envelope[Diagnostics]) -> Outcome:
    """Every diagnostic of the handbook was evaluated on the record, with a reason."""
    rows = record.evidence.diagnostics
    missing = not_evaluated(rows, record.evidence.expected_diagnostics)
    evidence = {"evaluated": len(with_reason(rows)), "fired": fired(rows), "missing": missing}
    hint = f"fix your own page of the missing diagnostic, then {RUN_DIAGNOSTICS}"
    return when(bool(rows) and not missing, evidence, hint)


def with_reason(rows: Sequence[Diagnosis]) -> dict[str, str]:
    """Return the state of each diagnostic that gives a reason for it."""
    return {row.id: row.state for row in rows if row.reason}


def not_evaluated(rows: Sequence[Diagnosis], expected: Sequence[str]) -> list[str]:
    """Return the diagnostics of the handbook without a result."""
    return [name for name in expected if name not in with_reason(rows)]


def fired(rows: Sequence[Diagnosis]) -> list[str]:
    """Return the diagnostics that fired, by name."""
    return sorted(name for name, state in with_reason(rows).items() if state == "fired")


def critical_fired(rows: Sequence[Diagnosis]) -> list[str]:
    """Return the diagnostics that fired and mean that the run is faulty."""
    return [row.id for row in rows if row.state == "fired" and row.severity == "critical"]


@check(Diagnostics)
def recommendation_given(record: Envelope[Diagnostics]) -> Outcome:
    """The recommendation is to deploy or to optimize; `debug` sends the project back to planning."""
    recommendation = record.evidence.recommendation
    evidence = {"recommendation": recommendation, "reasons": record.evidence.reasons}
    named = f"fix the faults that the report names (mltrainer diagnose), then {RUN_PLANNING}"
    hint = change_to_try(record.phase, record.evidence.changes) or named
    return when(recommendation in ("deploy", "optimize"), evidence, hint)
