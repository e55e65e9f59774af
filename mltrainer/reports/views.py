"""What reports show of a record that stands in it in another shape: rows to loop over, and values worked out from it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mltrainer.configs.project import meaningful
from mltrainer.diagnostics.rules import HEALTHY_FITS
from mltrainer.records.openings import recorded_looks
from mltrainer.reports import markdown as md
from mltrainer.reports import tuning
from mltrainer.reports.values import as_float, at, finite, number, visible

Record = dict[str, Any]
Run = Mapping[str, Any]
Rows = Sequence[dict[str, Any]]
MAX_ROWS = 200
MAX_MISTAKES = 10
IMPROVEMENT = "improvement_validated"
PIPELINES = {
    "image_classification": "image-classification",
    "tabular_classification": "tabular-classification",
    "tabular_regression": "tabular-regression",
    "text_classification": "text-classification",
    "text_generation": "text-generation",
}
SHOWN_LATER = [
    "calibration.svg",
    "residuals_along.svg",
    "segments.svg",
    "weights.svg",
    "activations.svg",
]  # figures of the baseline's run that the diagnostics show
FIGURES_OF = {
    "nan_loss": ["learning_curves.svg"],
    "overfitting": ["gap.svg"],
    "exploding_gradients": ["gradients.svg"],
    "vanishing_gradients": ["gradient_layers.svg"],
    "resource_inefficiency": ["throughput.svg", "data_wait.svg"],
    "input_starvation": ["data_wait.svg", "throughput.svg"],
    "convergence_stall": ["metric.svg"],
}


def of(found: Any, *keys: Any, default: Any = None) -> Any:
    """Return the value under a sequence of keys in nested dicts; unlike in a dotted path, a key may have dots."""
    for key in keys:
        if not isinstance(found, dict) or str(key) not in found:
            return default
        found = found[str(key)]
    return found


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield dotted keys and values of nested dicts, sorted."""
    for key in sorted(value, key=str):
        path, item = f"{prefix}{key}", value[key]
        if isinstance(item, dict) and item:
            yield from flat(item, f"{path}.")
        else:
            yield path, item


def evenly(count: int, limit: int) -> list[int]:
    """Return at most `limit` places out of `count`, evenly, the first and the last among them."""
    if count <= limit:
        return list(range(count))
    return [nr * (count - 1) // (limit - 1) for nr in range(limit)]


# --- the gate -----------------------------------------------------------------------------------


def failing(gate: Rows) -> list[dict[str, Any]]:
    """Return the items that do not hold."""
    return [item for item in gate if item["verdict"] == "fail"]


def not_passed(gate: Rows) -> list[dict[str, Any]]:
    """Return the items that a reader must look at: failed or waived."""
    return [item for item in gate if item["verdict"] in ("fail", "waived")]


def gate_line(gate: Rows) -> str:
    """Return the gate's verdict as a bold sentence of Markdown."""
    failed = failing(gate)
    if failed:
        return f"❌ **The gate does not hold**: {', '.join(md.code(item['id']) for item in failed)}."
    if not gate:
        return "❌ **The gate does not hold**: nothing was checked."
    counts = {verdict: sum(item["verdict"] == verdict for item in gate) for verdict in ("pass", "waived", "not_applicable")}
    beside = [f", {number(counts[key])} {key.replace('_', ' ')}" for key in ("waived", "not_applicable") if counts[key]]
    return f"✅ **The gate holds** ({number(counts['pass'])} of {number(len(gate))} items pass{''.join(beside)})."


def no_effect(waiver: Mapping[str, Any], gate: Rows) -> bool:
    """Return True if a waiver changes no verdict of this gate; one of an earlier phase, named in it, is not judged here."""
    verdicts = {item["id"]: item["verdict"] for item in gate}
    return bool(gate) and ": " not in waiver["item"] and verdicts.get(waiver["item"]) != "waived"


# --- code that ran ------------------------------------------------------------------------------


def restore_commands(source: Mapping[str, Any]) -> list[str]:
    """Return the commands that bring the recorded tree back, beside the one that is worked in."""
    commands = [f"git worktree add --detach ../restored {shlex.quote(visible(source['commit']))}"]
    if source["dirty"] and source["snapshot"]:
        commands.append(f"git -C ../restored read-tree -u --reset {shlex.quote(visible(source['snapshot']))}")
    return commands


def restore_and_run(record: Record) -> list[str]:
    """Return the commands that make a record's phase again from the recorded code."""
    again = f"mltrainer run --until {shlex.quote(visible(record['phase']))}"
    return [*restore_commands(record["source"]), "cd ../restored", again]


# --- a run --------------------------------------------------------------------------------------


def states(run: Run) -> list[dict[str, Any]]:
    """Return the metrics of the best and of the last evaluation, a row each; a program is judged by its end alone."""
    ends = (("best", run["best"] or {}), ("last", run["final"] or {}))
    return [
        {"which": which, "epoch": found.get("epoch"), "step": found.get("step"), **_metric_row(found, name)}
        for which, found in (ends[1:] if run.get("program") else ends)
        for name in sorted({*(found.get("validation") or {}), *(found.get("train") or {})})
    ]


def _metric_row(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    train, validation = of(found, "train", name), of(found, "validation", name)
    whole = finite(train) and finite(validation)
    gap = as_float(validation) - as_float(train) if whole else None
    return {"metric": name, "train": train, "validation": validation, "gap": gap}


def metric_names(run: Run) -> list[str]:
    """Return the metrics of a run's history: the loss, the one that chose the best checkpoint, the others."""
    rows = run["history"]
    others = sorted({name for row in rows for split in ("train", "validation") for name in row.get(split) or {}})
    return list(dict.fromkeys(["loss", run["metric"]["name"], *others]))


def rows_evenly(rows: Rows) -> list[dict[str, Any]]:
    """Return the rows that a table shows of a long history."""
    return [rows[place] for place in evenly(len(rows), MAX_ROWS)]


def thinned(rows: Rows) -> str:
    """Return a note on the number of rows that a table shows of a history; empty where it shows all."""
    if len(rows) <= MAX_ROWS:
        return ""
    return f" ({number(MAX_ROWS)} of {number(len(rows))}, evenly; the record holds all)"


def standing(rows: Rows) -> list[tuple[str, list[str]]]:
    """Return the plain models that a run is behind, level with and ahead of, each group that has any."""
    groups = {verdict: [row["title"] for row in rows if row["verdict"] == verdict] for verdict in ("behind", "level", "ahead")}
    return [(verdict, titles) for verdict, titles in groups.items() if titles]


def layer_ends(run: Run) -> list[dict[str, Any]]:
    """Return each layer's gradient norm and update ratio at the first and at the last evaluation."""
    first, last = run["history"][0], run["history"][-1]
    return [
        {
            "name": name,
            "norm_first": _nth(first.get("layer_norms"), nr),
            "norm_last": _nth(last.get("layer_norms"), nr),
            "update_first": _nth(first.get("update_ratios"), nr),
            "update_last": _nth(last.get("update_ratios"), nr),
        }
        for nr, name in enumerate(run["layers"])
    ]


def _nth(found: Any, nr: int) -> Any:
    return found[nr] if isinstance(found, list) and nr < len(found) else None


def confused(result: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Return true class, predicted class and count of every kind of mistake, the most frequent first."""
    labels, counts = result["labels"], result["confusion"]
    pairs = [(str(labels[t]), str(labels[p]), n) for t, row in enumerate(counts) for p, n in enumerate(row) if n and t != p]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


def most_skipped(rows: Rows) -> float:
    """Return the largest share of an interval's steps that were skipped."""
    return max((as_float(row.get("skipped", 0.0)) for row in rows), default=0.0)


def scaled(rows: Rows) -> dict[str, float] | None:
    """Return the last loss scale and the largest share of gradients that were 0; None where no loss was scaled."""
    found = [row for row in rows if row.get("loss_scale") is not None]
    zero = max((as_float(row["zero_gradients"]) for row in found), default=0.0)
    return {"scale": as_float(found[-1]["loss_scale"]), "zero": zero} if found else None


# --- figures ------------------------------------------------------------------------------------


def figure_rows(figures: Mapping[str, dict[str, Any]], shown: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the figures that were not shown yet, in the order of the record."""
    return [row for name, row in figures.items() if name not in shown]


def figures_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the figures that show what a diagnostic found."""
    return list(dict.fromkeys([*(row.get("figures") or []), *FIGURES_OF.get(row["id"], [])]))


def decisions(evidence: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the questions that lead to a recommendation, in order, each with its answer and what follows from it.

    The first that leads somewhere decides; the others are not asked any more.
    """
    asked = [(question, answer, then) for question, answer, then in _questions(evidence)]
    deciding = next(nr for nr, (_, _, then) in enumerate(asked) if then)
    return [
        {"question": question, "answer": answer, "then": then if nr == deciding else "go on" if nr < deciding else "not asked"}
        for nr, (question, answer, then) in enumerate(asked)
    ]


def _questions(evidence: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    assessment, acceptance = evidence["assessment"], evidence["acceptance"]
    state, fit, gradients = (str(assessment.get(key, "finished")) for key in ("state", "fit", "gradients"))
    rows = [row for row in fired(evidence["diagnostics"]) if row["severity"] == "critical"]
    unlearned = gradients == "exploding" and fit not in HEALTHY_FITS
    met = [f"{row['metric']} {number(row['value'])} ({row['criterion']})" for row in acceptance if row["met"]]
    missed = [f"{row['metric']} {number(row['value'])}, not {row['criterion']}" for row in acceptance if not row["met"]]
    good = "deploy" if acceptance and not missed else "optimize"
    yield "Did a critical diagnostic fire?", ", ".join(row["id"] for row in rows) or "none", "debug" if rows else ""
    yield "Did the run come to its end?", state, "" if state == "finished" else "debug"
    yield "Do gradients explode while nothing was learned?", f"gradients {gradients}, fit {fit}", "debug" if unlearned else ""
    judged = "no" if fit == gradients == "unknown" else "yes"
    yield "Can fit or gradients be judged?", judged, "" if judged == "yes" else "debug"
    yield "Is every acceptance criterion met?", ", ".join([*missed, *met]) or "none is set", good


def fired(rows: Rows) -> list[dict[str, Any]]:
    """Return the diagnostics that fired."""
    return [row for row in rows if row["state"] == "fired"]


FILTERS: dict[str, Callable[..., Any]] = {
    "fired": fired,
    "flat": flat,
    "meaningful": meaningful,
    "command_line": shlex.join,
    "failing": failing,
    "not_passed": not_passed,
    "no_effect": no_effect,
    "restore_commands": restore_commands,
    "restore_and_run": restore_and_run,
    "states": states,
    "metric_names": metric_names,
    "evenly": rows_evenly,
    "thinned": thinned,
    "standing": standing,
    "layer_ends": layer_ends,
    "mistakes": lambda result: confused(result)[:MAX_MISTAKES],
    "most_skipped": most_skipped,
    "scaled": scaled,
    "unverified": lambda run: sum(not kept["verified"] for kept in run["checkpoints"]),
    "averaged": lambda rows: any("trained" in row for row in rows),
    "ratio": lambda row, key: as_float(row["with"][key]) / (as_float(row["without"][key]) or math.nan),
    "rows": figure_rows,
    "figures_of": figures_of,
    "decisions": decisions,
}


# --- what a phase's template may name beside the record -------------------------------------------


def names(record: Record, gate: Rows) -> dict[str, Any]:
    """Return the names that the templates of a record's phase know."""
    evidence = record["evidence"]
    figures = {row["file"].rsplit("/", 1)[-1]: row for row in record.get("figures") or []}
    common = {"record": record, "evidence": evidence, "gate": gate, "figures": figures, "run": evidence.get("run")}
    return common | _NAMES[record["phase"]](record, gate)


def _planning(record: Record, _gate: Rows) -> dict[str, Any]:
    evidence = record["evidence"]
    peak, available = (as_float(at(evidence, f"estimate.{key}")) for key in ("peak_mb", "available_mb"))
    size = sum(row["size"] for row in at(evidence, "data.files") or [])
    return {"memory_share": peak / available if available else math.nan, "data_bytes": size}


def _baseline(record: Record, _gate: Rows) -> dict[str, Any]:
    minutes = as_float(record["evidence"]["run"]["wall_s"]) / 60
    share = minutes / as_float(record["evidence"]["budget_minutes"])
    return {"budget_share": share, "shown_apart": ["learning_curves.svg", "metric.svg", *SHOWN_LATER]}


def _diagnostics(record: Record, _gate: Rows) -> dict[str, Any]:
    evidence = record["evidence"]
    found = fired(evidence["diagnostics"])
    return {"fired": found, "shown_later": SHOWN_LATER, "next_command": _advised(evidence["recommendation"], found)}


def _advised(recommendation: str, fired: Rows) -> str:
    if recommendation == "optimize":
        return "mltrainer phase run optimization"
    if recommendation != "debug":
        return "mltrainer run"
    suggested = (one.get("set") or {} for row in fired for one in row["suggestions"])
    changes = {key: value for values in suggested for key, value in values.items() if not str(value).startswith("x")}
    return " ".join(["mltrainer phase run planning", *(_assignment(key, value) for key, value in changes.items())])


def _assignment(key: str, value: Any) -> str:
    return f"--set {shlex.quote(visible(f'{key}={_plain(value)}'))}"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(_plain(item) for item in value)}]"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else "null" if value is None else str(value)


def _optimization(record: Record, gate: Rows) -> dict[str, Any]:
    evidence = record["evidence"]
    if evidence["skipped"]:
        return {}
    trials = evidence["trials"]
    judged, seen = judge(record, gate), [trial["state"] for trial in trials]
    spent = [as_float(trial.get("wall_s")) for trial in trials]
    return {
        **tuning.names(evidence, judged),
        "judged": judged,
        "gains": gains(evidence),
        "searched": sorted({key for trial in trials for key in trial["values"]}),
        "best": next((trial for trial in trials if trial["nr"] == evidence["best"]), None),
        "trial_states": ", ".join(f"{seen.count(state)} {state}" for state in sorted(set(seen))) or "none",
        "trial_time": math.fsum(seconds for seconds in spent if math.isfinite(seconds)),
    }


def judge(record: Record, gate: Rows) -> dict[str, Any]:
    """Return the test of the improvement: its p-value as the gate computed it, its level as the policy sets it."""
    found = next((item for item in gate if item["id"] == IMPROVEMENT), {})
    settings: dict[str, Any] = next(
        (item["settings"] for item in at(record, "policy.items") or [] if item["id"] == IMPROVEMENT), {}
    )
    return {
        "improved": found.get("verdict") == "pass",
        **{key: at(found, f"evidence.{key}") for key in ("p_value", "interval", "effect_size", "seeds_needed", "comparison")},
        "level": at(found, "evidence.level") or settings.get("level"),
        "whole_level": settings.get("level"),
    }


def gains(evidence: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return seed, baseline, candidate and how much better the candidate is, whatever the metric's direction."""
    found = evidence["comparison"]
    sign = -1.0 if evidence["metric"]["mode"] == "min" else 1.0
    pairs = zip(found["seeds"], found["baseline"], found["candidate"], strict=False)
    rows = ((seed, base, new, sign * (as_float(new) - as_float(base))) for seed, base, new in pairs)
    return [
        {"seed": seed, "baseline": base, "candidate": new, "gain": gain if math.isfinite(gain) else repr(gain)}
        for seed, base, new, gain in rows
    ]


def _finalization(record: Record, _gate: Rows) -> dict[str, Any]:
    opened = recorded_looks(record["evidence"])
    return {"card": card(record["evidence"]), "looks": opened.sentence, "models_tested": opened.models}


_NAMES: dict[str, Callable[[Record, Rows], dict[str, Any]]] = {
    "planning": _planning,
    "baseline": _baseline,
    "diagnostics": _diagnostics,
    "optimization": _optimization,
    "finalization": _finalization,
}


# --- the model card -----------------------------------------------------------------------------


def card(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model card's names beside the record."""
    run, config = evidence["run"], evidence["config"]
    tested, validated = evidence["test"]["metrics"] or {}, at(run, "best.validation") or {}
    names = dict.fromkeys([run["metric"]["name"], *sorted({*tested, *validated})])
    result = run["evaluation"] or {}
    wrong = confused(result) if result.get("kind") == "classification" else []
    return {
        "kind": str(at(config, "task.kind") or "").replace("_", " "),
        "metrics": [name for name in names if name in tested or name in validated],
        "weakest": _weakest(result),
        "mistake": wrong[0] if wrong else None,
    }


def _weakest(result: Mapping[str, Any]) -> dict[str, Any] | None:
    if result.get("kind") != "classification":
        return None
    recall = [(row[nr] / sum(row), str(result["labels"][nr])) for nr, row in enumerate(result["confusion"]) if sum(row)]
    return {"recall": min(recall)[0], "name": min(recall)[1]} if recall else None


def front_matter(record: Record, quoted: Callable[[object], str]) -> list[str]:
    """Return the lines of the model card's front matter; `quoted` writes a text as a YAML scalar."""
    evidence = record["evidence"]
    pipeline = PIPELINES.get(str(at(evidence, "config.task.kind")))
    metrics = [(key, value) for key, value in sorted((evidence["test"]["metrics"] or {}).items()) if finite(value)]
    lines = ["library_name: pytorch", *([f"pipeline_tag: {pipeline}"] if pipeline else []), "tags:", "- pytorch", "- mltrainer"]
    if not metrics:
        return lines
    source = quoted(at(evidence, "config.data.source", "the task's own data"))
    lines += ["model-index:", f"- name: {quoted(record['project']['name'])}", "  results:", "  - task:"]
    lines += [f"      type: {pipeline or 'other'}", "    dataset:", f"      name: {source}", f"      type: {source}"]
    lines += ["      split: test", "    metrics:"]
    for key, value in metrics:
        lines += [f"    - type: {quoted(key)}", f"      value: {json.dumps(float(f'{value:.6g}'))}"]
    return lines
