"""The items of optimization: the search is whole, its winner repeats, and it wins on seeds that did not choose it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mltrainer.configs.items import ImprovementSettings
from mltrainer.configs.project import Task, meets
from mltrainer.gates.check import RUN_OPTIMIZATION, Outcome, check, recorded, when
from mltrainer.gates.statistics import (
    effect_size,
    improvements,
    interval,
    is_better,
    level_at,
    seeds_needed,
    sign_flip_p_value,
)
from mltrainer.records.optimization import Comparison, Searched, Skipped, Trained
from mltrainer.records.pareto import best_trial
from mltrainer.records.run import WITHOUT_STEPS

if TYPE_CHECKING:  # to name it at run time would build a model for each of the two
    from mltrainer.records.envelope import Envelope

    Search = Envelope[Searched] | Envelope[Skipped]

SEARCH_MORE = f"widen the space or raise the trials in configs/tuning_template.yaml, then {RUN_OPTIMIZATION}"


def _skipped(evidence: Skipped) -> Outcome:
    """Return the outcome of a phase that was skipped because the acceptance criterion is met, as recomputed here."""
    rows = evidence.acceptance
    # A value that was not measured becomes nan, which compares false with every criterion; no rows would meet them all.
    if rows and all(meets(float(row.value if row.value is not None else "nan"), row.criterion) for row in rows):
        return Outcome("not_applicable", {"rule": evidence.rule})
    return Outcome("fail", {"rule": evidence.rule, "acceptance": [recorded(row) for row in rows]}, RUN_OPTIMIZATION)


@check(Searched, Skipped)
def tuning_finished(record: Search) -> Outcome:
    """Every planned trial ran, and none is missing from the count."""
    evidence = record.evidence
    if isinstance(evidence, Skipped):
        return _skipped(evidence)
    done = sum(trial.state == "finished" for trial in evidence.trials)
    # By numbers: in a mere count, a repeated trial would hide a missing one.
    counted = [trial.nr for trial in evidence.trials] == list(range(1, evidence.planned_trials + 1))
    shown = {"trials": len(evidence.trials), "finished": done, "planned": evidence.planned_trials}
    return when(done > 0 and counted, shown, RUN_OPTIMIZATION)


@check(Searched, Skipped)
def best_config_identified(record: Search) -> Outcome:
    """The best trial is the best of the recorded values, and trained again it gave the same bits."""
    evidence = record.evidence
    if isinstance(evidence, Skipped):
        return _skipped(evidence)
    # Chosen again from the rows: the record's own word for the best could name any trial.
    best = best_trial(evidence.trials, evidence.metric.mode, evidence.constraints, evidence.objectives)
    holds = best is not None and best.nr == evidence.best and evidence.replay.identical
    shown = {"best": evidence.best, "value": best.value if best else None, "replayed": evidence.replay.identical}
    run = evidence.replay.run
    more = f"loosen the constraints that no trial meets, or {SEARCH_MORE}" if evidence.constraints else SEARCH_MORE
    return when(holds, shown, f"find the cause with `mltrainer reproduce {run}`, then {RUN_OPTIMIZATION}" if run else more)


@check(Searched, Skipped)
def improvement_validated(record: Search, settings: ImprovementSettings) -> Outcome:
    """Over fresh seeds at equal budget the candidate beats the baseline by an exact sign-flip test."""
    evidence = record.evidence
    if isinstance(evidence, Skipped):
        return _skipped(evidence)
    comparison = evidence.comparison
    if not comparison.seeds and _takes_no_seed(evidence):
        rule = "the program does not offer it: it takes no {seed} (task.script), so nothing is promoted"
        return Outcome("not_applicable", {"rule": rule, "promoted": evidence.promoted})
    level = level_at(comparison.number, settings.level)
    differences = improvements(comparison.candidate, comparison.baseline, evidence.metric.mode)
    shown = {
        **_shown(differences, level),
        "seeds": len(differences),
        "promoted": evidence.promoted,
        **_counted(comparison, level),
        **_budget(comparison),
    }
    # A repeated seed gives one difference twice, and the exact test takes its pairs for independent.
    fresh = len(set(comparison.seeds)) == len(comparison.candidate)
    sound = fresh and _is_counted(comparison) and _is_fair(comparison)
    if not sound:
        return Outcome("fail", shown, RUN_OPTIMIZATION)
    better = is_better(differences, settings.seeds, level)
    if better:
        return Outcome("pass", shown)
    from mltrainer.reports.advice import next_search  # only who has to search again waits for it

    return Outcome("fail", shown, next_search(evidence))


def _counted(comparison: Comparison, level: float) -> dict[str, Any]:
    """Return the comparison's number among those with the plan's baseline, and its test level; empty where it has no number."""
    return {"comparison": comparison.number, "level": level} if comparison.number is not None else {}


def _is_counted(comparison: Comparison) -> bool:
    """Return True if the comparison's number exceeds those and the count of earlier ones; vacuously true without a number."""
    # A smaller number spends more of the level: it must not be below the earlier count.
    return comparison.number is None or comparison.number > max(
        [len(comparison.earlier), *(e.number for e in comparison.earlier)]
    )


def _budget(comparison: Comparison) -> dict[str, Any]:
    """Return the training budget of each side: its epoch limit, and the steps and samples of all its runs."""
    sides = comparison.budget.items()
    return {"budget": {name: _trained(side) for name, side in sides}} if sides else {}


def _trained(side: Trained) -> dict[str, Any]:
    samples = [count for count in side.samples if count is not None]
    known = len(samples) == len(side.samples)
    steps = sum(side.steps) or f"not applicable: {WITHOUT_STEPS}"  # whoever trains makes one
    return {"epochs": side.epochs, "steps": steps, "samples": sum(samples) if known else None}


def _is_fair(comparison: Comparison) -> bool:
    """Return True if the candidate's epoch limit is at most the baseline's, or none was counted for either side."""
    if not comparison.budget:
        return True
    base, new = comparison.budget.get("baseline"), comparison.budget.get("candidate")
    if base is None or new is None:
        return False
    if base.epochs is None or new.epochs is None:  # of a program, which alone knows
        return base.epochs is new.epochs
    # A candidate that trains longer may win by that alone.
    return new.epochs <= base.epochs


def _takes_no_seed(evidence: Searched) -> bool:
    """Return True if the baseline stays because its task takes no seed: runs under other seeds would be equal."""
    return not Task.model_validate(evidence.config["task"]).is_seeded and evidence.promoted == "baseline"


def _shown(differences: list[float], level: float) -> dict[str, Any]:
    """Return mean improvement, confidence interval, effect size, seeds needed and p-value; only the p-value decides."""
    ends, effect = interval(differences, level), effect_size(differences)
    return {
        "mean_improvement": _rounded(math.fsum(differences) / len(differences)) if differences else None,
        "interval": [_rounded(end) for end in ends] if ends else None,
        "effect_size": _rounded(effect) if effect is not None else None,
        "seeds_needed": seeds_needed(effect, level),
        "p_value": sign_flip_p_value(differences) if differences else None,
    }


def _rounded(value: float) -> float:
    return round(value, 6) + 0.0  # 0.0, not -0.0
