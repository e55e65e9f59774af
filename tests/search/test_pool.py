"""Workers that live across runs, die, hang and are stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.configs.starting import Start
from mltrainer.configs.strategies import Distillation, Teacher
from mltrainer.errors import MachineError
from mltrainer.records.event import Running
from mltrainer.records.job import SearchJob, TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.search import pool as pools
from mltrainer.search import runs as of_runs
from mltrainer.search import workers
from mltrainer.search.pool import Pool, places
from mltrainer.search.runs import Runs
from mltrainer.search.trial import Trained
from mltrainer.search.workers import RunEnd
from mltrainer.workspace import read_json, write_json
from tests.search.silent import Silent
from tests.search.test_program import study
from tests.waiting import has_ended, until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(workers, "PROGRAM", "tests.search.worker_of_tests")
    monkeypatch.setattr(pools, "imported", lambda _: [])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.fixture
def pool(folder: Path) -> Iterator[Pool]:
    with Pool(folder, study_job(), [{}, {}], silent_s=60, note=print) as made:
        yield made


def study_job() -> SearchJob:
    return SearchJob.model_validate({**study({}, 1), "seeds": 5})


def job(folder: Path, name: str, **values: Any) -> Path:
    write_json(folder / "jobs" / f"{name}.json", {"do": "train", "times": 99, **values})
    return folder / "jobs" / f"{name}.json"


def ended(pool: Pool, count: int) -> list[RunEnd]:
    found: list[RunEnd] = []
    until(lambda: found.extend(pool.wait()) or len(found) >= count)
    return sorted(found, key=lambda one: one.nr)


def tried(folder: Path, name: str) -> set[str]:
    return {path.suffix for path in (folder / "jobs").glob(f"{name}.[0-9]*")}


def test_a_worker_takes_one_run_after_the_other(pool, folder):
    for nr in (1, 2, 3):
        pool.begin(nr, job(folder, f"job{nr}", reason=None if nr < 3 else "no such model"))
        assert ended(pool, 1) == [RunEnd(nr, None if nr < 3 else "no such model")]
    assert tried(folder, "job1") == tried(folder, "job2") == tried(folder, "job3")


@pytest.mark.slow
def test_what_is_trained_is_told_with_how_far_it_is(pool, folder):
    pool.begin(3, job(folder, "one", sleep=0.5, beat={"epoch": 2, "value": 0.5}))
    assert pool.running == [Running(nr=3)]
    until(lambda: pool.wait() or pool.running != [Running(nr=3)])
    assert pool.running == [Running(nr=3, epoch=2, value=0.5)]
    assert ended(pool, 1) == [RunEnd(3)]
    assert pool.running == []


def test_two_run_at_a_time_and_there_is_room_again_when_one_ends(pool, folder):
    assert (pool.room, pool.busy) == (2, 0)
    pool.begin(1, job(folder, "one", sleep=0.2))
    pool.begin(2, job(folder, "two", sleep=0.2))
    assert (pool.room, pool.busy) == (0, 2)
    assert ended(pool, 2) == [RunEnd(1), RunEnd(2)]
    assert (pool.room, pool.busy) == (2, 0)
    assert tried(folder, "one") != tried(folder, "two")


def test_a_worker_that_is_killed_loses_its_own_run_alone(pool, folder):
    pool.begin(1, job(folder, "dies", do="die"))
    pool.begin(2, job(folder, "lives", sleep=0.2))
    assert ended(pool, 2) == [RunEnd(1, death="its process ended with signal 9 (SIGKILL)"), RunEnd(2)]
    pool.begin(3, job(folder, "next"))
    assert ended(pool, 1) == [RunEnd(3)]


@pytest.fixture
def of_two(folder: Path) -> Iterator[Pool]:
    """Workers of two processes each."""
    with Pool(folder, study_job().model_copy(update={"processes": 2}), [{}], silent_s=60, note=print) as made:
        yield made


def test_processes_that_train_a_run_together_end_with_it(of_two, folder):
    for nr in (1, 2):
        of_two.begin(nr, job(folder, f"job{nr}", rank="0"), 2)
        assert ended(of_two, 1) == [RunEnd(nr)]
    pids = [int(path.suffix[1:]) for path in (folder / "jobs").glob("*.[0-9]*")]
    assert len(pids) == 4
    assert all(map(has_ended, pids))


def test_any_of_several_processes_that_is_killed_ends_the_run(of_two, folder):
    of_two.begin(1, job(folder, "dies", do="die", rank="1"), 2)
    how = "process 1 of 2 was ended by signal 9 (SIGKILL); the others were ended with it"
    assert ended(of_two, 1) == [RunEnd(1, death=how)]
    of_two.begin(2, job(folder, "next", rank="0"), 2)
    assert ended(of_two, 1) == [RunEnd(2)]


def test_any_of_several_processes_may_say_why_a_run_cannot_be_trained(of_two, folder):
    of_two.begin(1, job(folder, "fails", rank="1", reason="no such loss"), 2)
    assert ended(of_two, 1) == [RunEnd(1, "no such loss")]


def test_several_processes_that_are_stopped_leave_none(of_two, folder):
    of_two.begin(1, job(folder, "busy", do="hang"), 2)
    until(lambda: len(tried(folder, "busy")) == 2)
    of_two.stop(signal.SIGTERM)
    assert all(has_ended(int(one[1:])) for one in tried(folder, "busy"))


@pytest.mark.slow
def test_a_worker_that_says_nothing_is_killed(folder):
    with Pool(folder, study_job(), [{}], silent_s=1.0, note=print) as pool:
        pool.begin(1, job(folder, "hangs", do="hang"))
        assert ended(pool, 1) == [RunEnd(1, death="its process ended with signal 9 (SIGKILL)")]


def test_a_fault_of_the_machine_ends_the_study(pool, folder):
    pool.begin(1, job(folder, "full", do="full"))
    with pytest.raises(MachineError, match="no space left"):
        ended(pool, 1)


def test_workers_end_with_the_pool(folder):
    with Pool(folder, study_job(), [{}, {}], silent_s=60, note=print) as pool:
        pool.begin(1, job(folder, "busy", do="hang"))
        pool.begin(2, job(folder, "idle"))
        while not (tried(folder, "busy") and tried(folder, "idle")):
            time.sleep(0.05)
        processes = [int(next(iter(tried(folder, name)))[1:]) for name in ("busy", "idle")]
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_each_worker_has_a_place_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-7")
    assert places(None, "cuda", 1) == [{"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "GPU-7"}]
    assert len(places(3, "cuda", 1)) == len(places(3, "cpu", 1)) == 3
    cores = len(os.sched_getaffinity(0))
    assert len(places(None, "cpu", 1)) == cores
    assert len(places(None, "cpu", 2 * cores)) == 1


# --- runs -----------------------------------------------------------------------------------------


def runs_of(pool: Pool, signalled: list[str] | None = None) -> Runs:
    return Runs(study_job(), Path.cwd(), pool, Silent(), lambda: (signalled or [None])[0])


def test_a_run_is_held_to_the_files_that_its_study_was_planned_with(folder):
    row = {"path": "teacher.pt", "sha256": "0" * 64, "size": 3}
    runs = runs_of(SimpleNamespace(begin=lambda *_: None))  # type: ignore[arg-type]
    runs.job = SearchJob.model_validate({**study({}, 1), "input_files": [row]})
    runs.begin(1, runs.job.config, [])
    assert read_json(folder / runs._begun[1].folder / "job.json")["input_files"] == [row]


def result_of(runs: Runs, nr: int, path: Path) -> Trained:
    place = str(path.with_suffix("").relative_to(runs.root))
    config = runs.job.config
    runs._begun[nr] = TrainingJob(run=path.stem, purpose="train", folder=place, config=config, contract={}, threads=1)
    (path.with_suffix("") / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_json(path.with_suffix("") / "job.json", read_json(path))
    runs.pool.begin(nr, path.with_suffix("") / "job.json")
    found: list[Any] = []
    until(lambda: found.extend(runs.wait()) or found)
    return found[0][1]


def test_a_run_that_kills_its_worker_again_and_again_has_failed_with_the_reason(pool, folder):
    runs = runs_of(pool)
    found = result_of(runs, 1, job(folder, "bad", do="die"))
    assert found.reason == "its process ended with signal 9 (SIGKILL), 3 times"
    assert read_json(runs.folder / "state.json")["deaths"]["bad"] == ["its beginning"] * 3
    again = runs_of(pool)
    assert again.attempts("bad") == 4


def test_a_run_that_came_further_between_its_deaths_is_begun_again(pool, folder):
    runs = runs_of(pool)
    runs._deaths["slow"] = ["step-000010", "step-000020"]
    found = result_of(runs, 1, job(folder, "slow", do="die", times=2, reason="trained in the end"))
    assert found.reason == "trained in the end"
    assert runs.attempts("slow") == 5


def test_two_trials_of_one_config_are_one_run(pool, folder, monkeypatch):
    runs = runs_of(pool)
    config = runs.job.config
    told = {"id": "r", "state": "finished", "metrics": {}, "history": [], "steps": 2, "wall_s": 1.0, "train_samples": 64}
    result = partial(RunResult, told)
    monkeypatch.setattr(of_runs, "sound_result", lambda path, _: result if list(path.glob("job.[0-9]*")) else None)
    runs.begin(1, config, [])
    runs.begin(2, config, [])
    assert pool.busy == 1
    found: list[Any] = []
    while len(found) < 2:
        found += runs.wait()
    assert sorted(nr for nr, _ in found) == [1, 2]
    assert len(list(folder.glob(".mltrainer/runs/*/job.[0-9]*"))) == 1


def test_a_signal_stops_the_study_and_its_workers(pool, folder):
    runs = runs_of(pool, ["SIGINT"])
    pool.begin(1, job(folder, "busy", do="hang"))
    with pytest.raises(Exception, match="stopped by SIGINT") as stopped:
        runs.wait()
    assert getattr(stopped.value, "exit_code", None) == 128 + signal.SIGINT
    assert pool.busy == 0


def test_a_run_that_begins_with_other_weights_is_not_held_to_their_digest(pool, folder):
    runs = runs_of(pool)
    runs.job.contract["data_sha256"] = "of samples, splits and weights"
    config = runs.job.config
    pretrained = config.model_copy(update={"start": Start(weights="w.safetensors")})
    assert "data_sha256" in runs.contract(config)
    assert "data_sha256" not in runs.contract(pretrained)
    taught = config.model_copy(
        update={"strategies": [Distillation(name="distillation", teacher=Teacher(weights="w.safetensors"))]}
    )
    assert "data_sha256" not in runs.contract(taught)


def test_what_a_worker_prints_is_kept_without_secrets(folder, monkeypatch):
    secret = "hunter2-" + "Zx81kQ9w"
    monkeypatch.setenv("TRACKER_TOKEN", secret)
    job_file = job(folder, "one")
    job_file.write_text(json.dumps({"do": "train", "print": f"login with {secret} failed"}))
    with Pool(folder, study_job(), [{}], silent_s=60, note=print) as pool:
        pool.begin(1, job_file)
        assert ended(pool, 1) == [RunEnd(1)]
    assert (folder / ".mltrainer/studies/study/workers.txt").read_text().split() == (
        ["login", "with", "[removed:", "value", "of", "an", "environment", "variable]", "failed"]
    )
