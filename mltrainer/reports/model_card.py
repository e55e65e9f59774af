"""The model card's content beside its record: the metrics' names, the weakest class, and the front matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mltrainer.configs.loading import at
from mltrainer.records.finalization import Finalization
from mltrainer.records.run import TaskEvaluation
from mltrainer.reports.values import finite
from mltrainer.reports.views import confused

PIPELINES = {
    "image_classification": "image-classification",
    "tabular_classification": "tabular-classification",
    "tabular_regression": "tabular-regression",
    "text_classification": "text-classification",
    "text_generation": "text-generation",
}


def card(evidence: Finalization) -> dict[str, Any]:
    """Return the model card's names beside the record."""
    run, tested = evidence.run, evidence.test.metrics
    validated = run.best.validation if run.best else {}
    names = dict.fromkeys([run.metric.name, *sorted({*tested, *validated})])
    found = run.task_evaluation
    wrong = confused(found) if found.kind == "classification" else []
    return {
        "kind": str(at(evidence.config, "task.kind") or "").replace("_", " "),
        "metrics": [name for name in names if name in tested or name in validated],
        "weakest": _weakest(found),
        "mistake": wrong[0] if wrong else None,
    }


def _weakest(found: TaskEvaluation) -> dict[str, Any] | None:
    if found.kind != "classification":
        return None
    recall = [(row[nr] / sum(row), str(found.labels[nr])) for nr, row in enumerate(found.confusion) if sum(row)]
    return dict(zip(("recall", "name"), min(recall), strict=True)) if recall else None


def front_matter(project: str, evidence: Finalization, quoted: Callable[[object], str]) -> list[str]:
    """Return the lines of the model card's front matter; `quoted` writes a text as a YAML scalar."""
    pipeline = PIPELINES.get(str(at(evidence.config, "task.kind")))
    metrics = [(key, value) for key, value in sorted(evidence.test.metrics.items()) if finite(value)]
    lines = ["library_name: pytorch", *([f"pipeline_tag: {pipeline}"] if pipeline else []), "tags:", "- pytorch", "- mltrainer"]
    if not metrics:
        return lines
    source = quoted(at(evidence.config, "data.source", "the task's own data"))
    lines += ["model-index:", f"- name: {quoted(project)}", "  results:", "  - task:"]
    lines += [f"      type: {pipeline or 'other'}", "    dataset:", f"      name: {source}", f"      type: {source}"]
    lines += ["      split: test", "    metrics:"]
    for key, value in metrics:
        lines += [f"    - type: {quoted(key)}", f"      value: {json.dumps(float(f'{value:.6g}'))}"]
    return lines
