"""Changes that may cure a case, each trained and judged as `mltrainer diagnose --try` does with a run of a project."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.configs.components import Swap
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import baseline_template
from mltrainer.diagnostics.remedies import Outcome, candidates, ranked, symptoms_of, verdict
from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.search.study import outcome
from mltrainer.search.trial import Trained
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import config_of, train_config


@dataclass(frozen=True)
class Tried:
    """A change, the verdict on it and why, and the metric with it; None for all where nothing was tried."""

    change: str | None
    verdict: Any
    because: str | None
    value: float


def tried(case: Case, seed: int, result: Mapping[str, Any]) -> dict[str, Any]:
    """Train what may cure a case's run.

    Args:
        case: Whose cause lies in its config.
        seed: Of the run.
        result: The run's.

    Returns:
        The diagnostics that `fired`, how many changes were `trained`, and of the best one `change`, `verdict` and `because`, None
        where nothing was tried.
    """
    config = config_of(case, seed, case.task())
    rows = diagnose(Run.of(result), None)
    symptoms = symptoms_of(rows)
    asked, _ = candidates(rows, config, baseline_template(None))
    before = _shown(config, result)
    judged = []
    for one in asked:
        after = _shown(config, train_config(Swap(one.name, one.changes).applied(config), case.task()))
        word, why = verdict(before, after, symptoms, config.metric.mode)
        judged.append(Tried(one.name, word, why, after.value))
    best = next(iter(ranked(judged, config.metric.mode)), Tried(None, None, None, math.nan))
    return {"case": case.id, "seed": seed, "fired": symptoms, "trained": len(judged), **vars(best)}


def _shown(config: TrainingConfig, result: Mapping[str, Any]) -> Outcome:
    run = Run.of(result)
    trained = Trained("diagnostics", run.result.metrics, result=run.result)
    return Outcome.of(diagnose(run, None), run, outcome(trained, config.metric).value)
