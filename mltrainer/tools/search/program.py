"""A small seeded random search in one process: trial k is a function of (seed, k), so a study can stop and go on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from mltrainer.configs.loading import assign, validate_values
from mltrainer.configs.project import Metric, TrainingConfig, config_digest
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.reproducibility import seeds
from mltrainer.reproducibility.secrets import redact
from mltrainer.reproducibility.witnesses import has_ended, set_aside, sound_result
from mltrainer.tools.program import Events, StopSignals, explained
from mltrainer.tools.trainer.program import EXIT_CODES, run_job
from mltrainer.workspace import digest, plain, write_json

Values = dict[str, Any]
Row = dict[str, Any]
NO_COMPARISON: Row = {"seeds": [], "baseline": [], "candidate": []}


def work(job: dict[str, Any], events: Events) -> int:
    """Run a study: trials, the best of them, and its comparison with the baseline at equal budget.

    Args:
        job: `space`, `trials`, `config` (the one that a trial's values change), `seeds` (how many the comparison takes),
            `contract`, `code_files`, `gate` and `parent` as in a training job, and `folder`, where `result.json` goes.
        events: Where progress goes.

    Raises:
        InputError: A trial's config is not valid, and then none is run; or not one of them could be trained.
        StoppedError: A signal stopped it; finished trials are kept and not run again.
    """
    study = Study(job, events)
    drawn = [trial_values(job["space"], job["config"]["seed"], number) for number in range(1, job["trials"] + 1)]
    configs = [trial_config(job["config"], values, f"trial {number}") for number, values in enumerate(drawn, 1)]
    trials = [study.trial(number, *pair) for number, pair in enumerate(zip(drawn, configs, strict=True), 1)]
    if not any(trial["steps"] for trial in trials):
        raise InputError(
            f"no trial could be trained; trial 1: {trials[0]['reason']}", mend="mend it, then type the same command again"
        )
    best = best_trial(trials, job["config"]["metric"]["mode"])
    comparison = study.compare(best["values"]) if best else NO_COMPARISON
    write_json(
        study.root / job["folder"] / "result.json", {"trials": trials, "best": best and best["nr"], "comparison": comparison}
    )
    return 0


# --- trials as functions of seed and number -------------------------------------------------------


def draw(dimension: Mapping[str, Any], seed: int, trial: int, key: str) -> Any:
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


def trial_values(space: Mapping[str, Mapping[str, Any]], seed: int, trial: int) -> Values:
    """Return a trial's values by dotted key: a function of seed and number alone, whatever ran before."""
    return {key: draw(dimension, seed, trial, key) for key, dimension in sorted(space.items())}


def trial_config(config: Values, values: Values, where: str = "the candidate") -> TrainingConfig:
    """Return a config with some dotted keys replaced.

    Raises:
        InputError: They do not fit together; `where` says whose they are.
    """
    return validate_values(TrainingConfig, assign(config, values.items()), f"configs/tuning_template.yaml, {where}")


def reseeded(config: TrainingConfig, seed: int) -> TrainingConfig:
    """Return a config under a fresh seed; samples and splits stay those of the study, so that only luck changes."""
    return config.model_copy(update={"seed": seed, "split": config.split.model_copy(update={"seed": config.data_seed})})


def best_trial(trials: Iterable[Row], mode: str) -> Row | None:
    """Return the finished trial with the best value, the earlier of equals; one that failed is never the best."""
    sign = 1 if mode == "max" else -1
    finished = [trial for trial in trials if trial["state"] == "finished"]
    return max(finished, key=lambda trial: (sign * trial["value"], -trial["nr"]), default=None)


def outcome(result: Row, metric: Metric) -> Row:
    """Return a run as a study sees it.

    Returns:
        `state`: "finished" or "failed"; `value`: the metric, NaN for a run that failed; `reason`: why it failed, or None.
    """
    value, nonfinite, reason = plain(result["metrics"].get(metric.name)), result.get("nonfinite"), result.get("reason")
    if nonfinite:
        reason = f"the {nonfinite['what']} was not finite at step {nonfinite['step']}"
    elif reason is None and not isinstance(value, int | float):
        reason = f"{metric.name} is {value}"
    return (
        {"state": "failed", "value": math.nan, "reason": reason}
        if reason
        else {"state": "finished", "value": value, "reason": None}
    )


# --- a study --------------------------------------------------------------------------------------


class Study:
    """The runs of one study, each trained once.

    Args:
        job: As for `work`.
        events: Where progress goes.
    """

    def __init__(self, job: dict[str, Any], events: Events) -> None:
        self.job, self.events, self.root = job, events, Path.cwd()
        self.metric = Metric.model_validate(job["config"]["metric"])
        self._stop = StopSignals(events)

    def trial(self, number: int, values: Values, config: TrainingConfig) -> Row:
        """Return one trial, run now or found."""
        self.events.send("trial", nr=number, trials=self.job["trials"], values=values)
        result = self._run(config)
        found = outcome(result, self.metric)
        self.events.send("note", text=f"  {_told(found, self.metric)}")
        own = {"nr": number, "run": result["id"], "values": values, "seed": config.seed}
        return {**own, **found, "steps": result["steps"], "wall_s": result["wall_s"]}

    def compare(self, values: Values) -> Row:
        """Train the baseline and the candidate on the same fresh seeds; a run that failed has the value "nan"."""
        config = self.job["config"]
        fresh = [seeds.key(config["seed"], "comparison", number) % 2**32 for number in range(self.job["seeds"])]
        sides = {"baseline": trial_config(config, {}), "candidate": trial_config(config, values)}
        scores = {name: list(self._scores(name, side, fresh)) for name, side in sides.items()}
        return {"seeds": fresh, **scores}

    def _scores(self, name: str, config: TrainingConfig, fresh: list[int]) -> Iterator[Any]:
        self.events.send("note", text=f"{name} on {len(fresh)} fresh seeds")
        for seed in fresh:
            found = outcome(self._run(reseeded(config, seed)), self.metric)
            self.events.send("note", text=f"  seed {seed}: {_told(found, self.metric)}")
            yield found["value"]

    def _run(self, config: TrainingConfig) -> Row:
        """Return the result of one run: found, resumed or trained now. A run whose own config or code fails is a result too.

        Raises:
            StoppedError: A signal stopped it.
        """
        values = config.model_dump()
        contract = {**self.job["contract"], "config_sha256": config_digest(config)}
        run = digest(contract)[:12]
        folder = f".mltrainer/runs/{run}"
        if (known := sound_result(self.root / folder, contract)) is not None and known["state"] in ("finished", "failed"):
            return known
        if has_ended(self.root / folder):
            kept = set_aside(self.root / folder).name
            self.events.send("note", text=f"run {run} is not what it was: kept as {kept}, and trained again")
        job = {
            "schema": 1,
            "run": run,
            "phase": "optimization",
            "purpose": "train",
            "folder": folder,
            "config": values,
            "contract": contract,
            "threads": config.threads,
            **{key: self.job[key] for key in ("gate", "code_files", "parent")},
        }
        write_json(self.root / folder / "job.json", job)
        return self._trained(job)

    def _trained(self, job: Row) -> Row:
        try:
            result = run_job(job, self.events, self._stop, is_launched=True)
        except (InputError, torch.OutOfMemoryError) as error:
            return _failed(job, error)
        except MltrainerError:
            raise
        except Exception as error:
            told = explained(error, self.root, self.root / job["folder"])
            if not isinstance(told, InputError):
                raise
            return _failed(job, told)
        if result["stop_reason"] == "signal":
            cause = result["interruptions"][-1]["cause"]
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], mend="type the same command again to go on")
        return result


def _failed(job: Row, error: Exception) -> Row:
    """Return what stands for the result of a run that could not be trained: its config or the user's code failed."""
    return {"id": job["run"], "metrics": {}, "steps": 0, "wall_s": None, "reason": redact(str(error).partition("\n")[0])}


def _told(found: Row, metric: Metric) -> str:
    return f"failed: {found['reason']}" if found["reason"] else f"{metric.name} {found['value']:.4g}"
