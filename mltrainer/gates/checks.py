"""The checks behind the gates' items: pure functions from a record's evidence to a verdict.

A check reads what the program measured; the numbers it compares with stand in the item's settings in the
handbook. Evidence that is missing or contradicts itself fails: `run_check` turns any such hole into "fail".
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mltrainer.configs.items import (
    AcceptanceSettings,
    CheckpointSettings,
    CommitSettings,
    CurvesSettings,
    DocumentSettings,
    ExportSettings,
    ImprovementSettings,
    ItemSettings,
    MemorySettings,
    OpeningSettings,
    ProbeSettings,
    SourceSettings,
    UtilizationSettings,
    settings_model,
)
from mltrainer.configs.loading import as_typed
from mltrainer.configs.project import TrainingConfig, is_complete, is_named_by, meets
from mltrainer.gates.statistics import improvements, is_better, sign_flip_p_value
from mltrainer.reproducibility.causes import HASH_SEEDS
from mltrainer.workspace import digest

Evidence = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A verdict with what it was computed from.

    Attributes:
        verdict: "pass", "fail" or "not_applicable".
        evidence: The measured values beside the verdict.
        mend: The command or change that mends a failure.
    """

    verdict: str
    evidence: dict[str, Any] = field(default_factory=dict)
    mend: str | None = None


def _when(holds: bool, evidence: dict[str, Any], mend: str) -> Outcome:
    return Outcome("pass", evidence) if holds else Outcome("fail", evidence, mend)


RUN_PLANNING = "mltrainer phase run planning"
RUN_BASELINE = "mltrainer phase run baseline"
RUN_DIAGNOSTICS = "mltrainer phase run diagnostics"
RUN_OPTIMIZATION = "mltrainer phase run optimization"
SEARCH_MORE = f"widen the space or raise the trials in configs/tuning_template.yaml, then {RUN_OPTIMIZATION}"
RUN_FINALIZATION = "mltrainer phase run finalization"
NEW_TEST_SPLIT = "bring new data for a test split, then mltrainer run"


# --- planning -----------------------------------------------------------------------------------


def config_valid(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The recorded config is complete, valid and the one whose digest names the probe's runs."""
    config = record["evidence"]["config"]
    model = TrainingConfig.model_validate(config)
    complete = is_complete(config, model)
    named = is_named_by(model, record["evidence"]["config_sha256"])
    found = {"keys": len(config), "complete": complete, "sha256": record["evidence"]["config_sha256"]}
    return _when(complete and named, found, f"mend phases/01_planning/training_config.yaml, then {RUN_PLANNING}")


def seeds_fixed(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Both fresh processes drew the same first numbers from every generator and built the same initial weights."""
    first, second = (run["draws"] for run in record["evidence"]["probe"]["runs"])
    initial = [run["init_sha256"] for run in record["evidence"]["probe"]["runs"]]
    hash_seeds = [run["determinism"]["PYTHONHASHSEED"] for run in record["evidence"]["probe"]["runs"]]
    drawn = {name for name in first if first[name] == second.get(name)}
    holds = (
        {"python", "numpy", "torch"} <= drawn
        and len(drawn) == len(first)
        and initial[0] == initial[1]
        and hash_seeds == list(HASH_SEEDS)
    )
    found = {
        "seed": record["evidence"]["config"]["seed"],
        "equal_draws": sorted(drawn),
        "equal_initial_weights": initial[0] == initial[1],
    }
    return _when(
        holds, found, "look for randomness in your task that is not drawn from Python, NumPy or torch; then " + RUN_PLANNING
    )


def determinism_on(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The switches, read back after the user's code ran, still ask for deterministic operations."""
    wanted = {
        "deterministic_algorithms": True,
        "warn_only": False,
        "cudnn_benchmark": False,
        "cudnn_deterministic": True,
        "tf32": False,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    runs = record["evidence"]["probe"]["runs"]
    if any("tensorflow" in run["determinism"] for run in runs):
        wanted["tensorflow_op_determinism"] = True
    wrong = {
        name: run["determinism"].get(name)
        for run in runs
        for name, value in wanted.items()
        if run["determinism"].get(name) != value
    }
    found = {"switches": len(wanted), "threads": runs[0]["determinism"]["threads"], **({"changed": wrong} if wrong else {})}
    return _when(not wrong, found, "remove what changes these switches in your code; then " + RUN_PLANNING)


def environment_captured(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Every installed distribution is pinned, and interpreter, platform and CPU are named."""
    environment = record["evidence"]["environment"]
    distributions = environment["distributions"]
    pinned = [d for d in distributions if d["name"] and d["version"]]
    has_torch = any(d["name"].lower() == "torch" for d in distributions)
    holds = bool(pinned) and len(pinned) == len(distributions) and has_torch and bool(environment["python"]["version"])
    found = {"distributions": len(pinned), "python": environment["python"]["version"], "gpus": len(environment["gpu"])}
    return _when(holds, found, RUN_PLANNING)


def source_recorded(record: Evidence, settings: SourceSettings) -> Outcome:
    """The code that ran is known by commit or by digest; whether a dirty tree may pass is the item's setting."""
    source = record["source"]
    known = digest(source["files"]) == source["sha256"]
    dirty = bool(source["dirty"])
    found = {"commit": source["commit"], "dirty": source["dirty"], "files": len(source["files"])}
    if source.get("note"):
        found["note"] = source["note"]
    return _when(known and (not dirty or settings.allow_dirty), found, f"commit your changes, then {RUN_PLANNING}")


def data_valid(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The data has no error-level finding, is fingerprinted, and its splits do not overlap."""
    data = record["evidence"]["data"]
    errors = [f["what"] for f in data["findings"] if f["severity"] == "error"]
    samples = {name: split["samples"] for name, split in data["splits"].items()}
    holds = not errors and bool(data["sha256"]) and samples["train"] > 0 and samples["validation"] > 0
    found = {"samples": samples, "sha256": data["sha256"], **({"errors": errors} if errors else {})}
    return _when(holds, found, f"mend the data, then {RUN_PLANNING}")


def probe_identical(record: Evidence, settings: ProbeSettings) -> Outcome:
    """Two fresh processes trained a few real steps and ended in the same bits."""
    probe = record["evidence"]["probe"]
    heads = [run["chain_head"] for run in probe["runs"]]
    weights = [run["weights_sha256"] for run in probe["runs"]]
    steps = min(run["steps"] for run in probe["runs"])
    holds = len(heads) == 2 and heads[0] == heads[1] and weights[0] == weights[1] and steps >= settings.min_steps
    found = {"steps": steps, "weights": weights[0] if holds else weights, "first_difference": probe.get("first_difference")}
    if probe["resumed_at"] == 0:
        found["not_interrupted"] = "the tool that trained cannot go on with an interrupted training"
    return _when(
        holds,
        found,
        "make the named part of your task deterministic (mltrainer guide reproducibility/determinism); then " + RUN_PLANNING,
    )


def export_rehearsed(record: Evidence, _settings: ItemSettings) -> Outcome:
    """All that finalization needs of the task works on the untrained model: each format, inference, metrics, evaluation."""
    found = record["evidence"]["rehearsal"]
    rows, fault = found["exports"], found["fault"]
    if fault:
        where = f"{fault['where']}: " if fault["where"] else ""
        mend = f"{where}{fault['mend'] or 'mend the task'}; then {RUN_PLANNING}"
        return Outcome("fail", {"fault": f"{where}{fault['what']}"}, mend)
    bad = [row for row in rows if row["state"] == "failed" or row["agrees"] is False]
    told: dict[str, Any] = {"fault": "; ".join(f"{row['format']}: {row['reason']}" for row in bad)} if bad else {}
    told["agree"] = [row["format"] for row in rows if row["agrees"] is True]
    told["not_available"] = [row["format"] for row in rows if row["state"] == "not_available"]
    mend = f"mend the model, or take the format out of configs/production_template.yaml, then {RUN_PLANNING}"
    return _when(bool(told["agree"]) and not bad, told, mend)


def memory_fits(record: Evidence, settings: MemorySettings) -> Outcome:
    """The measured peak memory fits in what the machine has free, and that of the GPU in the GPU's."""
    estimate = record["evidence"]["estimate"]
    found = {"peak_mb": estimate["peak_mb"], "available_mb": estimate["available_mb"]}
    shares = [estimate["peak_mb"] / estimate["available_mb"]]
    if estimate.get("device_peak_mb") is not None:
        found |= {key: estimate[key] for key in ("device_peak_mb", "device_total_mb")}
        shares.append(estimate["device_peak_mb"] / estimate["device_total_mb"])
    return _when(max(shares) <= settings.max_share, found, f"lower batch_size or the model's size, then {RUN_PLANNING}")


def time_within_budget(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The estimated time of the whole run is within the budget."""
    estimate = record["evidence"]["estimate"]
    budget = record["evidence"]["config"]["budget"]["minutes"]
    found = {"minutes": estimate["minutes"], "budget_minutes": budget}
    return _when(
        estimate["minutes"] <= budget, found, f"lower epochs or raise budget.minutes in mltrainer.yaml, then {RUN_PLANNING}"
    )


def no_secrets(record: Evidence, _settings: ItemSettings) -> Outcome:
    """No file that was written holds anything that looks like a key, a token or a password."""
    secrets = record["evidence"]["secrets"]
    found = {"files": len(secrets["scanned"]), "found": secrets["found"]}
    mend = "remove the secret from the file that it stands in (use an environment variable), then " + RUN_PLANNING
    return _when(bool(secrets["scanned"]) and not secrets["found"], found, mend)


# --- baseline, and training in general ------------------------------------------------------------


def finished(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Training ended by itself: all epochs, or early stopping; its history and its chain are complete."""
    run = record["evidence"]["run"]
    complete = bool(run["history"]) and run["history"][-1]["step"] == run["steps"]
    recorded = run["chain"]["entries"] >= run["steps"] > 0
    holds = run["state"] == "finished" and run["stop_reason"] in ("epochs", "early_stopping") and complete and recorded
    found = {"state": run["state"], "stop_reason": run["stop_reason"], "steps": run["steps"], "epochs": run["epochs"]}
    log = f"read the log in .mltrainer/runs/{run['id']}/, mend the cause, then mltrainer phase run {record['phase']}"
    return _when(holds, {**found, **_finding(record)}, _change_to_try(record) or log)


def _finding(record: Evidence) -> dict[str, Any]:
    """Return the page and the reason of each diagnostic that fired on a run that did not end well."""
    fired = (row for row in record["evidence"].get("diagnostics", []) if row["state"] == "fired")
    failed = record["evidence"]["run"]["state"] == "failed"
    return {row["id"]: f"{row['reason']} (mltrainer guide {row['page'].removesuffix('.md')})" for row in fired} if failed else {}


def losses_finite(record: Evidence, _settings: ItemSettings) -> Outcome:
    """No loss, metric or gradient norm was NaN or infinite in any step; those that fp16 skipped, and never took, are told."""
    run = record["evidence"]["run"]
    recorded = (
        v
        for row in run["history"]
        for v in (row["train_loss"], row["grad_norm"]["max"], *row["train"].values(), *row["validation"].values())
    )
    values = [v for v in recorded if v is not None]  # where all steps of an interval were skipped, no norm is
    skipped = sum(row.get("skipped", 0) > 0 for row in run["history"])
    bad = sum(isinstance(v, str) for v in values)
    holds = bool(values) and bad == 0 and run["nonfinite"] is None
    found = {"values": len(values), "not_finite": bad, "first": run["nonfinite"]}
    if skipped:
        found["evaluations_after_skipped_steps"] = skipped
    return _when(holds, found, _change_to_try(record) or "mltrainer guide diagnostics/nan_loss")


def checkpoints_verified(record: Evidence, settings: CheckpointSettings) -> Outcome:
    """The best and the last checkpoint were read back from the disk and gave the recorded metric again."""
    run = record["evidence"]["run"]
    roles = {role for c in run["checkpoints"] if c["verified"] and c["files"] for role in c["roles"]}
    saved = {"best": run["saved"]["save_best"], "last": run["saved"]["save_last"]}
    wanted = {name for name, on in saved.items() if on or settings.demand == "both"}
    found = {"verified": sorted(roles), "wanted": sorted(wanted), "checkpoints": len(run["checkpoints"])}
    return _when(bool(wanted) and wanted <= roles, found, f"mltrainer phase run {record['phase']}")


def within_time_budget(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Training took no longer than the budget."""
    minutes = record["evidence"]["run"]["wall_s"] / 60
    budget = record["evidence"]["budget_minutes"]
    return _when(
        minutes <= budget,
        {"minutes": round(minutes, 3), "budget_minutes": budget},
        f"lower epochs or raise budget.minutes, then {RUN_PLANNING}",
    )


def gpu_utilization(record: Evidence, settings: UtilizationSettings) -> Outcome:
    """The GPU was busy; on a CPU the item does not apply."""
    run = record["evidence"]["run"]
    if run["gpu"] is None and run["device"] == "cpu":
        return Outcome("not_applicable", {"rule": "no GPU: trained on the CPU"})
    gpu = run["gpu"] or {}
    busy = gpu.get("utilization_p95")
    found = {"utilization_p95": busy, "samples": gpu.get("samples", 0)}
    mend = "mltrainer guide diagnostics/resource_inefficiency"
    return _when(busy is not None and busy > settings.min_percent, found, mend)


# --- diagnostics ----------------------------------------------------------------------------------


def curves_analysed(record: Evidence, settings: CurvesSettings) -> Outcome:
    """The learning curves have enough points to be judged, and were."""
    evidence = record["evidence"]
    rows = len(evidence["run"]["history"]) if evidence.get("run") else evidence["evaluations"]  # version 0.1 repeated the run
    text = record["evidence"]["assessment"]["curves"]
    return _when(
        rows >= settings.min_evaluations and bool(text),
        {"evaluations": rows},
        "evaluate more often or train longer, then " + RUN_PLANNING,
    )


def fit_assessed(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Over- and underfitting were judged from the measured curves."""
    fit = record["evidence"]["assessment"]["fit"]
    mend = "evaluate more often or train longer, then " + RUN_PLANNING
    return _when(fit in ("good", "overfitting", "underfitting"), {"fit": fit}, mend)


def gradients_checked(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Gradient norms of every layer were recorded and judged."""
    health = record["evidence"]["assessment"]["gradients"]
    evidence = record["evidence"]
    layers = len(evidence["run"]["layers"]) if evidence.get("run") else evidence["layers"]
    mend = "give the model a weight that is trained, then " + RUN_PLANNING
    return _when(health in ("healthy", "exploding", "vanishing"), {"gradients": health, "layers": layers}, mend)


def triggers_evaluated(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Every diagnostic of the handbook was evaluated on the record, with a reason."""
    rows = record["evidence"]["diagnostics"]
    states = {row["id"]: row["state"] for row in rows if row["reason"]}
    missing = [name for name in record["evidence"]["expected_diagnostics"] if name not in states]
    fired = sorted(name for name, state in states.items() if state == "fired")
    mend = f"mend your own page of the diagnostic that is missing, then {RUN_DIAGNOSTICS}"
    return _when(bool(rows) and not missing, {"evaluated": len(states), "fired": fired, "missing": missing}, mend)


def recommendation_given(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The recommendation is to deploy or to optimize; `debug` sends the project back to planning."""
    recommendation = record["evidence"]["recommendation"]
    found = {"recommendation": recommendation, "reasons": record["evidence"]["reasons"]}
    mend = _change_to_try(record) or "mend what the report names (mltrainer diagnose), then " + RUN_PLANNING
    return _when(recommendation in ("deploy", "optimize"), found, mend)


# --- optimization ---------------------------------------------------------------------------------


def _skipped(record: Evidence) -> Outcome | None:
    """Return the outcome of a phase that was skipped because the acceptance criterion is met, as recomputed here."""
    evidence = record["evidence"]
    if not evidence["skipped"]:
        return None
    rows = evidence["acceptance"]
    met = bool(rows) and all(meets(float(row["value"]), row["criterion"]) for row in rows)
    if met:
        return Outcome("not_applicable", {"rule": evidence["rule"]})
    return Outcome("fail", {"rule": evidence["rule"], "acceptance": rows}, RUN_OPTIMIZATION)


def tuning_finished(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Every planned trial ran, and none is missing from the count."""
    evidence = record["evidence"]
    if (skip := _skipped(record)) is not None:
        return skip
    states = [trial["state"] for trial in evidence["trials"]]
    numbers = [trial["nr"] for trial in evidence["trials"]]
    done = states.count("finished")
    holds = done > 0 and numbers == list(range(1, evidence["planned_trials"] + 1))
    return _when(holds, {"trials": len(states), "finished": done, "planned": evidence["planned_trials"]}, RUN_OPTIMIZATION)


def best_config_identified(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The best trial is the best of the recorded values, and trained again it gave the same bits."""
    evidence = record["evidence"]
    if (skip := _skipped(record)) is not None:
        return skip
    sign = 1 if evidence["metric"]["mode"] == "max" else -1
    ranked = [t for t in evidence["trials"] if t["state"] == "finished" and not isinstance(t["value"], str)]
    best = max(ranked, key=lambda t: (sign * t["value"], -t["nr"]), default=None)
    holds = best is not None and best["nr"] == evidence["best"] and evidence["replay"]["identical"] is True
    found = {"best": evidence["best"], "value": best["value"] if best else None, "replayed": evidence["replay"]["identical"]}
    run = evidence["replay"].get("run")
    return _when(holds, found, f"mltrainer reproduce {run}" if run else SEARCH_MORE)


def improvement_validated(record: Evidence, settings: ImprovementSettings) -> Outcome:
    """Over fresh seeds at equal budget the candidate beats the baseline by an exact sign-flip test."""
    evidence = record["evidence"]
    if (skip := _skipped(record)) is not None:
        return skip
    comparison = evidence["comparison"]
    differences = improvements(comparison["candidate"], comparison["baseline"], evidence["metric"]["mode"])
    fresh = len(set(comparison["seeds"])) == len(comparison["candidate"])
    holds = fresh and is_better(differences, settings.seeds, settings.level)
    found = {
        "mean_improvement": round(statistics.fmean(differences), 6) + 0.0 if differences else None,  # 0.0, not -0.0
        "p_value": sign_flip_p_value(differences) if differences else None,
        "seeds": len(differences),
        "promoted": evidence["promoted"],
    }
    more = f"{RUN_OPTIMIZATION} --set trials={2 * evidence['planned_trials']}"
    return _when(holds, found, more)


# --- finalization ---------------------------------------------------------------------------------


def exports_agree(record: Evidence, settings: ExportSettings) -> Outcome:
    """Every exported format, read back from the disk, gives the trained model's outputs on real inputs."""
    rows = record["evidence"]["exports"]
    limit = settings.tolerance
    written = [row for row in rows if row["state"] == "written"]
    bad = [
        r["format"]
        for r in written
        if r["agrees"] is not True or isinstance(r["max_difference"], str) or r["relative_difference"] > limit
    ]
    failed = [row["format"] for row in rows if row["state"] == "failed"]
    absent = [row["format"] for row in rows if row["state"] == "not_available"]
    holds = bool(written) and not bad and not failed
    found = {"agree": [r["format"] for r in written if r["format"] not in bad], "disagree": bad + failed, "not_available": absent}
    mend = f"mend the model, or take the format out of configs/production_template.yaml, then {RUN_FINALIZATION}"
    return _when(holds, found, mend)


def documentation_written(record: Evidence, settings: DocumentSettings) -> Outcome:
    """The model card and the files that a deployment needs are there, none of them empty."""
    sizes = {row["path"].rsplit("/", 1)[-1]: row["size"] for row in record["evidence"]["model_files"]}
    wanted = settings.files.split()
    missing = [name for name in wanted if sizes.get(name, 0) == 0]
    return _when(not missing, {"files": len(sizes), "missing": missing}, RUN_FINALIZATION)


def reproduction_verified(record: Evidence, _settings: ItemSettings) -> Outcome:
    """The final training, repeated in a fresh process, gave the same bits in every step."""
    run, again = record["evidence"]["run"], record["evidence"]["reproduction"]
    same = again["weights_sha256"] == run["weights_sha256"] and again["chain_head"] == run["chain"]["head"]
    holds = same and again["identical"] is True and again["steps_compared"] == run["steps"]
    found = {
        "steps_compared": again["steps_compared"],
        "identical": again["identical"],
        "first_divergence": again["first_divergence"],
    }
    return _when(holds, found, f"mltrainer reproduce {run['id']}")


def final_run_diagnosed(record: Evidence, _settings: ItemSettings) -> Outcome:
    """Every diagnostic was evaluated on the final run, and none that says that it is faulty fired."""
    rows = record["evidence"]["diagnostics"]
    states = {row["id"]: row["state"] for row in rows if row["reason"]}
    missing = [name for name in record["evidence"]["expected_diagnostics"] if name not in states]
    fired = sorted(name for name, state in states.items() if state == "fired")
    critical = [row["id"] for row in rows if row["state"] == "fired" and row["severity"] == "critical"]
    found = {"evaluated": len(states), "fired": fired, "missing": missing, "fit": record["evidence"]["assessment"]["fit"]}
    return _when(bool(rows) and not missing and not critical, found, _change_to_try(record) or "mltrainer diagnose finalization")


def _change_to_try(record: Evidence) -> str | None:
    """Return the command that makes the change which a fired diagnostic suggests first; None where none does."""
    changes = record["evidence"].get("changes", [])
    phase = "finalization" if record["phase"] == "finalization" else "planning"
    return f"mltrainer phase run {phase} {as_typed(changes[0]['set'])}" if changes else None


def test_opened_once(record: Evidence, settings: OpeningSettings) -> Outcome:
    """The sealed test split was opened for this model alone; the same weights measured again are no second opening."""
    evidence = record["evidence"]
    test, run = evidence["test"], evidence["run"]
    if evidence["data"]["splits"]["test"]["samples"] == 0:
        return Outcome("not_applicable", {"rule": "split.test is 0: there is no test split"})
    here = [row for row in test["openings"] if row.get("data_sha256") in (None, run["data_sha256"])]
    models = {row.get("weights_sha256") or row["run"] for row in here}
    few = len(models) <= settings.max_openings
    found = {"openings": len(test["openings"]), "models": len(models), "metrics": test["metrics"]}
    if test["samples"] == 0:
        found["sealed"] = test["sealed"]
        rule = {"rule": "a model that misses its criterion on validation leaves the test split sealed", **found}
        if few and _missed(evidence["config"]["acceptance"], run["metrics"]):
            return Outcome("not_applicable", rule)
        return Outcome("fail", found, f"mend what keeps the test split sealed, then {RUN_FINALIZATION}")
    ours = bool(models & {run["id"], evidence["delivered_sha256"]})
    return _when(ours and few, found, f"{NEW_TEST_SPLIT}, or say why it was opened again")


def _missed(criteria: Mapping[str, str], metrics: Mapping[str, Any]) -> list[str]:
    """Return the metrics that do not meet their criterion; one that was not measured meets none."""
    values = {name: metrics.get(name) for name in criteria}
    return [name for name, v in values.items() if not (isinstance(v, (int, float)) and meets(v, criteria[name]))]


def acceptance_met(record: Evidence, settings: AcceptanceSettings) -> Outcome:
    """The final model meets the acceptance criterion, on the test split where there is one, else on validation."""
    evidence = record["evidence"]
    criteria, test, metrics = evidence["config"]["acceptance"], evidence["test"], evidence["run"]["metrics"]
    if not criteria:
        return Outcome("not_applicable", {"rule": "mltrainer.yaml names no acceptance criterion"})
    on_test = settings.split == "test" and evidence["data"]["splits"]["test"]["samples"] > 0
    of_training = {name: value for name, value in metrics.items() if name.startswith("train_")}
    judged = {**of_training, **test["metrics"]} if on_test and test["samples"] else metrics
    missed = _missed(criteria, judged)
    found: dict[str, Any] = {"values": {name: judged.get(name) for name in criteria}, "criteria": criteria}
    if settings.split is not None:
        found = {"split": "test" if judged is not metrics else "validation", **found}
    if on_test and not test["samples"]:
        found["sealed"] = test["sealed"]
        return Outcome("fail", found, _way_on(evidence) if missed else f"mend what failed beside it, then {RUN_FINALIZATION}")
    if judged is not metrics:
        found["interval"] = {name: ends for name, ends in test["intervals"]["bounds"].items() if name in criteria}
        return _when(not missed, found, f"{NEW_TEST_SPLIT}: this one has been seen, so no search may be judged by it again")
    return _when(not missed, found, _way_on(evidence))


def _way_on(evidence: Evidence) -> str:
    """Return what to try with a final model that misses on validation; never what was just done."""
    back = evidence.get("way_back") or {"set": {}, "trials": None}
    if back["set"]:
        return f"{RUN_FINALIZATION} {as_typed(back['set'])}"
    if back["trials"]:
        return f"{RUN_OPTIMIZATION} --set trials={2 * back['trials']}"
    return "plan anew with another model or more data: mltrainer phase run planning --set KEY=VALUE"


def source_committed(record: Evidence, settings: CommitSettings) -> Outcome:
    """The code that trained the final model is a commit; without git its files' digests must do."""
    source = record["source"]
    found = {"commit": source["commit"], "dirty": source["dirty"]}
    if source["commit"] is None and source["dirty"] is None and settings.allow_no_git:
        return Outcome("not_applicable", {**found, "rule": source["note"]})
    mend = "commit your changes, then mltrainer run (it begins with planning, where the code is recorded)"
    return _when(source["commit"] is not None and source["dirty"] is False, found, mend)


CHECKS: dict[str, Callable[[Evidence, Any], Outcome]] = {
    check.__name__: check
    for check in (
        config_valid,
        seeds_fixed,
        determinism_on,
        environment_captured,
        source_recorded,
        data_valid,
        probe_identical,
        export_rehearsed,
        memory_fits,
        time_within_budget,
        no_secrets,
        finished,
        losses_finite,
        checkpoints_verified,
        within_time_budget,
        gpu_utilization,
        curves_analysed,
        fit_assessed,
        gradients_checked,
        triggers_evaluated,
        recommendation_given,
        tuning_finished,
        best_config_identified,
        improvement_validated,
        exports_agree,
        documentation_written,
        reproduction_verified,
        test_opened_once,
        final_run_diagnosed,
        acceptance_met,
        source_committed,
    )
}
CHECKS["training_finished"] = finished


def run_check(name: str, record: Evidence, settings: Mapping[str, Any]) -> Outcome:
    """Return a check's outcome; evidence that is missing or of the wrong shape fails the item."""
    try:
        return CHECKS[name](record, settings_model(name).model_validate(dict(settings)))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as hole:
        found = {"missing": f"{type(hole).__name__}: {hole}"[:300]}
        return Outcome("fail", found, f"mltrainer phase run {record.get('phase', 'planning')}")
