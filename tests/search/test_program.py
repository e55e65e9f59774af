"""The tuner: trials are functions of seed and number, failures are shown and never win, and finished runs are kept."""

from __future__ import annotations

import contextlib
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import Metric, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.gates.statistics import improvements, is_better
from mltrainer.phases.optimization import judged
from mltrainer.records.optimization import Comparison
from mltrainer.records.pareto import best_trial
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.reproducibility.packs import pack
from mltrainer.search.space import draw, reseeded, trial_config, trial_values
from mltrainer.search.study import outcome
from mltrainer.search.trial import Outcome, Trained, Trial
from mltrainer.tools.mark import new_mark
from mltrainer.workspace import read_json, write_json
from tests.projects import PROJECT, TASK, write_rings

SPACE: dict[str, Any] = {
    "optimizer.lr": {"log_uniform": [1e-3, 1e-1]},
    "batch_size": {"choice": [16, 32]},
    "optimizer.weight_decay": {"uniform": [0.0, 0.5]},
}
ACCURACY = Metric(name="accuracy", mode="max")


def config(**changes: Any) -> dict[str, Any]:
    return TrainingConfig.model_validate({**PROJECT, "epochs": 2, **changes}).model_dump()


# --- drawing --------------------------------------------------------------------------------------


def test_a_trial_is_a_function_of_seed_and_number():
    assert trial_values(SPACE, 42, 3) == trial_values(dict(reversed(SPACE.items())), 42, 3)
    drawn = [trial_values(SPACE, seed, number) for seed in (1, 2) for number in (1, 2, 3)]
    assert len({row["optimizer.lr"] for row in drawn}) == 6


def test_a_dimension_that_joins_the_space_leaves_the_others_alone():
    smaller = trial_values({"optimizer.lr": SPACE["optimizer.lr"]}, 42, 3)
    assert trial_values(SPACE, 42, 3)["optimizer.lr"] == smaller["optimizer.lr"]


def test_what_is_drawn_stays_within_its_dimension():
    drawn = [trial_values(SPACE, 0, number) for number in range(1, 200)]
    assert all(1e-3 <= row["optimizer.lr"] <= 1e-1 and 0 <= row["optimizer.weight_decay"] <= 0.5 for row in drawn)
    assert {row["batch_size"] for row in drawn} == {16, 32}
    assert 60 < sum(row["optimizer.lr"] < 1e-2 for row in drawn) < 140  # half of a logarithmic range


def test_a_choice_may_hold_lists_and_nothing():
    assert {str(draw({"choice": [[64], None]}, 0, number, "k")) for number in range(20)} == {"[64]", "None"}


# --- configs --------------------------------------------------------------------------------------


def test_another_optimizer_may_be_searched_beside_its_rate():
    found = trial_config(config(), {"optimizer.lr": 0.5, "optimizer.name": "sgd"})
    assert (found.optimizer.name, found.optimizer.lr) == ("sgd", 0.5)


def test_values_that_do_not_fit_name_their_trial():
    with pytest.raises(InputError, match=r"tuning_template\.yaml, trial 7, key optimizer\.lr: .* found -1"):
        trial_config(config(), {"optimizer.lr": -1.0}, "trial 7")


@pytest.mark.parametrize(("split", "expected"), [({}, 42), ({"seed": 7}, 7)])
def test_a_fresh_seed_leaves_samples_and_splits_alone(split, expected):
    found = reseeded(TrainingConfig.model_validate(config(split={"validation": 0.2, **split})), 99)
    assert (found.seed, found.data_seed) == (99, expected)


# --- outcomes -------------------------------------------------------------------------------------


def result(value: Any, **more: Any) -> Trained:
    return Trained("r", {"accuracy": value}, result=partial(RunResult, more))


FAILURES = {
    "accuracy is nan": result(math.nan),
    "accuracy is inf": result("inf"),
    "accuracy is None": Trained("r"),
    "the loss was not finite at step 3": result(0.9, nonfinite={"what": "loss", "step": 3}),
    "my_task.py:5: ValueError: no": Trained("r", reason="my_task.py:5: ValueError: no"),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_a_run_without_a_finite_end_has_failed_with_a_reason(reason):
    found = outcome(FAILURES[reason], ACCURACY)
    assert (found.state, found.reason) == ("failed", reason)
    assert math.isnan(found.value)


def test_a_run_with_a_finite_end_has_finished():
    assert outcome(result(0.9), ACCURACY) == Outcome("finished", 0.9)


def trials(*values: float) -> list[Trial]:
    known: dict[str, Any] = {"values": {}, "seed": 0, "run": "r", "reason": None, "steps": 1, "wall_s": 1.0}
    states = ["failed" if math.isnan(value) else "finished" for value in values]
    return [Trial(nr=nr, state=state, value=v, **known) for nr, (state, v) in enumerate(zip(states, values, strict=True), 1)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "mode", "best"),
    [((0.1, 0.9, 0.5), "max", 2), ((0.1, 0.9), "min", 1), ((0.5, 0.5), "max", 1), ((math.nan, -3.0), "max", 2)],
)
def test_the_best_is_the_first_of_the_best_that_finished(values, mode, best):
    found = best_trial(trials(*values), mode)
    assert found.nr == best


def test_when_every_trial_failed_none_is_the_best():
    assert best_trial(trials(math.nan, math.nan), "max") is None


# --- the comparison -------------------------------------------------------------------------------


def test_improvements_follow_the_metrics_direction():
    assert improvements([3, 4], [1.0, 5.0], "max") == [2.0, -1.0]
    assert improvements([3, 4], [1.0, 5.0], "min") == [-2.0, 1.0]


@pytest.mark.parametrize("bad", ["nan", None, math.inf])
@pytest.mark.parametrize("side", ["candidate", "baseline"])
def test_a_run_that_failed_leaves_nothing_to_conclude(side, bad):
    values = {"candidate": [0.9] * 5, "baseline": [0.1] * 5, "seeds": [1, 2, 3, 4, 5]}
    comparison = partial(Comparison, {**values, side: [bad, *values[side][1:]]})
    differences = improvements(comparison.candidate, comparison.baseline, "max")
    found = judged(comparison, differences)
    assert (found.differences, found.mean_difference, found.worst_difference) == ([], None, None)
    assert not is_better(differences, 5, 0.05)


@pytest.mark.parametrize(
    ("differences", "seeds", "better"),
    [
        ([0.1] * 5, 5, True),
        ([0.1] * 4, 4, False),
        ([0.1] * 5, 6, False),
        ([0.1, 0.1, 0.1, 0.1, -0.2], 5, False),
        ([0.0] * 5, 5, False),
        ([], 0, False),
    ],
    ids=["every seed", "too few for the level", "fewer than asked for", "one seed against it", "no difference", "nothing"],
)
def test_better_means_by_more_than_luck(differences, seeds, better):
    assert is_better(differences, seeds, 0.05) is better


# --- real studies ---------------------------------------------------------------------------------

TUNED = TASK.replace("pause=0.0):", "pause=0.0, poison=0.0, wrong=False):").replace(
    "self.n, self.pause = n, pause", "self.n, self.pause, self.poison, self.wrong = n, pause, poison, wrong"
)
TUNED = TUNED.replace("    def model(self):\n", "    def model(self):\n        assert not self.wrong, 'no such model'\n").replace(
    "cross_entropy(outputs, targets)\n\n    def metrics",
    "cross_entropy(outputs, targets) / (self.poison < 0.5)\n\n    def metrics",
)


def study(space: dict[str, Any], count: int, **changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "run": "study",
        "phase": "optimization",
        "folder": ".mltrainer/studies/study",
        "space": space,
        "trials": count,
        "strategy": "random",
        "seeds": 2,
        "config": config(batch_size=32, **changes),
        "contract": {"code_sha256": "0", "environment_sha256": "0"},
        "code_files": [],
        "gate": None,
        "parent": None,
        "threads": 1,
    }


def start(root: Path, job: dict[str, Any]) -> subprocess.Popen[bytes]:
    path = root / job["folder"] / "job.json"
    launch, mark = new_mark()
    write_json(path, {**job, "launch": launch})
    command = [sys.executable, "-P", "-m", "mltrainer.tools.search", str(path)]
    environment = {**os.environ, **mark}
    return subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def run(root: Path, job: dict[str, Any]) -> tuple[int, str, dict[str, Any]]:
    """Run a study to its end; return the exit code, its events and its result."""
    process = start(root, job)
    said, _ = process.communicate()
    path = root / job["folder"] / "result.json"
    return int(process.returncode), said.decode(), read_json(path) if path.exists() else {}


def trained(root: Path) -> dict[str, float]:
    """Return when each run's result was written."""
    return {path.parent.name: path.stat().st_mtime for path in (root / ".mltrainer/runs").glob("*/result.json")}


@pytest.mark.slow
def test_a_study_shows_failures_compares_on_the_same_splits_and_trains_nothing_twice(tmp_path):
    root = write_rings(tmp_path, TUNED).root
    space = {"task.options.poison": {"choice": [0.0, 1.0]}, "task.options.wrong": {"choice": [False, True]}}
    job = study(space, 3, seed=5)  # draws one of each: a healthy trial, one that diverges, one that cannot be made
    code, said, found = run(root, job)
    assert code == 0, said
    assert [(t["state"], t["reason"]) for t in found["trials"]] == [
        ("finished", None),
        ("failed", "the loss was not finite at step 1"),
        ("failed", "my_task.py:35: AssertionError: no such model"),
    ]
    assert found["best"] == 1
    assert len(found["comparison"]["candidate"]) == len(found["comparison"]["baseline"]) == 2
    results = [read_json(root / ".mltrainer/runs" / name / "result.json") for name in trained(root)]
    assert len({r["data_sha256"] for r in results}) == 1
    assert {r["seed"] for r in results} == {5, *found["comparison"]["seeds"]}
    before = trained(root)
    pack(root / ".mltrainer/runs", before)
    assert trained(root) == {}
    code, _, again = run(root, job)
    untimed = {"search_s": 0, "comparison_s": 0}
    assert (code, {**again, **untimed}) == (0, {**found, **untimed})
    assert again["search_s"] > found["search_s"] > 1  # of both processes
    # Restored and not trained again; a zip file notes times to two seconds.
    assert trained(root) == pytest.approx(before, abs=2)


@pytest.mark.slow
@pytest.mark.long
def test_an_interrupted_study_goes_on_and_ends_as_if_nothing_had_been(tmp_path):
    task = {"use": "my_task:Rings", "options": {"n": 100, "pause": 0.02}}
    job = {**study({"optimizer.lr": SPACE["optimizer.lr"]}, 3, task=task), "seeds": 1}
    root = write_rings(tmp_path / "stopped").root
    process = start(root, job)
    while process.poll() is None and len(trained(root)) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said.decode()
    kept = {
        name: when
        for name, when in trained(root).items()
        if read_json(root / f".mltrainer/runs/{name}/result.json")["state"] == "finished"
    }
    assert 1 < len(kept) < 5
    code, _, found = run(root, job)
    assert code == 0
    assert kept.items() <= trained(root).items()
    whole = run(write_rings(tmp_path / "whole").root, job)[2]
    assert [{**t, "wall_s": 0} for t in found["trials"]] == [{**t, "wall_s": 0} for t in whole["trials"]]
    assert (found["best"], found["comparison"]) == (whole["best"], whole["comparison"])


@pytest.mark.slow
def test_when_no_trial_can_be_trained_the_study_says_why(tmp_path):
    root = write_rings(tmp_path, TUNED).root
    code, said, found = run(root, study({"task.options.wrong": {"choice": [True]}}, 2))
    assert (code, found) == (1, {})
    assert "no trial could be trained; trial 1: " in said


@pytest.mark.slow
def test_a_trial_that_does_not_fit_is_refused_before_any_is_run(tmp_path):
    root = write_rings(tmp_path).root
    code, said, _ = run(root, study({"epochs": {"choice": [1, 0]}}, 12))
    assert code == 1
    assert "trial" in said
    assert trained(root) == {}


# --- one table, whatever happens ------------------------------------------------------------------

LEARNING: dict[str, Any] = {"strategy": "tpe", "lag": 3, "pruning": {"name": "successive_halving", "eta": 3, "first": 1}}


def table(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trials without what only tells how long they took."""
    return [{key: value for key, value in trial.items() if key not in ("wall_s", "attempts")} for trial in found["trials"]]


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


@pytest.mark.slow
@pytest.mark.long
def test_one_table_with_any_number_of_workers_and_after_many_kills(tmp_path):
    task = {"use": "my_task:Rings", "options": {"n": 60, "pause": 0.1}}
    job = {**study(SPACE, 12, epochs=4, task=task), **LEARNING, "seeds": 1}
    alone = run(write_rings(tmp_path / "alone").root, {**job, "workers": 1})[2]
    together = run(write_rings(tmp_path / "together").root, {**job, "workers": 4})[2]
    assert table(alone) == table(together)
    assert alone["comparison"] == together["comparison"]
    root, luck, kills = write_rings(tmp_path / "killed").root, random.Random(0), 0
    while kills < 10:
        process = start(root, {**job, "workers": 2})
        time.sleep(luck.uniform(2, 3))
        victims = [process.pid, *children(process.pid)]
        if process.poll() is not None:
            break  # all is trained: a quick machine has fewer kills
        os.kill(luck.choice(victims), signal.SIGKILL)
        kills += 1
        time.sleep(luck.uniform(0, 1))
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
    assert kills >= 4
    code, said, killed = run(root, {**job, "workers": 2})
    assert code == 0, said
    assert table(killed) == table(alone)
    assert killed["comparison"] == alone["comparison"]


@pytest.mark.slow
@pytest.mark.long
def test_two_machines_of_which_one_is_killed_have_the_table_of_one(tmp_path):
    task = {"use": "my_task:Rings", "options": {"n": 60, "pause": 0.005}}
    job = {**study(SPACE, 8, epochs=4, task=task), **LEARNING, "seeds": 1, "workers": 1}
    alone = run(write_rings(tmp_path / "alone").root, job)[2]
    shared = {**job, "storage": f"sqlite:///{tmp_path / 'shared.db'}"}
    one, two = (write_rings(tmp_path / name).root for name in ("one", "two"))
    first, second = start(one, shared), start(two, shared)
    while not list((one / ".mltrainer/runs").glob("*/checkpoints/step-*")):
        assert first.poll() is None
        time.sleep(0.05)
    for victim in (*children(first.pid), first.pid):
        os.kill(victim, signal.SIGKILL)
    first.communicate()
    code, said, again = run(one, shared)
    assert code == 0, said
    second.communicate()
    other = read_json(two / shared["folder"] / "result.json")
    assert table(again) == table(other) == table(alone)
    assert again["comparison"] == other["comparison"] == alone["comparison"]
    compared = 2 * job["seeds"]
    assert len(trained(one)) + len(trained(two)) == 8 + compared + 1  # the best one is trained on both


@pytest.mark.slow
@pytest.mark.long
def test_a_trial_in_a_used_worker_has_the_bits_of_a_fresh_process(tmp_path):
    root = write_rings(tmp_path).root
    job = {**study({"optimizer.lr": SPACE["optimizer.lr"]}, 4), "workers": 1}
    found = run(root, job)[2]
    runs = [trial["run"] for trial in found["trials"]]
    used = [read_json(root / f".mltrainer/runs/{name}/result.json")["chain"] for name in runs]
    assert len(set(map(str, used))) == 4
    shutil.rmtree(root / ".mltrainer")
    run(root, {**job, "workers": 4})  # each of the four is the first of its worker
    assert [read_json(root / f".mltrainer/runs/{name}/result.json")["chain"] for name in runs] == used
