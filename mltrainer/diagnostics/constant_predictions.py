"""Constant predictions: one answer for every sample (page: `diagnostics/constant_predictions.md`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from mltrainer.diagnostics.signals import NO_TARGETS, Finding, Run, finite, judged, number, percent, ratio, text
from mltrainer.records.partial import partial
from mltrainer.records.run import OutputSeen, Seen, TargetSeen

FIGURES = ("metric.svg", "learning_curves.svg")


def find(run: Run, *, same_answer: float, same_target: float, spread: float, learned_skill: float) -> Finding:
    """Fire where a model that has not learned answered alike when its answers were seen last, though its targets differ."""
    if run.has_no_targets:
        return Finding("not_applicable", NO_TARGETS)
    latest = _latest(run)
    if latest is None:
        return Finding("not_applicable", "The run recorded neither outputs nor a confusion matrix.")
    answer, when = latest

    def is_alike(answer: _Answer) -> bool:
        """Return True if the answers hardly differ; nearly identical targets excuse identical classes, not a small spread."""
        return (answer.same_answer >= same_answer and answer.same_target < same_target) or answer.spread < spread

    # The end may be constant where the best evaluation, whose checkpoint is kept, was not.
    fired = is_alike(answer) and not run.learned(learned_skill) and not run.shows_no_signal
    evidence = {**answer._asdict(), "skill": run.reached_skill}
    hint = "; no plain model is better than a constant answer" if run.shows_no_signal else ""
    reason = f"{when} {_sentence(answer)}; the skill is {text(run.reached_skill)}{hint}."
    return judged(fired, reason, evidence, FIGURES, since_step=_since(run, is_alike))


class _Answer(NamedTuple):
    """The shares of the most frequent answer and target, or for numbers the relative spread; NaN if unknown."""

    same_answer: float = math.nan
    same_target: float = math.nan
    spread: float = math.nan


def _latest(run: Run) -> tuple[_Answer, str] | None:
    """Return the latest answers that the run recorded, and words for when it gave them; None without any.

    A run observes some evaluations, so that one that ends early may have been observed at its beginning alone; the confusion
    matrix is that of the best evaluation, over all samples.
    """
    best = -1 if run.best_row is None else run.best_row
    observed = max((place for place, row in enumerate(run.history) if row.signals is not None), default=-1)
    seen = _answer(run.seen[-1][1].validation) if run.seen else None
    confused = _confused(run)
    if seen is not None and (confused is None or observed > best):
        return seen, f"When its answers were seen last, in epoch {run.epochs[observed]:g},"
    when = f", in epoch {run.epochs[best]:g}," if best >= 0 else ""
    return None if confused is None else (confused, f"At the best evaluation{when}")


def _answer(seen: Seen) -> _Answer | None:
    output, target = seen.output or partial(OutputSeen, {}), seen.target or partial(TargetSeen, {})
    if target.classes is not None:
        answer = _Answer(number(output.top), number(target.top))
    else:
        answer = _Answer(spread=ratio(number(output.spread), number(target.spread)))
    return answer if finite(answer) else None


def _confused(run: Run) -> _Answer | None:
    """Return the same from the confusion matrix of the best evaluation."""
    counts = run.class_counts
    if not sum(counts):
        return None
    answered = [sum(column) for column in zip(*run.confusion, strict=True)]
    return _Answer(max(answered) / sum(counts), run.chance)


def _since(run: Run, is_alike: Callable[[_Answer], bool]) -> int | None:
    """Return the step of the first of the observations since which answers are alike."""
    since = None
    for row, signals in reversed(run.seen):
        answer = _answer(signals.validation)
        if answer is None or not is_alike(answer):
            break
        since = row.step
    return since


def _sentence(answer: _Answer) -> str:
    if math.isnan(answer.spread):
        whole = f"the most frequent answer was given to {percent(answer.same_answer)} of the validation samples"
        return f"{whole}, of which the most frequent class has {percent(answer.same_target)}"
    return f"the outputs spread over {percent(answer.spread)} of the spread of the targets"
