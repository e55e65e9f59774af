"""Constant predictions: one answer for every sample (page: `diagnostics/constant_predictions.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, number, percent, ratio, text
from mltrainer.records.partial import partial
from mltrainer.records.run import OutputSeen, Seen, TargetSeen

ID = "constant_predictions"
FIGURES = ("metric.svg", "learning_curves.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where a model that has not learned answered alike at the end, though its targets differ."""
    least = thresholds["steps"]
    if number(run.result.steps) < least:
        return Finding(ID, "not_applicable", f"The run took fewer than {least:g} steps, in which a model has hardly begun.")
    answer = _observed(run) or _confused(run)
    if answer is None:
        return Finding(ID, "not_applicable", "The run recorded neither outputs nor a confusion matrix.")
    evidence: dict[str, Any] = {**answer, "skill": run.reached_skill}
    alike = _is_alike(evidence, thresholds)
    fired = alike and not run.learned(thresholds["learned_skill"])
    skill = f"the skill is {text(run.reached_skill)}"
    if fired:
        evidence["since_step"] = _since(run, thresholds)
    return judged(ID, fired, f"{_sentence(evidence)}; {skill}.", evidence, FIGURES)


def _is_alike(answer: Mapping[str, float], thresholds: Mapping[str, float]) -> bool:
    """Return True if the answers hardly differ; nearly identical targets excuse identical classes, not a small spread."""
    same, rare, spread = thresholds["same_answer"], thresholds["same_target"], thresholds["spread"]
    return (answer["same_answer"] >= same and answer["same_target"] < rare) or answer["spread"] < spread


def _observed(run: Run) -> dict[str, float] | None:
    return _answer(run.seen[-1][1].validation) if run.seen else None


def _answer(seen: Seen) -> dict[str, float] | None:
    """Return the shares of the most frequent answer and target, or of numbers the relative spread; None where unknown."""
    output, target = seen.output or partial(OutputSeen, {}), seen.target or partial(TargetSeen, {})
    if target.classes is not None:
        answer = _alike(number(output.top), number(target.top))
    else:
        answer = _alike(spread=ratio(number(output.spread), number(target.spread)))
    return answer if finite(answer.values()) else None


def _confused(run: Run) -> dict[str, float] | None:
    """Return the same from the confusion matrix of the best evaluation, which records of earlier versions have."""
    counts = run.class_counts
    if not sum(counts):
        return None
    answered = [sum(column) for column in zip(*run.confusion, strict=True)]
    return _alike(max(answered) / sum(counts), run.chance)


def _alike(same_answer: float = math.nan, same_target: float = math.nan, spread: float = math.nan) -> dict[str, float]:
    return {"same_answer": same_answer, "same_target": same_target, "spread": spread}


def _since(run: Run, thresholds: Mapping[str, float]) -> int | None:
    """Return the step of the first of the observations since which answers are alike."""
    since = None
    for row, signals in reversed(run.seen):
        answer = _answer(signals.validation)
        if answer is None or not _is_alike(answer, thresholds):
            break
        since = row.step
    return since


def _sentence(answer: Mapping[str, Any]) -> str:
    if math.isnan(answer["spread"]):
        whole = f"The most frequent answer was given to {percent(answer['same_answer'])} of the validation samples"
        return f"{whole}, of which the most frequent class has {percent(answer['same_target'])}"
    return f"The outputs spread over {percent(answer['spread'])} of the spread of the targets"
