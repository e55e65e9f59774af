"""Changes that may cure a case, each trained and judged as `mltrainer diagnose --try` does with a run of a project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.configs.components import Swap
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import baseline_template
from mltrainer.diagnostics.remedies import Outcome, candidates, ranked, symptoms_of, verdict
from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.search.study import outcome
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import config_of, train_config


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
        judged.append({"change": one.name, "verdict": word, "because": why, "value": after.value})
    best = next(iter(ranked(judged, config.metric.mode)), {"change": None, "verdict": None, "because": None})
    return {"case": case.id, "seed": seed, "fired": symptoms, "trained": len(judged), **best}


def _shown(config: TrainingConfig, result: Mapping[str, Any]) -> Outcome:
    run = Run.of(result)
    return Outcome.of(diagnose(run, None), run, outcome(dict(result), config.metric)["value"])
