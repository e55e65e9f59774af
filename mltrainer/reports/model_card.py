"""The model card, `final_model/README.md`: front matter as the Hugging Face Hub reads it, and what a user must know.

The card is one of the model's files, so it is written before the record that lists their digests is complete; it
shows nothing that depends on itself (Mitchell et al., 2019, Model Cards for Model Reporting).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from mltrainer.figures.content import confused, metric_name
from mltrainer.reports import markdown as md
from mltrainer.reports import sections
from mltrainer.reports.values import at, duration, finite, given, number, share, times, visible

PIPELINES = {
    "image_classification": "image-classification",
    "tabular_classification": "tabular-classification",
    "tabular_regression": "tabular-regression",
    "text_classification": "text-classification",
    "text_generation": "text-generation",
}


def model_card(record: sections.Record, waivers: sections.Waivers) -> str:
    """Return the model card's text.

    Args:
        record: The record of finalization; its seal and the digests of the model's files need not be there yet.
        waivers: The waivers that the reader must know of.
    """
    evidence = record["evidence"]
    return md.document(
        [
            _front_matter(record),
            f"# {md.text(at(record, 'project.name', 'unnamed'))}",
            _summary(evidence),
            *sections.banners(record, waivers, []),
            "## Results",
            *_results(evidence),
            "## How often it was looked at",
            _looks(evidence),
            "## Training",
            md.facts(_training(evidence)),
            "## Limits",
            md.bullets(_limits(evidence)),
            "## Files and formats",
            *_formats(evidence),
            "## Reproduction",
            md.facts(_origin(record)),
            md.block([f"mltrainer reproduce {at(evidence, 'run.id')}"], "sh"),
        ]
    )


# --- front matter -------------------------------------------------------------------------------


def _front_matter(record: sections.Record) -> str:
    name, evidence = at(record, "project.name", "unnamed"), record["evidence"]
    kind = at(evidence, "config.task.kind")
    pipeline = PIPELINES.get(str(kind))
    lines = [
        "library_name: pytorch",
        *([f"pipeline_tag: {pipeline}"] if pipeline else []),
        "tags:",
        "- pytorch",
        "- mltrainer",
        *_index(_quoted(name), pipeline or "other", evidence),
    ]
    return "\n".join(["---", *lines, "---"])


def _index(name: str, pipeline: str, evidence: dict[str, Any]) -> Iterable[str]:
    metrics = [(key, value) for key, value in sorted((at(evidence, "test.metrics") or {}).items()) if finite(value)]
    if not metrics:
        return
    source = _quoted(at(evidence, "config.data.source", "the task's own data"))
    yield from ("model-index:", f"- name: {name}", "  results:", "  - task:", f"      type: {pipeline}", "    dataset:")
    yield from (f"      name: {source}", f"      type: {source}", "      split: test", "    metrics:")
    for key, value in metrics:
        yield from (f"    - type: {_quoted(key)}", f"      value: {json.dumps(float(f'{value:.6g}'))}")


def _quoted(value: object) -> str:
    """Return text as a YAML scalar: a JSON string of visible characters is one; tags and templates are escaped."""
    return json.dumps(visible(value), ensure_ascii=False).replace("<", "\\u003c").replace("{", "\\u007b").replace("[", "\\u005b")


# --- text ---------------------------------------------------------------------------------------


def _summary(evidence: dict[str, Any]) -> str:
    config = evidence.get("config") or {}
    kind, use = at(config, "task.kind"), at(config, "task.use")
    task = md.text(str(kind).replace("_", " ")) if kind else md.code(use) if use else "task of its own"
    model = at(config, "model.name") or "the task's own model"
    target = at(config, "data.target")
    goal = f", predicting {md.code(target)}" if target else ""
    source = at(config, "data.source")
    data = md.code(source) if source else "the task's own data"
    size = f"{number(at(evidence, 'run.parameters'))} parameters"
    return f"{task} on {data}{goal}: {md.text(model)} with {size}."


def _results(evidence: dict[str, Any]) -> Iterable[str]:
    test = at(evidence, "test.metrics") or {}
    name = metric_name(evidence["run"])
    validation, train = at(evidence, "run.best.validation") or {}, at(evidence, "run.best.train") or {}
    names = [key for key in dict.fromkeys([name, *sorted({*test, *validation})]) if key in test or key in validation]
    rows = [(md.text(key), number(test.get(key), 5), number(validation.get(key), 5), number(train.get(key), 5)) for key in names]
    yield md.table(("metric", "test", "validation", "training"), rows, "lrrr")
    part = at(evidence, "run.measured_samples.train")
    if finite(part):
        whole = number(at(evidence, "run.train_samples"))
        yield f"Training metrics were measured on {number(part)} of the {whole} training samples."
    yield sections.acceptance_table(evidence.get("acceptance") or [])


def _looks(evidence: dict[str, Any]) -> str:
    openings = at(evidence, "test.openings") or []
    often = "once" if len(openings) == 1 else f"**{times(len(openings))}**"
    purposes = "; ".join(md.text(row.get("purpose", "")) for row in openings)
    why = f" ({purposes})" if purposes else ""
    opened = f"The test split ({number(at(evidence, 'test.samples'))} samples) was opened {often}{why}."
    if at(evidence, "test.sealed"):
        opened = f"The test split was not opened for this model, because {md.text(evidence['test']['sealed'])}."
    chosen = f"the one reported was chosen by its validation {md.text(metric_name(evidence['run']))}"
    return f"{opened} {number(evidence.get('runs_tried'))} runs were tried in all; {chosen}."


def _training(evidence: dict[str, Any]) -> list[tuple[str, str]]:
    run, config = evidence["run"], evidence.get("config") or {}
    return [
        ("run", f"{md.code(run.get('id'))}, best epoch {number(at(run, 'best.epoch'))} of {number(run.get('epochs'))}"),
        ("samples", f"{number(run.get('train_samples'))}, in batches of {number(run.get('batch_size'))}{_accumulated(config)}"),
        ("optimizer", _named(config.get("optimizer") or {})),
        ("schedule", _named(config.get("schedule") or {})),
        *(
            (key, f"{md.setting(config[key])}{_not_begun(run) if key == 'averaging' else ''}")
            for key in ("clip", "gradients", "averaging", "precision", "callbacks")
            if config.get(key)
        ),
        ("seed", given(run.get("seed"))),
        ("time", f"{duration(run.get('wall_s'))} on {md.text(run.get('device'))}"),
    ]


def _not_begun(run: dict[str, Any]) -> str:
    """Return that the best weights are no average, where theirs is an epoch before it began."""
    best = run.get("best")
    return ": not begun at the best epoch, whose weights are trained ones" if best and "trained" not in best else ""


def _named(chosen: dict[str, Any]) -> str:
    """Return what was chosen, its name first."""
    return md.setting({"name": chosen["name"], **chosen} if "name" in chosen else chosen)


def _accumulated(config: dict[str, Any]) -> str:
    micro = config.get("accumulate", 1)
    return "" if micro == 1 else f", {number(micro)} of them to a step"


def _limits(evidence: dict[str, Any]) -> list[str]:
    run = evidence["run"]
    found = [
        "Its metrics hold for data drawn like the data it was trained and tested on; nothing was measured outside of it.",
        f"They come from {number(at(evidence, 'test.samples'))} test samples and one split.",
    ]
    best, train = at(run, f"best.validation.{metric_name(run)}"), at(run, f"best.train.{metric_name(run)}")
    if finite(best) and finite(train):
        found.append(f"Training {md.text(metric_name(run))} is {number(train)} against {number(best)} on validation.")
    found += _weakest(run)
    found.append("No check of fairness across groups, of adversarial inputs or of drift was made.")
    return found


def _weakest(run: dict[str, Any]) -> list[str]:
    evaluation = run.get("evaluation") or {}
    if evaluation.get("kind") == "regression" and len(evaluation.get("residual_quantiles") or []) == 5:
        low, high = evaluation["residual_quantiles"][0], evaluation["residual_quantiles"][4]
        return [f"On validation, 90 % of the residuals lie between {number(low)} and {number(high)}."]
    if evaluation.get("kind") != "classification":
        return []
    recall = [(row[nr] / sum(row), str(evaluation["labels"][nr])) for nr, row in enumerate(evaluation["confusion"]) if sum(row)]
    worst = (
        f"Weakest class on validation: {md.text(min(recall)[1])}, {share(min(recall)[0])} of its samples recognised."
        if recall
        else ""
    )
    wrong = confused(evaluation)
    taken = (
        f"Most frequent mistake: {md.text(wrong[0][0])} taken for {md.text(wrong[0][1])} ({times(wrong[0][2])})." if wrong else ""
    )
    return [line for line in (worst, taken) if line]


def _formats(evidence: dict[str, Any]) -> Iterable[str]:
    rows = [
        (
            md.code(e.get("file")),
            md.text(e.get("format")),
            "yes" if e.get("agrees") is True else "no",
            number(e.get("relative_difference"), 3),
            given(e.get("tolerance")),
            number(e.get("samples")),
        )
        for e in evidence.get("exports") or []
        if e.get("state") == "written"
    ]
    heads: Sequence[str] = (
        "file",
        "format",
        "agrees with the trained model",
        "largest difference, relative",
        "tolerance",
        "on samples",
    )
    yield md.table(heads, rows, "lllrrr") if rows else "No exported format was written."
    yield "Compare the files with their checksums before use; loading `model.safetensors` or `model.onnx` runs no code."


def _origin(record: sections.Record) -> list[tuple[str, str]]:
    run, source = record["evidence"]["run"], record.get("source") or {}
    again = at(record, "evidence.reproduction.identical")
    digests = [(f"{name} digest", md.code(run.get(f"{name}_sha256"))) for name in ("data", "code", "config", "environment")]
    delivered = at(record, "evidence.delivered_sha256")  # of the best step, or averaged: the run's own digest is of its last step
    repeated = {True: "trained again in a fresh process: the same bits", False: "**trained again: other bits**"}.get(
        again, "not verified"
    )
    return [
        *digests,
        *([("weights digest", md.code(delivered))] if delivered else []),
        ("numerics class", md.code(run.get("numerics_class"))),
        ("commit", md.code(source.get("commit") or "none")),
        ("reproduction", repeated),
    ]
