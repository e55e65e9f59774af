"""A small seeded random search in one process: trial k is a function of (seed, k), so a study can stop and go on."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig, bits_config
from mltrainer.errors import InputError, StoppedError
from mltrainer.reproducibility import seeds
from mltrainer.tools.program import Events, StopSignals
from mltrainer.tools.training_orchestrator.program import EXIT_CODES, run_job
from mltrainer.tools.training_orchestrator.stopping import value_of
from mltrainer.workspace import digest, read_json, write_json


def draw(dimension: dict[str, Any], seed: int, trial: int, key: str) -> Any:
    """Return one value of a dimension for a trial; its address is (seed, "tuner", key, trial).

    Args:
        dimension: `choice`, `uniform` or `log_uniform`.
        seed: The study's seed.
        trial: The trial's number, from 1.
        key: The config key.
    """
    generator = seeds.generator(seed, f"tuner/{key}", trial)
    if dimension.get("choice") is not None:
        return dimension["choice"][int(generator.integers(len(dimension["choice"])))]
    if dimension.get("uniform") is not None:
        low, high = dimension["uniform"]
        return float(generator.uniform(low, high))
    low, high = dimension["log_uniform"]
    return float(math.exp(generator.uniform(math.log(low), math.log(high))))


def with_values(config: dict[str, Any], values: dict[str, Any], seed: int | None = None) -> TrainingConfig:
    """Return a config with some dotted keys, and perhaps its seed, replaced; the splits stay those of the study's seed."""
    result = dict(config)
    if seed is not None:
        split_seed = config["seed"] if config["split"]["seed"] is None else config["split"]["seed"]
        result |= {"seed": seed, "split": {**config["split"], "seed": split_seed}}
    for key, value in values.items():
        result = _replace(result, key.split("."), value)
    return TrainingConfig.model_validate(result)


def _replace(values: dict[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    return {**values, keys[0]: value if len(keys) == 1 else _replace(values[keys[0]], keys[1:], value)}


def work(job: dict[str, Any], events: Events) -> int:
    """Run a study: trials, the best of them, and its comparison with the baseline at equal budget.

    Raises:
        StoppedError: A signal stopped it; finished trials are kept and not run again.
    """
    stop = StopSignals(events)
    config = job["config"]
    trials = [_trial(job, number, events, stop) for number in range(1, job["trials"] + 1)]
    finished = [trial for trial in trials if trial["state"] == "finished"]
    sign = 1 if config["metric"]["mode"] == "max" else -1
    best = max(finished, key=lambda t: (sign * t["value"], -t["nr"]), default=None)
    comparison = _comparison(job, best["values"] if best else {}, events, stop)
    result = {"trials": trials, "best": best["nr"] if best else None, "comparison": comparison}
    write_json(Path.cwd() / job["folder"] / "result.json", result)
    return 0


def _trial(job: dict[str, Any], number: int, events: Events, stop: StopSignals) -> dict[str, Any]:
    config = job["config"]
    values = {key: draw(dimension, config["seed"], number, key) for key, dimension in sorted(job["space"].items())}
    events.send("trial", nr=number, trials=job["trials"], values=values)
    try:
        chosen = with_values(config, values)
    except ValueError as error:
        raise InputError(
            f"trial {number} has a config that is not valid: {error}", where="configs/tuning_template.yaml"
        ) from error
    result = _run(job, chosen, events, stop)
    value = result["metrics"].get(config["metric"]["name"], math.nan)
    state = result["state"] if not isinstance(value, float) or math.isfinite(value) else "failed"
    return {
        "nr": number,
        "run": result["id"],
        "values": values,
        "seed": chosen.seed,
        "state": state,
        "value": value,
        "steps": result["steps"],
        "wall_s": result["wall_s"],
    }


def _comparison(job: dict[str, Any], values: dict[str, Any], events: Events, stop: StopSignals) -> dict[str, Any]:
    """Train candidate and baseline on the same fresh seeds at equal budget."""
    fresh = [seeds.key(job["config"]["seed"], "comparison", number) % 2**32 for number in range(job["seeds"])]
    metric = with_values(job["config"], {}).metric
    scores: dict[str, list[float]] = {}
    for name, chosen in (("baseline", {}), ("candidate", values)):
        events.send("note", text=f"{name} on {len(fresh)} fresh seeds")
        runs = [_run(job, with_values(job["config"], chosen, seed), events, stop) for seed in fresh]
        scores[name] = [run["metrics"].get(metric.name, math.nan) for run in runs]
    pairs = zip(scores["candidate"], scores["baseline"], strict=True)
    differences = [
        value_of({"validation": {metric.name: c}}, metric) - value_of({"validation": {metric.name: b}}, metric) for c, b in pairs
    ]
    mean = statistics.fmean(differences)
    return {
        "seeds": fresh,
        **scores,
        "differences": differences,
        "mean_difference": mean,
        "worst_difference": min(differences),
        "test": "exact sign-flip, one-sided",
    }


def _run(job: dict[str, Any], config: TrainingConfig, events: Events, stop: StopSignals) -> dict[str, Any]:
    """Return the result of one run of the study; a finished one is not run again."""
    contract = {"config_sha256": digest(bits_config(config.model_dump())), **job["contract"]}
    run = digest(contract)[:12]
    folder = f".mltrainer/runs/{run}"
    path = Path.cwd() / folder / "result.json"
    if path.exists() and (known := read_json(path))["state"] in ("finished", "failed"):
        return dict(known)
    own = {
        "schema": 1,
        "run": run,
        "phase": "optimization",
        "purpose": "train",
        "folder": folder,
        "config": config.model_dump(),
        "gate": job["gate"],
        "contract": contract,
        "code_files": job["code_files"],
        "parent": job["parent"],
        "threads": config.threads,
    }
    write_json(Path.cwd() / folder / "job.json", own)
    result = run_job(own, events, stop)
    if result["stop_reason"] == "signal":
        cause = result["interruptions"][-1]["cause"]
        raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], mend="type the same command again to go on")
    return result
