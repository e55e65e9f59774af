"""The diagnostics, their rows for a record, the assessment of a run, and the recommendation.

Pure but for the handbook's pages, which hold every threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mltrainer import handbook
from mltrainer.configs.loading import EXCLUSIVE, as_typed, at
from mltrainer.configs.pages import DiagnosticPage, diagnostic_page
from mltrainer.configs.pages import Suggestion as PageSuggestion
from mltrainer.configs.project import OF_CLASSES, OF_PROGRAMS, has_classes, is_opaque, meets
from mltrainer.diagnostics import (
    bad_initialization,
    class_imbalance,
    class_numbering,
    clip_too_small,
    constant_predictions,
    convergence_stall,
    dead_layers,
    dead_units,
    divergence,
    evaluation_mode,
    exploding_gradients,
    feature_collapse,
    frozen_layers,
    gradient_conflict,
    gradient_underflow,
    input_scale,
    input_starvation,
    label_noise,
    leakage,
    learning_rate_high,
    learning_rate_low,
    loss_broadcast,
    loss_oscillation,
    loss_spike,
    memory_growth,
    nan_loss,
    negative_loss,
    nonfinite_data,
    output_activation,
    overfitting,
    resource_inefficiency,
    saturation,
    symmetric_weights,
    train_eval_mismatch,
    underfitting,
    undertrained,
    unshuffled_data,
    unused_precision,
    vanishing_gradients,
    wrong_setup,
)
from mltrainer.diagnostics.cause import FoundCause
from mltrainer.diagnostics.causes import causes_of, with_causes
from mltrainer.diagnostics.signals import Finding, Rule, Run, evaluations_of, finite, number, text
from mltrainer.errors import InputError
from mltrainer.records.common import Acceptance, Metrics
from mltrainer.records.diagnostics import Assessment, Change, Diagnosis, Suggestion
from mltrainer.records.finalization import Test
from mltrainer.records.run import WITHOUT_STEPS
from mltrainer.workspace import plain

RULES: dict[str, Rule] = {
    "nan_loss": nan_loss.find,
    "wrong_setup": wrong_setup.find,
    "overfitting": overfitting.find,
    "exploding_gradients": exploding_gradients.find,
    "vanishing_gradients": vanishing_gradients.find,
    "resource_inefficiency": resource_inefficiency.find,
    "convergence_stall": convergence_stall.find,
    "symmetric_weights": symmetric_weights.find,
    "dead_layers": dead_layers.find,
    "frozen_layers": frozen_layers.find,
    "dead_units": dead_units.find,
    "saturation": saturation.find,
    "output_activation": output_activation.find,
    "loss_broadcast": loss_broadcast.find,
    "negative_loss": negative_loss.find,
    "nonfinite_data": nonfinite_data.find,
    "input_scale": input_scale.find,
    "bad_initialization": bad_initialization.find,
    "unshuffled_data": unshuffled_data.find,
    "evaluation_mode": evaluation_mode.find,
    "train_eval_mismatch": train_eval_mismatch.find,
    "leakage": leakage.find,
    "class_numbering": class_numbering.find,
    "class_imbalance": class_imbalance.find,
    "label_noise": label_noise.find,
    "divergence": divergence.find,
    "constant_predictions": constant_predictions.find,
    "learning_rate_high": learning_rate_high.find,
    "learning_rate_low": learning_rate_low.find,
    "clip_too_small": clip_too_small.find,
    "loss_oscillation": loss_oscillation.find,
    "loss_spike": loss_spike.find,
    "underfitting": underfitting.find,
    "undertrained": undertrained.find,
    "input_starvation": input_starvation.find,
    "memory_growth": memory_growth.find,
    "feature_collapse": feature_collapse.find,
    "gradient_conflict": gradient_conflict.find,
    "unused_precision": unused_precision.find,
    "gradient_underflow": gradient_underflow.find,
}

EXPLAINED = {  # a finding that explains others, and the ones that are then left out
    "overfitting": ("underfitting",),  # what is far better on the training set is not equally bad on both
    "class_numbering": ("overfitting", "convergence_stall", "label_noise", "class_imbalance", "underfitting"),
}
OF_LARGE_STEPS = ("exploding_gradients", "divergence", "input_scale", "learning_rate_high", "loss_spike", "dead_units")
HEALTHY_FITS = ("good", "overfitting")  # the model has learned at least its training set
SWITCHED_ON = ("clip", "early_stopping")  # groups of the config that null switches off, and that a change may switch on
OWN = "own"  # the name of an optimizer or schedule that the task makes
ONE_WAY = {  # a change never takes back a setting that already goes further
    "clip.norm": min,
    "early_stopping.patience": min,
    "model.dropout": max,
    "schedule.warmup_epochs": max,
}


# --- findings -------------------------------------------------------------------------------------


def diagnose(run: Run, project: Path | None) -> list[Diagnosis]:
    """Apply every rule to a run, with the thresholds of the handbook's pages.

    Args:
        run: The run.
        project: The project's folder, whose own pages override the shipped ones; None outside a project.

    Returns:
        One row per rule, in the order of `RULES`; one that fired has the causes that the run shows before those of its page.

    Raises:
        InputError: A page of the project is not valid, or its thresholds differ from the rule's.
    """
    run_causes = causes_of(run)
    rows = [_row(rule, run, diagnostic_page(name, project), name, project) for name, rule in RULES.items()]
    causes = {name: row.id for row in rows if row.state == "fired" for name in EXPLAINED.get(row.id, ())}
    rows = [_explained(row, causes[row.id]) if row.id in causes else row for row in rows]
    # If a number of the data made the steps too large, the rate is not the cause.
    rows = [_unchanging(row) if run.is_broken_by_data and row.id in OF_LARGE_STEPS else row for row in rows]
    return [with_causes(row, run_causes) for row in rows]


def _unchanging(row: Diagnosis) -> Diagnosis:
    """Return a row with those suggestions alone that change nothing of the config."""
    return row.model_copy(update={"suggestions": [one for one in row.suggestions if not one.set]})


def _explained(row: Diagnosis, cause: str) -> Diagnosis:
    """Return a row as not applicable if another fired finding explains it."""
    return row.model_copy(update={"state": "not_applicable", "reason": f"Explained by {cause}. {row.reason}", "figures": []})


def findings(run: Run, config: Mapping[str, Any], project: Path | None) -> list[Diagnosis]:
    """Return the rows that a phase records of its run: every rule's, with suggestions that fit the config of the run."""
    return fitting(diagnose(replace(run, config=config), project), config)


def page_path(name: str) -> str:
    """Return the path of a diagnostic's page in the handbook."""
    return f"diagnostics/{name}.md"


def _row(rule: Rule, run: Run, page: DiagnosticPage, name: str, project: Path | None) -> Diagnosis:
    thresholds = _thresholds(page, name, project)
    finding = rule(run, **thresholds)
    evidence = {key: None if value != value else plain(value) for key, value in finding.evidence.items()}  # NaN: not measured
    suggestions = (_filled(one, finding.evidence) for one in _suggestions(page, finding))
    return Diagnosis(
        id=name,
        title=page.title,
        page=page_path(name),
        state=finding.state,
        reason=finding.reason,
        evidence=evidence,
        thresholds=thresholds,
        severity=page.severity,
        causes=page.causes,
        suggestions=[one for one in suggestions if one is not None],
        figures=list(finding.figures),
    )


def _suggestions(page: DiagnosticPage, finding: Finding) -> list[PageSuggestion]:
    """Return a page's suggestions for the finding's targets; for a cause outside the config, only those that change no key."""
    fitting = (one for one in page.suggestions if finding.targets is None or one.targets in (None, finding.targets))
    return [one for one in fitting if not (finding.is_elsewhere and one.set)]


def _filled(suggestion: PageSuggestion, evidence: Mapping[str, Any]) -> Suggestion | None:
    """Return a suggestion whose values of the form `{name}` are the evidence's; None where the evidence has no such value."""
    names = {key: value[1:-1] for key, value in suggestion.set.items() if isinstance(value, str) and value[:1] == "{"}
    if not set(names.values()) <= set(evidence):
        return None
    filled = {key: evidence[name] for key, name in names.items()}
    return Suggestion(why=suggestion.why, set=plain({**suggestion.set, **filled}))


def _thresholds(page: DiagnosticPage, name: str, project: Path | None) -> dict[str, float]:
    """Return a page's thresholds, after comparing a project's own page with the shipped one."""
    where = page_path(name)
    if page.diagnostic != name:
        raise InputError("diagnostic", expected=name, found=page.diagnostic, where=where, hint=f"write diagnostic: {name}")
    # Compared here: the rule itself would fail with a missing argument, without naming the page.
    wanted = sorted(diagnostic_page(name, None).thresholds) if project else sorted(page.thresholds)
    if sorted(page.thresholds) != wanted:
        names = ", ".join(sorted(page.thresholds)) or "none"
        hint = f"compare with the shipped page: mltrainer guide {where.removesuffix('.md')}"
        expected = ", ".join(wanted) or "none"
        raise InputError(expected=f"the thresholds {expected}", found=names, where=where, hint=hint)
    return dict(page.thresholds)


def shipped_pages() -> list[str]:
    """Return the ids of the diagnostic pages that the handbook ships."""
    paths = (Path(path) for path in handbook.page_paths())
    return sorted(path.stem for path in paths if path.parent.as_posix() == "diagnostics" and path.stem != "README")


# --- assessment -----------------------------------------------------------------------------------


def assess(rows: Sequence[Diagnosis], run: Run) -> Assessment:
    """Judge a run's curves, fit (good, overfitting, underfitting, unknown) and gradients from its rows.

    Gradients are healthy, exploding, vanishing or unknown; not applicable to a program without steps.
    """
    by_id = {row.id: row for row in rows}
    fit, fit_reason = _fit(by_id, run)
    gradients, gradients_reason = _gradients(by_id["exploding_gradients"], by_id["vanishing_gradients"])
    if run.result.is_without_steps:
        gradients, gradients_reason = "not applicable", f"Of the program, {WITHOUT_STEPS}."
    return Assessment(
        curves=_curves(run),
        fit=fit,
        fit_reason=fit_reason,
        gradients=gradients,
        gradients_reason=gradients_reason,
        beats_constant=run.beats_constant,
        constant_reason=f"{run.beside_constant}." if run.beside_constant else None,
        state=run.result.state or "unknown",
    )


def _curves(run: Run) -> str:
    losses = run.validation_loss
    if not finite(losses):
        return f"{evaluations_of(len(run.history))}, none with a finite validation loss."
    lowest = min(range(len(losses)), key=lambda place: losses[place] if math.isfinite(losses[place]) else math.inf)
    sentence = (
        f"{evaluations_of(len(losses))}: the validation loss began at {text(losses[0])}, was lowest at {text(losses[lowest])} "
        f"(epoch {run.epochs[lowest]:g}) and ended at {text(losses[-1])}"
    )
    if run.best_row is None or run.metric_name == "loss":
        return sentence + "."
    best = run.series("validation", run.metric_name)[run.best_row]
    return f"{sentence}; {run.metric_name} was best at {text(best)} (epoch {run.epochs[run.best_row]:g})."


def _fit(by_id: Mapping[str, Diagnosis], run: Run) -> tuple[str, str]:
    gap, least = by_id["overfitting"], float(by_id["underfitting"].thresholds["skill"])
    if by_id["class_numbering"].state == "fired":
        return "unknown", by_id["class_numbering"].reason
    if gap.state == "fired":
        return "overfitting", gap.reason
    if run.beats_constant is False:
        fit = "overfitting" if run.learned(least) else "underfitting"
        return fit, f"{run.beside_constant}: nothing is shown to be learned."
    if run.has_no_scale and math.isnan(run.skill) and finite(run.validation_loss):
        return _fit_without_scale(run)
    if run.best_row is None or math.isnan(run.skill) or underfitting.is_unknown(run):
        return "unknown", "No evaluation shows how much of the training set was learned."
    # As the rule of that name judges: the fit and its finding are one fact.
    shown = underfitting.shown(run, least)
    behind = f" On validation the run is behind {' and '.join(run.beaten_by)}." if run.beaten_by else ""
    if not run.learned(least):
        return "underfitting", f"{shown}.{behind}"
    if run.reached_skill >= least:
        return "good", f"{shown}, and the gap is within its limit.{behind}"
    return "good", f"{shown}, but no plain model does better on the same rows."


def _fit_without_scale(run: Run) -> tuple[str, str]:
    first, lowest = run.first_loss, min(finite(run.validation_loss))
    shown = (
        f"How far the loss can fall is not known: it was {text(first)} at the first step and came to {text(lowest)} on validation"
    )
    if run.keeps_up or lowest < first:
        return "good", f"{shown}, and the gap is within its limit."
    return "underfitting", f"{shown}."


def _gradients(exploding: Diagnosis, vanishing: Diagnosis) -> tuple[str, str]:
    if exploding.state == "fired":
        return "exploding", exploding.reason
    if vanishing.state == "fired":
        return "vanishing", vanishing.reason
    if "not_applicable" in (exploding.state, vanishing.state):
        return "unknown", exploding.reason
    return "healthy", f"{exploding.reason} {vanishing.reason}"


# --- acceptance and recommendation ----------------------------------------------------------------


def acceptance_rows(
    acceptance: Mapping[str, str],
    metrics: Mapping[str, Any],
    split: str = "validation",
    bounds: Mapping[str, Sequence[float]] | None = None,
) -> list[Acceptance]:
    """Compare metrics with the criteria of a config.

    Args:
        acceptance: Criterion by metric, such as `{"accuracy": ">= 0.95"}`.
        metrics: Measured values by name; those of the training split begin with `train_`.
        split: Split of the other metrics.
        bounds: Lower and upper end of a metric's interval, if measured.

    Returns:
        One row per criterion; a metric that was not measured has value None and is not met.
    """
    return [
        Acceptance(
            metric=name,
            split="training" if name.startswith("train_") else split,
            criterion=criterion,
            value=plain(metrics.get(name)),
            interval=plain((bounds or {}).get(name, ())) or None,
            met=meets(number(metrics.get(name)), criterion),
        )
        for name, criterion in acceptance.items()
    ]


def final_acceptance(acceptance: Mapping[str, str], validated: Metrics, test: Test) -> list[Acceptance]:
    """Return the criteria beside the deciding metrics: the test split's, or validation's if it was not opened."""
    if not test.samples:
        return acceptance_rows(acceptance, validated)
    of_training = {name: value for name, value in validated.items() if name.startswith("train_")}
    bounds = test.intervals.bounds if test.intervals else {}
    return acceptance_rows(acceptance, {**of_training, **test.metrics}, "test", bounds)


def not_fired(warnings: Sequence[str], rows: Sequence[Diagnosis]) -> list[str]:
    """Return those of planning's warnings that no diagnostic gives as a cause: a fault that is reported twice looks like two."""
    causes = tuple(cause for row in rows if row.state == "fired" for cause in row.causes)
    return [what for what in warnings if not what.startswith(causes)]


def recommend(
    rows: Sequence[Diagnosis],
    acceptance: Sequence[Acceptance],
    assessment: Assessment,
    beaten_by: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """Recommend the next step for a run.

    `debug` if a critical finding fired, the run did not finish, nothing could be judged, the metric is no better than that of a
    constant answer, or gradients explode and nothing was learned; else `deploy` if there are criteria and all are met; else
    `optimize`. Without a criterion nothing says that a model is good enough, so that it is never deployed unasked. A plain model
    that does better is reported among the reasons, and so is what planning warned of.

    Returns:
        The recommendation, and the reasons, one sentence each.
    """
    faults, first = _faults(rows, assessment), f" {len(warnings)} times, the first" if len(warnings) > 1 else ""
    warned = [f"Planning warned{first}: {warnings[0]}."] if warnings else []
    if faults:
        return "debug", [*faults, *warned]
    others = [f"{row.title}: {row.reason}" for row in rows if row.state == "fired"]
    others += [f"The run is behind {' and '.join(beaten_by)} on the same validation rows."] if beaten_by else []
    others += warned
    if not acceptance:
        return "optimize", ["No acceptance criterion is set, so nothing says that the model is good enough.", *others]
    decision = "deploy" if all(row.met for row in acceptance) else "optimize"
    return decision, [_acceptance_reason(row) for row in acceptance] + others


def _faults(rows: Sequence[Diagnosis], assessment: Assessment) -> list[str]:
    faults = [f"{row.title}: {row.reason}" for row in rows if row.state == "fired" and row.severity == "critical"]
    if assessment.state != "finished":
        faults.append(f"The run did not come to its end: its state is {assessment.state}.")
    if not faults and assessment.gradients == "exploding" and assessment.fit not in HEALTHY_FITS:
        faults.append(f"The gradients explode and the model has not learned: {assessment.gradients_reason}")
    if not faults and assessment.fit == "unknown" and assessment.gradients == "unknown":
        faults.append(f"Neither fit nor gradients can be judged: {assessment.fit_reason}")
    if not faults and assessment.beats_constant is False:
        faults.append(f"The model is not shown to be better than a constant answer: {assessment.constant_reason}")
    return faults


def _acceptance_reason(row: Acceptance) -> str:
    value = "was not measured" if row.value is None else f"is {text(number(row.value))}"
    return f"On {row.split} {row.metric} {value}, {'as' if row.met else 'not as'} required ({row.criterion})."


# --- changes --------------------------------------------------------------------------------------


def suggested_changes(rows: Sequence[Diagnosis], config: Mapping[str, Any]) -> list[Suggestion]:
    """Return the suggestions of the rows that fired, as values for a given config, in the order of the pages.

    Suggestions are left out whose keys the config does not have, that it already follows, or whose place another key has taken.

    Args:
        rows: Rows of `diagnose`.
        config: A training config as nested plain values.
    """
    return [change for row in rows if row.state == "fired" for change in _changes(row, config)]


def warning_of(found_cause: FoundCause, config: Mapping[str, Any]) -> str:
    """Return planning's warning of a cause: its evidence in the config, and the cure, as a command if a key is to be set."""
    changed = _changed_values(found_cause.suggestion, config)
    command = f": mltrainer phase run planning {as_typed(changed)}" if changed else ""
    return f"{found_cause.found.sentence} {found_cause.cause.cure}{command}"


def changes_to_try(rows: Sequence[Diagnosis], config: Mapping[str, Any]) -> list[Change]:
    """Return `suggested_changes`, those of critical findings first, each once and with the `page` that explains it."""
    by_severity = sorted(rows, key=lambda row: row.severity != "critical")
    changes = [Change(why=one.why, set=one.set, page=row.page) for row in by_severity for one in suggested_changes([row], config)]
    # Each once, by the first finding.
    return [one for place, one in enumerate(changes) if one.set not in [before.set for before in changes[:place]]]


def fitting(rows: Sequence[Diagnosis], config: Mapping[str, Any]) -> list[Diagnosis]:
    """Return rows with those suggestions alone that a config has room for and does not follow yet, and those that set nothing."""
    return [row.model_copy(update={"suggestions": [*_fitting(row, config)]}) for row in rows]


def _fitting(row: Diagnosis, config: Mapping[str, Any]) -> Iterator[Suggestion]:
    for one in row.suggestions:
        kept = {key: change for key, change in one.set.items() if key in _changed_values(one, config)}
        if kept or not one.set:
            yield Suggestion(why=one.why, set=kept)


def _changes(row: Diagnosis, config: Mapping[str, Any]) -> list[Suggestion]:
    return [Suggestion(why=one.why, set=kept) for one in row.suggestions if (kept := _changed_values(one, config))]


def _changed_values(one: Suggestion, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a suggestion gives a config's keys, of those that it changes."""
    values = {key: _value(config, key, change) for key, change in one.set.items()}
    return {key: value for key, value in values.items() if value is not None and value != at(config, key)}


def _value(config: Mapping[str, Any], key: str, change: Any) -> Any:
    """Return the value that a change gives a key, or None if the config has no such key, or another one in its place."""
    group, _, last = key.rpartition(".")
    if is_opaque(config) and key.partition(".")[0] not in OF_PROGRAMS:
        return None  # its trainer decides
    if key in OF_CLASSES and config.get("task") and not has_classes(at(config, "task.kind")):
        return None  # a task's own loss weighs or smooths them
    if at(config, f"{group}.name") == OWN and last != "name":
        return None  # the task decides; the config has at most a factor
    current = at(config, key)
    if any(at(config, f"{group}.{rival}") for rival in EXCLUSIVE.get(group, ()) if rival != last):
        return None
    if current is None:
        return change if group in SWITCHED_ON and group in config and config[group] is None else None
    if isinstance(change, str) and change[:1] == "x":
        return _scaled(current, float(change[1:]))
    return ONE_WAY[key](current, change) if key in ONE_WAY else change


def _scaled(current: Any, factor: float) -> Any:
    """Return a number, or each of a list, times a factor; whole numbers stay whole and positive."""
    if isinstance(current, list):
        return [_scaled(item, factor) for item in current]
    if isinstance(current, int):
        return max(1, round(current * factor))
    # Without the rounding digits of a product such as 0.1 * 3.
    return float(f"{current * factor:.12g}")
