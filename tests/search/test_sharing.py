"""Several machines, one database: one table, whoever trains what, and whoever dies."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import Metric
from mltrainer.errors import DifferenceError, InputError, MachineError
from mltrainer.records.job import SearchJob
from mltrainer.records.run import Evaluation
from mltrainer.search import sharing
from mltrainer.search.database import Database
from mltrainer.search.sharing import SharedStudy, differing
from mltrainer.search.study import Study
from mltrainer.search.trial import Ended, FoldOutcome, Trained
from tests.search.silent import Silent
from tests.search.test_program import SPACE, study
from tests.search.test_study import EPOCHS, PRUNING, Heard, Imagined, search

SMALL = {"optimizer.lr": SPACE["optimizer.lr"]}
LEARNING: dict[str, Any] = {"strategy": "tpe", "pruning": PRUNING, "space": SMALL}


class Died(BaseException):
    """A machine that loses its power: nothing of it is cleaned up."""


class Slow(Imagined):
    """Runs that take a while, on a machine that may die in one."""

    dies_at = 0
    together: threading.Barrier | None = None  # where it waits for the others before its first run

    def begin(self, nr: int, config: Any, limits: Any) -> None:
        super().begin(nr, config, limits)
        if self.together is not None and len(self.begun) == 1:
            self.together.wait(30)

    def wait(self) -> list[tuple[int, Trained]]:
        time.sleep(self.luck.uniform(0.001, 0.01))
        if self.dies_at and len(self.begun) >= self.dies_at:
            raise Died
        return super().wait() if self.running else []


def job_of(folder: Path, **changes: Any) -> SearchJob:
    asked = {**study(SMALL, 6, epochs=EPOCHS), "lag": 4, "storage": f"sqlite:///{folder / 'shared.db'}", **changes}
    return SearchJob.model_validate(asked)


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Close the databases that a test opens, also where the machine that did has died."""
    with contextlib.ExitStack() as left:
        begin = Database.__init__

        def begun(database: Database, *about: Any) -> None:
            begin(database, *about)
            left.callback(database.close)

        monkeypatch.setattr(Database, "__init__", begun)
        yield
    gc.collect()  # of storages that could not create their tables, because another machine did at once
    if _open_databases(tmp_path):
        gc.collect()  # of storages that could not create their tables, because another machine did at once
    assert _open_databases(tmp_path) == []


def _open_databases(folder: Path) -> list[str]:
    files = (os.path.realpath(path) for path in Path("/proc/self/fd").iterdir())
    return [file for file in files if file.endswith(".db") and file.startswith(str(folder.resolve()))]


def machine(folder: Path, name: str, runs: Imagined, events: Silent | None = None, **changes: Any) -> str:
    """Search as one machine of several; return its table."""
    (folder / name).mkdir(exist_ok=True)
    runs.folder = folder / name
    job, heard = job_of(folder, **changes), events or Silent()
    try:
        # Closed by the thread that has opened it, whose connection is its own.
        with contextlib.closing(Database(job.storage, heard, lambda: None)) as there:
            with SharedStudy(job, there, folder / name, heard) as those:
                those.introduce()
                trials = Study(job, runs, heard, those).search()  # type: ignore[arg-type]
    except Died:
        return "died"
    return json.dumps([trial.recorded() for trial in trials])


def together(folder: Path, machines: dict[str, Imagined], **changes: Any) -> dict[str, str]:
    """Search on several machines at once; return their tables by name."""
    tables: dict[str, str] = {}

    def work(name: str) -> None:
        tables[name] = machine(folder, name, machines[name], **changes)

    threads = [threading.Thread(target=work, args=(name,)) for name in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return tables


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "LOOK_S", 0.0)
    monkeypatch.setattr(sharing, "BEAT_S", 0.05)
    monkeypatch.setattr(sharing, "GONE_S", 0.5)


def slow(folder: Path, seed: int, workers: int = 2) -> Slow:
    return Slow(folder, workers, random.Random(seed))


@pytest.mark.slow
def test_machines_share_the_trials_and_have_the_table_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "GONE_S", 1e9)
    asked = {**LEARNING, "trials": 12}
    alone, _ = search(tmp_path / "alone", 2, 0, **asked)
    machines: dict[str, Imagined] = {name: slow(tmp_path, seed) for seed, name in enumerate("ab")}
    monkeypatch.setattr(Slow, "together", threading.Barrier(2))
    tables = together(tmp_path, machines, **asked)
    assert set(tables.values()) == {alone}
    begun = [number for runs in machines.values() for number in runs.begun]
    assert set(begun) == set(range(1, 13))
    assert len(begun) < 16  # one that both claim at once, seen once on a busy machine, costs time and decides nothing
    assert all(runs.begun for runs in machines.values())


@pytest.mark.slow
def test_the_trials_of_a_machine_that_died_are_taken_over(tmp_path):
    alone, _ = search(tmp_path / "alone", 2, 0, trials=6, **LEARNING)
    victim = slow(tmp_path, 1)
    victim.dies_at = 3
    # BaseException leaves the `with` as well: what it gave back there, a machine without power does not give back
    kept = SharedStudy.__exit__
    SharedStudy.__exit__ = lambda *_: None  # type: ignore[method-assign]
    try:
        assert machine(tmp_path, "victim", victim, **LEARNING) == "died"
    finally:
        SharedStudy.__exit__ = kept  # type: ignore[method-assign]
    survivor, heard = slow(tmp_path, 2), Heard()
    assert machine(tmp_path, "survivor", survivor, heard, **LEARNING) == alone
    assert any("is gone: trial 3 is taken over" in note for note in heard.notes)
    assert set(victim.begun[-2:]) <= set(survivor.begun)
    assert not set(victim.begun) - set(victim.running) & set(survivor.begun)


@pytest.mark.slow
def test_a_machine_goes_on_at_once_with_what_it_had_claimed(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "GONE_S", 1e9)
    monkeypatch.setattr(SharedStudy, "__exit__", lambda *_: None)
    runs = slow(tmp_path, 1)
    runs.dies_at = 3
    machine(tmp_path, "one", runs)
    again = slow(tmp_path, 2)
    assert len(json.loads(machine(tmp_path, "one", again))) == 6


@pytest.mark.slow
def test_a_machine_that_is_stopped_gives_its_trials_back(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "GONE_S", 1e9)
    runs = slow(tmp_path, 1)
    runs.dies_at = 3
    assert machine(tmp_path, "stopped", runs) == "died"
    assert len(json.loads(machine(tmp_path, "other", slow(tmp_path, 2)))) == 6


@pytest.mark.slow
def test_when_the_time_of_one_is_over_no_machine_begins_a_trial(tmp_path):
    late = slow(tmp_path, 1)
    late.seconds = 61.0
    first = machine(tmp_path, "late", late, minutes=1)
    assert len(json.loads(first)) == 1
    assert machine(tmp_path, "early", slow(tmp_path, 2), minutes=1) == first
    longer = machine(tmp_path, "longer", slow(tmp_path, 3), minutes=2)
    assert len(json.loads(longer)) == 6


@pytest.mark.slow
def test_when_the_budget_of_one_is_spent_no_machine_begins_a_trial(tmp_path):
    one, two = shared(tmp_path, "one"), shared(tmp_path, "two")
    assert one.claim(1, VALUES)
    assert not two.is_over(1, True)
    assert one.is_over(2, True)
    two.look()
    assert two.is_over(2, False)


@pytest.mark.slow
def test_another_study_of_the_project_is_told_with_what_differs(tmp_path):
    runs, heard = slow(tmp_path, 1), Heard()
    runs.dies_at = 2
    machine(tmp_path, "one", runs)
    other = {"run": "other", "contract": {"code_sha256": "1", "environment_sha256": "0"}, "trials": 3}
    machine(tmp_path, "two", slow(tmp_path, 2), heard, **other)
    assert "study study of this project is in the database already and is another one: code, trials differ" in heard.notes


def shared(folder: Path, name: str, **changes: Any) -> SharedStudy:
    job = job_of(folder, **changes)
    return SharedStudy(job, Database(job.storage, Silent(), lambda: None), folder / name, Silent())


@contextlib.contextmanager
def in_optuna(folder: Path) -> Iterator[Any]:
    """The study as Optuna loads it."""
    import optuna
    from optuna.storages import RDBStorage

    storage = RDBStorage(f"sqlite:///{folder / 'shared.db'}")
    yield optuna.load_study(study_name="study", storage=storage)
    storage.remove_session()
    storage.engine.dispose()


ROW = Ended(
    state="finished",
    value=0.1 + 0.2,
    reason=None,
    run="r",
    steps=3,
    wall_s=1.0,
    curve=[[1, 0.3]],
    history=[Evaluation.at(1, 3, {"accuracy": 0.1 + 0.2, "loss": "nan"})],
    folds=[FoldOutcome(0, "r", 0.25)],
)
VALUES = {"optimizer.lr": 0.01}


@pytest.mark.slow
def test_machines_that_do_not_compute_the_same_are_told(tmp_path):
    one, two = shared(tmp_path, "one"), shared(tmp_path, "two")
    assert one.claim(1, VALUES)
    two.look()
    with pytest.raises(DifferenceError, match=r"trial 1 has on .* the values .*0\.01.* and here .*0\.02"):
        two.claim(1, {"optimizer.lr": 0.02})
    assert one.report(1, VALUES, ROW) == ROW
    assert two.report(1, VALUES, replace(ROW, wall_s=2.0)).wall_s == 1.0  # that of whoever was first
    with pytest.raises(DifferenceError, match="do not compute the same"):
        two.report(1, VALUES, replace(ROW, value=0.4))


def test_a_row_survives_the_database_bit_for_bit():
    assert Ended.decoded(ROW.encoded(Metric(name="accuracy", mode="max"))) == ROW


@pytest.mark.slow
def test_a_study_ended_by_another_program_is_refused(tmp_path):
    from optuna.trial import TrialState

    one = shared(tmp_path, "one")
    assert one.claim(1, VALUES)
    with in_optuna(tmp_path) as other:
        other.tell(0, state=TrialState.FAIL)
    one.look()
    with pytest.raises(InputError, match="trial 1 of study study was ended by another program"):
        one.row(1)


@pytest.mark.slow
def test_optuna_shows_the_study(tmp_path):
    rows = json.loads(machine(tmp_path, "one", slow(tmp_path, 1), **LEARNING))
    with in_optuna(tmp_path) as found:
        trials, best = found.trials, found.best_value
    states = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    ended = [trial for trial in trials if trial.state.is_finished()]
    assert [states[trial.state.name] for trial in ended] == [row["state"] for row in rows]
    assert [trial.params["optimizer.lr"] for trial in ended] == [row["values"]["optimizer.lr"] for row in rows]
    assert [[*trial.intermediate_values.items()] for trial in ended] == [[(e, v) for e, v in row["curve"]] for row in rows]
    assert best == max(row["value"] for row in rows if row["state"] == "finished")


@pytest.mark.slow
def test_trials_that_have_ended_are_not_read_from_the_database_again(tmp_path):
    from optuna.storages._rdb.models import TrialModel
    from sqlalchemy import event

    one, two = shared(tmp_path, "one"), shared(tmp_path, "two")
    for number in (1, 2):
        one.report(number, VALUES, ROW)
    assert one.claim(3, VALUES)
    two.look()
    read: list[int] = []

    def note(trial: Any, _: Any) -> None:
        read.append(trial.number + 1)

    event.listen(TrialModel, "load", note)
    two.look()
    event.remove(TrialModel, "load", note)
    assert read == [3]


def test_what_differs_is_named_by_key():
    one: dict[str, Any] = {"trials": 3, "config": {"epochs": 2, "optimizer": {"lr": 1}}, "code_sha256": "0"}
    assert differing(one, {**one, "config": {"epochs": 2, "optimizer": {"lr": 2}}, "code_sha256": "1"}) == [
        "code",
        "optimizer.lr",
    ]


@pytest.mark.slow
def test_a_database_that_is_not_there_is_told(tmp_path):
    with pytest.raises(MachineError, match=r"sqlite:///.*/no/x\.db: the database does not answer: unable to open database file"):
        Database(f"sqlite:///{tmp_path}/no/x.db", Silent(), lambda: None)
    with pytest.raises(InputError, match=r"driver, MySQLdb, is not installed[^$]*pip install 'mysqlclient'"):
        Database("mysql://u@localhost/x", Silent(), lambda: None)


@pytest.mark.filterwarnings("ignore:Query string")
def test_what_a_database_says_is_told_without_its_password(tmp_path, monkeypatch):
    from sqlalchemy.exc import OperationalError

    monkeypatch.setenv("DB_PASSWORD", "p@ss/word")
    monkeypatch.setattr("mltrainer.search.database.PATIENCE_S", -1.0)
    there = Database(f"sqlite:///{tmp_path}/x.db?password=${{DB_PASSWORD}}", Silent(), lambda: None)

    def refuse() -> None:
        raise OperationalError("select", {}, Exception("user=me password=p@ss/word or p%40ss%2Fword is wrong"))

    with pytest.raises(MachineError, match=r"password=\*\*\* or \*\*\* is wrong"):
        there.ask(refuse)


def test_a_database_that_answers_again_is_used_again(tmp_path, monkeypatch):
    from sqlalchemy.exc import OperationalError

    monkeypatch.setattr("mltrainer.search.database.PAUSE_S", 0.01)
    heard, answers = Heard(), iter([OperationalError("select", {}, Exception("gone away")), 7])

    def question() -> Any:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    assert Database(f"sqlite:///{tmp_path}/x.db", heard, lambda: None).ask(question) == 7
    assert heard.notes == [f"  sqlite:///{tmp_path}/x.db does not answer: gone away; tried again"]


@pytest.mark.parametrize("value", ["nan", "inf", 0.25])
def test_the_end_of_a_pruned_trial_is_told_whatever_its_metric(value):
    ended = replace(ROW, state="pruned", value=value, pruned_at=2)
    assert ended.told("auc") == f"auc {float(value):.4g}, ended at epoch 2"
