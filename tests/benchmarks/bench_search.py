"""The search on digits: what a trial costs beyond its training, two workers beside one, and Optuna alone beside both.

PYTHONPATH=. python tests/benchmarks/bench_search.py [--trials 12] [--epochs 6] [--seeds 3] [--no-optuna] [--values]

Optuna alone is `study.optimize` with TPE, two at a time, whose objective trains the same config with `mltrainer.fit` in a
fresh process, as without a search tool one would. Prints a line of JSON for each measurement.
What a trial costs, and two workers beside one, is of the steady state; `start_s` is what the interpreters and their imports take.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mltrainer.configs.project import load_project
from mltrainer.configs.templates import baseline_template, overlay
from mltrainer.search.space import in_order
from mltrainer.search.suggest import new_study, suggested
from mltrainer.tools.mark import new_mark
from mltrainer.workspace import read_json, write_json

SPACE: dict[str, Any] = {
    "optimizer.lr": {"log_uniform": [1e-4, 3e-2]},
    "batch_size": {"choice": [32, 64, 128]},
    "model.dropout": {"uniform": [0.0, 0.5]},
}
ENDED = re.compile(r" *trial (\d+): ")  # what a search says of a trial's end
ALONE = """
import json, sys, mltrainer
config, values = json.loads(sys.stdin.read())
keys = {key: config[key] for key in config if key not in ("task", "name", "id", "acceptance", "budget")}
found = mltrainer.fit(config["task"], set=values, tell=lambda event: None, **keys)
print(found.metrics["accuracy"])
"""


def begun(folder: Path, epochs: int, seed: int) -> dict[str, Any]:
    """Make the digits example in a folder and return its config."""
    command = [sys.executable, "-m", "mltrainer", "init", str(folder), "--example", "digits"]
    subprocess.run(command, capture_output=True, check=True)
    project = load_project(folder / "mltrainer.yaml").model_dump()
    changes = {"epochs": epochs, "seed": seed, "early_stopping": None, "checkpoint": {"every_n_epochs": epochs, "keep": 0}}
    return overlay({**baseline_template(folder), **project}, changes)


def searched(folder: Path, config: dict[str, Any], trials: int, workers: int, strategy: str = "tpe") -> dict[str, Any]:
    """Return what a search gave, and its wall time as `seconds`, its interpreter's start included."""
    job = {
        "schema": 1,
        "run": "bench",
        "phase": "optimization",
        "folder": f".mltrainer/studies/{workers}",
        "threads": 1,
        "space": SPACE,
        "trials": trials,
        "strategy": strategy,
        "lag": 4,
        "workers": workers,
        "seeds": 1,
        "config": config,
        "contract": {"code_sha256": "0", "environment_sha256": f"{workers}"},
        "code_files": [],
        "gate": None,
        "parent": None,
    }
    job["launch"], mark = new_mark()
    path = folder / job["folder"] / "job.json"
    write_json(path, job)
    begin = time.perf_counter()
    command = [sys.executable, "-P", "-m", "mltrainer.tools.search", str(path)]
    environment = {**os.environ, **_one_thread(), **mark}
    ends: dict[int, float] = {}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout or ():
            if ended := ENDED.match(json.loads(line).get("text", "")):
                ends[int(ended[1])] = time.perf_counter() - begin
    seconds = time.perf_counter() - begin
    return {**read_json(path.with_name("result.json")), "seconds": seconds, "ends": ends}


def beyond(found: dict[str, Any]) -> list[float]:
    """Return the milliseconds from each trial's end to the next one's beyond what that one's run took; of one worker."""
    wall = {trial["nr"]: trial["wall_s"] for trial in found["trials"]}
    ends = found["ends"]
    return [1000 * (ends[nr] - ends[nr - 1] - wall[nr]) for nr in sorted(ends) if nr - 1 in ends]


def per_hour(found: dict[str, Any], workers: int) -> float:
    """Return the trials per hour once each worker has had one, without the start of processes and their imports."""
    ends = sorted(found["ends"].values())
    return 3600 * (len(ends) - workers) / (ends[-1] - ends[workers - 1])


def _one_thread() -> dict[str, str]:
    return {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def optuna_alone(config: dict[str, Any], trials: int, folder: Path) -> tuple[float, float]:
    """Return the wall time and the best value of Optuna with a process for each trial, two at a time."""
    from optuna.samplers import TPESampler

    from mltrainer.configs.project import Metric

    def objective(trial: Any) -> float:
        values = {key: suggested(trial, key, SPACE[key]) for key in in_order(SPACE)}
        asked = json.dumps([config, values])
        command = [sys.executable, "-c", ALONE]
        said = subprocess.run(
            command, input=asked, cwd=folder, capture_output=True, text=True, check=True, env={**os.environ, **_one_thread()}
        )
        return float(said.stdout)

    study = new_study(Metric(name="accuracy", mode="max"))
    study.sampler = TPESampler(seed=config["seed"], multivariate=True, constant_liar=True)
    begin = time.perf_counter()
    study.optimize(objective, n_trials=trials, n_jobs=2)
    return time.perf_counter() - begin, study.best_value


def best_values(seeds: int, trials: int, epochs: int) -> None:
    """Print the best value of each search beside that of Optuna alone, whose objective is trained in this process in turn."""
    found = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as name:
            config = begun(Path(name) / "digits", epochs, seed)
            rows = searched(Path(name) / "digits", config, trials, 2)["trials"]
            found.append((max(row["value"] for row in rows), _optuna_here(config, trials)))
            print(json.dumps({"seed": seed, "best": found[-1][0], "best_of_optuna_alone": found[-1][1]}), flush=True)
    ahead = [ours - theirs for ours, theirs in found]
    error = statistics.stdev(ahead) / len(ahead) ** 0.5
    print(json.dumps({"seeds": seeds, "mean_ahead": round(statistics.fmean(ahead), 5), "standard_error": round(error, 5)}))


def _optuna_here(config: dict[str, Any], trials: int) -> float:
    from optuna.samplers import TPESampler

    from mltrainer import fit
    from mltrainer.configs.project import Metric

    keys = {key: config[key] for key in config if key not in ("task", "name", "id", "acceptance", "budget")}

    def objective(trial: Any) -> float:
        values = {key: suggested(trial, key, SPACE[key]) for key in in_order(SPACE)}
        return float(fit(config["task"], set=values, tell=lambda _event: None, **keys).metrics["accuracy"])

    study = new_study(Metric(name="accuracy", mode="max"))
    study.sampler = TPESampler(seed=config["seed"], multivariate=True)
    study.optimize(objective, n_trials=trials)
    return float(study.best_value)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-optuna", dest="optuna", action="store_false", help="mltrainer's own figures alone")
    parser.add_argument("--values", action="store_true", help="the best values alone, and not how long they took")
    asked = parser.parse_args()
    if asked.values:
        best_values(asked.seeds, asked.trials, asked.epochs)
        return
    for seed in range(asked.seeds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "digits"
            config = begun(folder, asked.epochs, seed)
            found = {workers: searched(folder, config, asked.trials, workers) for workers in (1, 2)}
            seconds, best = optuna_alone(config, asked.trials, folder) if asked.optuna else (float("nan"), float("nan"))
        trained = sum(trial["wall_s"] for trial in found[1]["trials"])
        values = [trial["value"] for trial in found[2]["trials"]]
        told = {
            "seed": seed,
            "trial_s": round(trained / asked.trials, 2),
            "beyond_training_ms": round(statistics.median(beyond(found[1])), 1),
            "start_s": round(found[1]["ends"][1] - found[1]["trials"][0]["wall_s"], 2),
            "one_worker_s": round(found[1]["seconds"], 1),
            "two_workers_s": round(found[2]["seconds"], 1),
            "trials_per_hour_ratio": round(per_hour(found[2], 2) / per_hour(found[1], 1), 2),
            "search_ratio_with_start": round(found[1]["search_s"] / found[2]["search_s"], 2),
            "optuna_alone_s": round(seconds, 1),
            "of_optuna_alone": round(found[2]["search_s"] / seconds, 2),
            "same_table": [t["value"] for t in found[1]["trials"]] == values,
            "best": max(values),
            "best_of_optuna_alone": best,
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
