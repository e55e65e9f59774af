"""What every engine keeps: begin, death, loss, stop and resumption of a run, and a second attempt at it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mltrainer.errors import DifferenceError, InputError
from mltrainer.executors.executor import EngineAwayError, RemoteCommand, portable
from mltrainer.records.job import SearchJob, TrainingJob
from mltrainer.search import pool as pools
from mltrainer.search import remote_pool
from mltrainer.search import workers as pooled
from mltrainer.search.attempts import Begun, attempts_at, new_attempt
from mltrainer.search.workers import RunEnd, Workers, end_of, pause_s
from mltrainer.workspace import is_sealed, read_json, seal, write_json
from tests.executors.engines import KINDS, QUICK, Here, Machines, ends, kill_here, kill_tree, supervisors
from tests.search.test_program import config, study
from tests.waiting import until

ROOT = Path(__file__).parents[2]
KILLED = "its process ended with signal 9 (SIGKILL)"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pooled, "PROGRAM", "tests.executors.worker_of_engines")
    monkeypatch.setattr(pools, "imported", lambda _: [])
    monkeypatch.setattr(pooled, "FIRST_PAUSE_S", 0.1)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "do").mkdir()
    return tmp_path


def study_job() -> SearchJob:
    return SearchJob.model_validate({**study({}, 1), "seeds": 5})


def run(root: Path, name: str, **doing: Any) -> Path:
    """Write a run's job, and what its worker does."""
    folder = f".mltrainer/runs/{name}"
    values = {"run": name, "purpose": "train", "folder": folder, "config": config(), "contract": {}, "threads": 1}
    write_json(root / folder / "job.json", TrainingJob.model_validate(values).written())
    write_json(root / f"do/{name}.json", doing)
    return root / folder / "job.json"


def noted(root: Path, name: str, what: str) -> list[int]:
    """Return what the workers of a run have noted: `tries`, their processes; `begun`, the step that each began at."""
    path = root / f"do/{name}.{what}"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def steps(root: Path, name: str) -> int:
    return len(list(root.glob(f".mltrainer/*/{name}/**/checkpoints/step-*")))


@pytest.fixture(params=KINDS)
def machines(request: pytest.FixtureRequest) -> Machines:
    return request.param()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def workers(machines: Machines, root: Path, said: list[str]) -> Iterator[Workers]:
    with machines.pool(root, study_job(), 3.0, said.append) as made:
        yield made


def test_a_run_ends_with_its_result_in_its_own_folder(workers, root):
    assert (workers.room, workers.busy) == (2, 0)
    workers.begin(7, run(root, "one"))
    assert (workers.room, workers.busy) == (1, 1)
    assert ends(workers) == [RunEnd(7)]
    assert (workers.room, workers.busy) == (2, 0)
    folder = root / ".mltrainer/runs/one"
    assert read_json(folder / "result.json")["steps"] == 3
    assert read_json(folder / "job.json")["folder"] == ".mltrainer/runs/one"
    assert attempts_at(root) == []


def test_two_runs_are_trained_at_a_time_each_with_its_own_end(workers, root):
    workers.begin(1, run(root, "one", reason="no such model"))
    workers.begin(2, run(root, "two"))
    assert workers.room == 0
    assert ends(workers, 2) == [RunEnd(1, "no such model"), RunEnd(2)]


def test_a_death_is_told_and_the_run_goes_on_from_where_it_came(workers, root):
    workers.begin(1, job := run(root, "one", dies_at=2))
    assert ends(workers) == [RunEnd(1, death=KILLED)]
    assert steps(root, "one") == 2
    workers.begin(1, job)
    assert ends(workers) == [RunEnd(1)]
    assert noted(root, "one", "begun") == [0, 2]


@pytest.mark.slow
def test_a_frozen_worker_is_killed_and_its_run_goes_on(workers, root):
    workers.begin(1, job := run(root, "one", freezes_at=2))
    assert ends(workers) == [RunEnd(1, death=KILLED)]
    workers.begin(1, job)
    assert ends(workers) == [RunEnd(1)]
    assert noted(root, "one", "begun")[-1] == 2


def test_a_lost_machine_is_no_death_and_the_run_goes_on(machines, workers, root, said):
    workers.begin(1, run(root, "one", waits_at=2))
    until(lambda: workers.wait(0.1) == [] and noted(root, "one", "begun") and steps(root, "one") == 2)
    machines.lose(root)
    assert ends(workers) == [RunEnd(1)]
    assert noted(root, "one", "begun") == [0, 2]
    assert [line.partition(":")[0] for line in said] == ["  run one was lost"]


def lose(machines: Machines, workers: Workers, root: Path, said: list[str], number: int) -> None:
    """Take the machine away on which the attempt of a number waits, and wait until that is told."""
    until(lambda: workers.wait(0.1) == [] and len(noted(root, "one", "begun")) == number and steps(root, "one"))
    machines.lose(root)
    until(lambda: workers.wait(0.1) == [] and len(said) == number)


@pytest.mark.slow
def test_a_run_is_lost_as_often_as_it_happens(machines, workers, root, said):
    workers.begin(1, run(root, "one", waits_at=1, steps=2, times=4))
    for number in range(1, 5):
        lose(machines, workers, root, said, number)
        (root / "do/one.json").write_text(json.dumps({"waits_at": number + 1, "steps": number + 2, "times": 4}))
    assert ends(workers) == [RunEnd(1)]
    assert len(noted(root, "one", "begun")) == 5


@pytest.mark.slow
def test_workers_that_are_stopped_save_and_the_next_search_goes_on(machines, root, said):
    job = run(root, "one", waits_at=2)
    with machines.pool(root, study_job(), 30.0, said.append) as workers:
        workers.begin(1, job)
        until(lambda: workers.wait(0.1) == [] and steps(root, "one") == 2)
        process = noted(root, "one", "tries")[0]
        workers.stop(signal.SIGTERM)
        assert not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE
        assert workers.busy == 0
    with machines.pool(root, study_job(), 30.0, said.append) as workers:
        workers.begin(1, job)
        assert ends(workers) == [RunEnd(1)]
    assert noted(root, "one", "begun") == [0, 2]
    assert said == []
    assert attempts_at(root) == []


# --- engines of other machines --------------------------------------------------------------------


class Deaf(Here):
    """Machines that a cut line keeps from hearing that a job was cancelled, until it is mended."""

    is_cut = True

    def cancel(self, jobs: Any) -> None:
        if not self.is_cut:
            super().cancel(jobs)


@pytest.fixture
def deaf(root: Path, said: list[str]) -> Iterator[tuple[Workers, Deaf]]:
    engine = Deaf()
    with remote_pool.RemotePool(root, study_job(), engine, 2, 60.0, said.append, QUICK) as workers:
        yield workers, engine
        engine.is_cut = False


def frozen(root: Path, workers: Workers, name: str, said: list[str]) -> int:
    """Stop the machine of a run that waits, until the search has given it up; return its supervisor."""
    until(lambda: workers.wait(0.1) == [] and steps(root, name))
    (first,) = supervisors(root)
    kill_tree(first, signal.SIGSTOP)
    until(lambda: workers.wait(0.1) == [] and said)
    assert "gave no sign of life" in said[0]
    return first


@pytest.mark.slow
@pytest.mark.parametrize("differs", [False, True], ids=["the same", "another"])
def test_a_second_result_of_a_run_is_compared_with_the_first(deaf, root, said, differs):
    workers, _ = deaf
    workers.begin(1, run(root, "one", waits_at=1, times=1, differs=differs))
    first = frozen(root, workers, "one", said)
    assert ends(workers) == [RunEnd(1)]
    published = read_json(root / ".mltrainer/runs/one/result.json")
    (root / "do/go").touch()
    kill_tree(first, signal.SIGCONT)
    if differs:
        with pytest.raises(DifferenceError, match=r"attempt 1, on .*, gave another weights_sha256 than one before it"):
            until(lambda: workers.wait(0.1))
        assert [*root.glob(".mltrainer/attempts/one/1-*/run/result.json")]  # kept for who looks into it
    else:
        until(lambda: workers.wait(0.1) == [] and attempts_at(root) == [])
    assert read_json(root / ".mltrainer/runs/one/result.json") == published


class Unconfirmed(Here):
    """Machines whose first answer is lost on the way: the job is there, and nobody knows of it."""

    def begin(self, command: RemoteCommand) -> str:
        begun = super().begin(command)
        if len(self.jobs) == 1:
            raise EngineAwayError("timed out")
        return begun


def test_a_job_that_was_taken_and_not_confirmed_trains_nothing_beside_its_successor(root, said):
    engine = Unconfirmed()
    with remote_pool.RemotePool(root, study_job(), engine, 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, run(root, "one"))
        assert ends(workers) == [RunEnd(1)]
        first, second = engine.jobs.values()
        assert first.wait() != 0
        assert second.wait() == 0
    assert len(noted(root, "one", "tries")) == 1


@pytest.mark.slow
def test_a_worker_that_began_since_the_last_look_saves_when_it_is_stopped(root, said):
    with remote_pool.RemotePool(root, study_job(), Here(), 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, run(root, "one", waits_at=2))
        until(lambda: steps(root, "one") == 2)
        workers.stop(signal.SIGTERM)
    assert attempts_at(root) == []
    assert [path.name for path in (root / ".mltrainer/runs/one/checkpoints").iterdir()] == ["step-00000001", "step-00000002"]


@pytest.mark.slow
def test_what_a_lost_machine_saved_outlives_a_search_that_is_stopped_before_it_goes_on(root, said, monkeypatch):
    monkeypatch.setattr(pooled, "FIRST_PAUSE_S", 60.0)
    engine, job = Here(), run(root, "one", waits_at=2)
    with remote_pool.RemotePool(root, study_job(), engine, 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, job)
        until(lambda: workers.wait(0.1) == [] and steps(root, "one") == 2)
        kill_here(root, engine)
        until(lambda: workers.wait(0.1) == [] and said)
        time.sleep(QUICK.lost_s)
    assert steps(root, "one") == 2
    assert [path.name for path in (root / ".mltrainer/runs/one/checkpoints").iterdir()] == ["step-00000001", "step-00000002"]


@pytest.mark.slow
def test_an_attempt_that_was_taken_for_lost_may_come_first(deaf, root, said):
    workers, engine = deaf
    workers.begin(1, run(root, "one", waits_at=1, times=2))
    first = frozen(root, workers, "one", said)
    until(lambda: workers.wait(0.1) == [] and len(noted(root, "one", "begun")) == 2)
    engine.is_cut = False
    (second,) = set(supervisors(root)) - {first}
    kill_tree(second, signal.SIGSTOP)  # before any of them may end, so that the first one does
    (root / "do/go").touch()
    kill_tree(first, signal.SIGCONT)
    assert ends(workers) == [RunEnd(1)]
    until(lambda: workers.wait(0.1) == [] and not set(supervisors(root)))
    assert workers.room == 2
    assert read_json(root / ".mltrainer/runs/one/result.json")["steps"] == 3


@pytest.mark.slow
def test_an_engine_that_is_away_is_waited_for(root, said):
    engine = Here()
    engine.refused = [EngineAwayError("it restarts")] * 2
    with remote_pool.RemotePool(root, study_job(), engine, 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, run(root, "one"))
        assert ends(workers) == [RunEnd(1)]
    assert [line.split("; ")[0] for line in said] == ["  run one was lost: it restarts"] * 2


def test_a_job_that_the_engine_refuses_is_a_wrong_setting_only_before_it_took_one(root, said):
    engine = Here()
    engine.refused = [InputError("no such partition")]
    with remote_pool.RemotePool(root, study_job(), engine, 2, 60.0, said.append, QUICK) as workers:
        with pytest.raises(InputError, match="no such partition"):
            workers.begin(1, run(root, "one"))
        workers.begin(1, run(root, "one"))
        engine.refused = [InputError("over your limit of jobs")]
        workers.begin(2, run(root, "two"))
        assert ends(workers, 2) == [RunEnd(1), RunEnd(2)]
    assert "over your limit of jobs" in said[0]


@pytest.mark.slow
def test_a_machine_on_which_nothing_can_start_is_an_error_with_the_last_words(root, said, monkeypatch):
    monkeypatch.setattr(remote_pool, "SUPERVISOR", "mltrainer.executors.of_another_version")
    with remote_pool.RemotePool(root, study_job(), Here(), 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, run(root, "one"))
        with pytest.raises(InputError, match=r"no job can start on .*: .*No module named mltrainer.executors.of_another_version"):
            ends(workers)


@pytest.mark.slow
def test_the_jobs_of_a_search_that_was_killed_stop_by_themselves_and_the_next_one_goes_on(root, said):
    timing = remote_pool.Timing(look_s=0.3, gone_s=1.0, alive_s=0.2, lost_s=60.0, orphan_s=1.0, grace_s=10.0)
    job = run(root, "one", waits_at=2)
    first = remote_pool.RemotePool(root, study_job(), engine := Deaf(), 2, 60.0, said.append, timing)
    first.__enter__()
    first.begin(1, job)
    until(lambda: first.wait(0.1) == [] and steps(root, "one") == 2)
    until(lambda: supervisors(root) == [])  # from here on nobody counts
    assert noted(root, "one", "tries")
    with remote_pool.RemotePool(root, study_job(), Here(), 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, job)
        assert ends(workers) == [RunEnd(1)]
    assert noted(root, "one", "begun") == [0, 2]
    engine.is_cut = False
    engine.close()


@pytest.mark.slow
def test_machines_that_compute_other_bits_are_refused(root, said):
    write_json(root / ".mltrainer/studies/study/numerics.json", {"numerics_class": "avx2", "machine": "old"})
    with remote_pool.RemotePool(root, study_job(), Here(), 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, run(root, "one", numerics_class="avx512"))
        with pytest.raises(DifferenceError, match=r"does not compute the same bits as old"):
            ends(workers)
    assert attempts_at(root) == []  # machines of one kind, taken now, do not meet it again
    other = new_attempt(root, TrainingJob.model_validate(read_json(run(root, "two"))))
    write_json(other.work / "result.json", {"numerics_class": "avx512"})
    write_json(other.folder / "ended.json", {"code": 0, "stopped": None, "machine": "new"})
    other.note_begun(Begun("here", "1", "another study's folder"))
    with remote_pool.RemotePool(root, study_job(), Here(), 2, 60.0, said.append, QUICK) as workers:
        workers.begin(1, run(root, "one", numerics_class="avx2"))
        assert ends(workers) == [RunEnd(1)]


def test_a_worker_that_was_stopped_by_an_operator_is_lost_and_one_that_was_killed_has_died():
    assert [end_of(1, code).lost is not None for code in (143, 130, -15, -2, -9, 1)] == [True] * 4 + [False] * 2
    assert end_of(1, -9) == RunEnd(1, death=KILLED)


def test_a_published_result_is_sealed_and_names_files_where_they_lie(root):
    job = TrainingJob.model_validate(read_json(run(root, "one")))
    attempt = new_attempt(root, job)
    there = attempt.work.relative_to(root).as_posix()
    files = [{"path": f"{there}/checkpoints/step-1/state.json"}]
    write_json(
        attempt.work / "result.json", seal({"purpose": "explore", "steps": 1, "checkpoints": files, "about": f"in {there}"})
    )
    attempt.publish()
    found = read_json(root / ".mltrainer/runs/one/result.json")
    assert is_sealed(found)
    assert found["checkpoints"] == [{"path": ".mltrainer/runs/one/checkpoints/step-1/state.json"}]
    assert not attempt.folder.exists()


def test_the_pauses_grow_up_to_a_limit():
    assert [pause_s(losses) for losses in (1, 2, 3, 20, 10_000)] == [1.0, 2.0, 4.0, 300.0, 300.0]


def test_what_belongs_to_this_machine_is_not_sent_along():
    given = {"SLURM_JOB_ID": "1", "SLURM_CONF": "c", "CUDA_VISIBLE_DEVICES": "0", "PYTHONHASHSEED": "0", "RAY_ADDRESS": "a"}
    assert portable(given) == {"SLURM_CONF": "c", "PYTHONHASHSEED": "0"}
