"""One table of trials, however many workers there are and in which order they end."""

from __future__ import annotations

import errno
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import Metric
from mltrainer.errors import InputError
from mltrainer.records.job import SearchJob
from mltrainer.records.pareto import best_trial
from mltrainer.records.run import Evaluation
from mltrainer.search import halving
from mltrainer.search.database import Database
from mltrainer.search.journal import Journal
from mltrainer.search.runs import Live
from mltrainer.search.sharing import SharedStudy
from mltrainer.search.space import draw
from mltrainer.search.study import Study
from mltrainer.search.trial import State, Trained, Trial
from tests.search.silent import Silent
from tests.search.test_program import SPACE, study

EPOCHS = 9
NO_MODEL = Trained("bad", reason="no such model")
CONDITIONAL: dict[str, Any] = {
    "optimizer.lr": SPACE["optimizer.lr"],
    "optimizer.name": {"choice": ["adamw", "sgd"]},
    "optimizer.momentum": {"uniform": [0.1, 0.99], "when": {"optimizer.name": ["sgd"]}},
    "batch_size": {"log_integer": [8, 64]},
}


class Heard(Silent):
    """Keeps the notes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def send(self, event: str, **values: Any) -> None:
        """Keep what is said."""
        self.notes += [values["text"]] if event == "note" else []


class Noting:
    """A strategy that notes which trials it had learned from when it was asked for each."""

    learns, trials = True, 12

    def __init__(self) -> None:
        self.learned: list[int] = []
        self.asked: dict[int, list[int]] = {}

    def values(self, trial: int) -> dict[str, Any]:
        self.asked[trial] = [*self.learned]
        return {"optimizer.lr": 0.001 * trial}

    def learn(self, trial: Trial) -> None:
        self.learned.append(trial.nr)


class Imagined:
    """Runs that are computed in place of trained; they end in an order of their own."""

    def __init__(self, folder: Path, workers: int, luck: random.Random) -> None:
        self.folder, self.workers, self.luck = folder, workers, luck
        self.pool = self
        self.running: dict[int, Trained] = {}
        self.kept: dict[str, Trained] = {}
        self.begun: list[int] = []
        self.live = Live(folder, Silent())

    @property
    def busy(self) -> int:
        return len(self.running)

    @property
    def room(self) -> int:
        return self.workers - self.busy

    def known(self, config: Any, limits: Any) -> Trained | None:
        return self.kept.get(str(config))

    def begin(self, nr: int, config: Any, limits: Any) -> None:
        assert self.room > 0
        self.begun.append(nr)
        self.running[nr] = self.kept[str(config)] = trained(config)

    def wait(self) -> list[tuple[int, Trained]]:
        nr = self.luck.choice(sorted(self.running))
        return [(nr, self.running.pop(nr))]

    def attempts(self, run: str) -> int:
        return 1

    seconds = 1.0
    furthest = 0

    def begins(self, trial: int) -> None:
        """Note nothing."""

    def contract(self, config: Any) -> None:
        """Name nothing."""

    def keep(self, every_s: float = 0.0) -> None:
        """Keep nothing."""


def trained(config: Any) -> Trained:
    """Return what a run of a config could give: a curve towards a value that depends on the config; some fail."""
    lr = config.optimizer.lr
    if lr > 0.09:
        return NO_MODEL
    end = 1 / (1 + abs(math.log10(lr) + 2)) - config.batch_size / 1000 + config.split.fold * lr
    places = (
        [nr / 4 if nr % 4 else nr // 4 for nr in range(1, 4 * EPOCHS + 1)]
        if config.evaluate.every_n_steps
        else range(1, EPOCHS + 1)
    )
    rows = [Evaluation.at(e, round(4 * e), {"loss": 1.0, "accuracy": end * (1 - 0.5**e)}) for e in places]
    cost = config.batch_size + 100 * lr  # better where the accuracy is worse
    return Trained(f"{lr:.6f} {config.split.fold}", {**rows[-1].validation, "cost": cost}, rows, EPOCHS, 1.0)


def alone(job: SearchJob, folder: Path) -> SharedStudy:
    """Return the claims of a search that no other machine shares."""
    return SharedStudy(job, Database(None, Silent(), lambda: None), folder, Silent())


def search(folder: Path, workers: int, seed: int, runs: Imagined | None = None, **changes: Any) -> tuple[str, Imagined]:
    """Return the table of trials as text, and the runs."""
    folder.mkdir(exist_ok=True)
    job = SearchJob.model_validate({**study(SPACE, 24, epochs=EPOCHS), "lag": 4, **changes})
    runs = runs or Imagined(folder, workers, random.Random(seed))
    runs.workers = workers
    trials = Study(job, runs, Silent(), alone(job, folder)).search()  # type: ignore[arg-type]
    return json.dumps([trial.recorded() for trial in trials]), runs


PRUNING = {"name": "successive_halving", "eta": 3, "first": 1}
WITHIN = {**study(SPACE, 1, epochs=EPOCHS)["config"], "evaluate": {"every_n_steps": 1, "every_n_epochs": None}}
STUDIES: dict[str, dict[str, Any]] = {
    "random": {},
    "random, pruned": {"pruning": PRUNING},
    "quasi-random, hyperband": {"strategy": "quasi_random", "pruning": {**PRUNING, "name": "hyperband"}},
    "random, pruned within epochs": {"pruning": {**PRUNING, "first": 0.25}, "config": WITHIN},
    "tpe, hyperband within epochs": {
        "strategy": "tpe",
        "pruning": {**PRUNING, "first": 0.1, "name": "hyperband"},
        "config": WITHIN,
    },
    "grid": {"strategy": "grid"},
    "tpe": {"strategy": "tpe"},
    "tpe, pruned": {"strategy": "tpe", "pruning": PRUNING},
    "tpe, conditional": {"strategy": "tpe", "space": CONDITIONAL},
    "cma_es": {"strategy": "cma_es"},
    "tpe, pruned, constrained": {"strategy": "tpe", "pruning": PRUNING, "constraints": {"cost": ">= 30"}},
    "nsga2": {"strategy": "nsga2", "objectives": {"cost": "max"}, "trials": 40},
    "nsga2, constrained": {"strategy": "nsga2", "objectives": {"cost": "max"}, "constraints": {"accuracy": ">= 0.5"}},
    "nsga3, conditional": {"strategy": "nsga3", "objectives": {"cost": "max"}, "space": CONDITIONAL, "trials": 40},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_the_table_does_not_depend_on_workers_or_their_pace(name, tmp_path):
    if name == "cma_es":
        pytest.importorskip("cmaes")
    tables = {search(tmp_path / f"{workers}", workers, workers, **STUDIES[name])[0] for workers in (1, 2, 4)}
    assert len(tables) == 1
    rows = json.loads(tables.pop())
    assert [row["nr"] for row in rows] == list(range(1, len(rows) + 1))
    # A child of NSGA may be its parent again, which is not trained twice.
    assert "nsga" in name or len({json.dumps(row["values"]) for row in rows}) == len(rows)
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert bool(pruned) == ("pruned" in name or "hyperband" in name)
    assert all(row["curve"][-1][0] == math.ceil(4 * row["pruned_at"]) / 4 for row in pruned)
    assert all(row["curve"][-1][1] == row["value"] for row in pruned)


def folded(count: int) -> dict[str, Any]:
    config = study(SPACE, 1, epochs=EPOCHS)["config"]
    return {"config": {**config, "split": {**config["split"], "folds": count}}}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "tpe", "tpe, pruned"])
def test_a_trial_is_the_mean_of_its_folds_whatever_the_workers(name, tmp_path):
    tables = {search(tmp_path / f"{n}", n, n, **STUDIES[name], **folded(3))[0] for n in (1, 2, 4)}
    assert len(tables) == 1
    rows = json.loads(tables.pop())
    whole = [row for row in rows if row["state"] == "finished"]
    assert whole
    for row in whole:
        assert [one["fold"] for one in row["folds"]] == [0, 1, 2]
        assert len({one["run"] for one in row["folds"]}) == 3
        assert row["value"] == pytest.approx(sum(one["value"] for one in row["folds"]) / 3)
        assert row["steps"] == 3 * EPOCHS


def test_a_trial_that_ended_at_a_rung_is_not_trained_on_other_folds(tmp_path):
    table, runs = search(tmp_path / "s", 2, 0, **STUDIES["tpe, pruned"], **folded(3))
    rows = json.loads(table)
    pruned = [row["nr"] for row in rows if row["state"] == "pruned"]
    assert pruned
    assert all("folds" not in row for row in rows if row["nr"] in pruned)
    assert {key // 3 for key in runs.begun if key % 3} == {row["nr"] for row in rows if row["state"] == "finished"}


def test_a_fold_that_fails_fails_its_trial_and_is_named(tmp_path, monkeypatch):
    whole = trained
    monkeypatch.setattr(
        "tests.search.test_study.trained",
        lambda config: NO_MODEL if config.split.fold == 2 and config.batch_size == 16 else whole(config),
    )
    rows = json.loads(search(tmp_path / "s", 2, 0, **folded(3))[0])
    found = [row for row in rows if row["state"] == "failed" and row["values"]["batch_size"] == 16 and row["folds"][1:]]
    assert found
    assert all(row["reason"] == "fold 2: no such model" and math.isnan(row["value"]) for row in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random, pruned", "tpe, pruned", "nsga2, constrained"])
def test_a_study_that_goes_on_repeats_nothing_and_gives_the_same_table(name, tmp_path):
    whole, _ = search(tmp_path / "whole", 2, 0, **STUDIES[name])
    _, runs = search(tmp_path / "parts", 2, 1, **{**STUDIES[name], "trials": 11})
    before = len(runs.begun)
    again, runs = search(tmp_path / "parts", 3, 2, runs, **STUDIES[name])
    assert again == whole
    found = runs.begun[before:]
    assert found == [nr for nr in range(12, 25) if nr in found or "nsga" not in name]


@pytest.mark.slow
def test_a_larger_lag_is_another_study_for_what_learns(tmp_path):
    one, other = (search(tmp_path / str(lag), 2, 0, strategy="tpe", lag=lag)[0] for lag in (1, 8))
    assert one != other


def test_what_learns_begins_with_points_that_fill_the_space(tmp_path):
    def drawn(strategy: str) -> list[Any]:
        return [row["values"] for row in json.loads(search(tmp_path / strategy, 2, 0, strategy=strategy, trials=11)[0])]

    learned, spread = drawn("tpe"), drawn("quasi_random")
    assert learned[:10] == spread[:10]
    assert learned[10] != spread[10]


@pytest.mark.slow
def test_what_learns_finds_better_values_than_draws(tmp_path):
    def best(strategy: str, seed: int) -> float:
        config = {**study(SPACE, 1)["config"], "epochs": EPOCHS, "seed": seed}
        rows = json.loads(search(tmp_path / f"{strategy}{seed}", 2, 0, strategy=strategy, config=config, trials=40)[0])
        return max(row["value"] for row in rows if row["state"] == "finished")

    gains = [best("tpe", seed) - best("random", seed) for seed in range(4)]
    assert sum(gains) > 0


COSTLY = {"cost": ">= 30"}  # which batches of 16 are not, and these are the more accurate ones


def test_the_best_so_far_meets_the_constraints(tmp_path):
    runs = Imagined(tmp_path, 1, random.Random(0))
    job = SearchJob.model_validate({**study(SPACE, 12, epochs=EPOCHS), "constraints": COSTLY})
    found = Study(job, runs, Silent(), alone(job, tmp_path))  # type: ignore[arg-type]
    trials = found.search()
    allowed = [trial for trial in trials if trial.objectives.get("cost", 0) >= 30]
    assert 0 < len(allowed) < len(trials)
    best = max(allowed, key=lambda trial: trial.value)
    assert found._best is not None
    assert best_trial(trials, "max", COSTLY) == best
    assert found._best.nr == best.nr
    assert best != best_trial(trials, "max")


def test_a_search_that_the_time_ended_gives_the_same_trials_again_which_are_the_first_of_a_longer_one(tmp_path):
    whole, _ = search(tmp_path / "whole", 2, 0, strategy="tpe")
    table, runs = search(tmp_path / "parts", 2, 1, strategy="tpe", trials=9)
    runs.seconds, runs.furthest = 600.0, 9
    again, _ = search(tmp_path / "parts", 1, 2, runs, strategy="tpe", minutes=5)
    assert again == table
    assert json.loads(again) == json.loads(whole)[:9]


@pytest.mark.parametrize(
    "about",
    [{}, {"strategy": "tpe"}, {"constraints": COSTLY}, pytest.param({"pruning": PRUNING, "lag": 2}, marks=pytest.mark.slow)],
)
def test_a_search_ends_where_the_trials_that_decide_brought_nothing_better_for_long(tmp_path, about):
    job = {"trials": 40, "patience": 5, **about}
    tables = {search(tmp_path / f"{workers}", workers, workers, **job)[0] for workers in (1, 3)}
    assert len(tables) == 1
    rows = json.loads(tables.pop())
    whole = json.loads(search(tmp_path / "whole", 2, 0, **{**job, "patience": None})[0])
    assert rows == whole[: len(rows)]
    best, since = None, 0
    for row in whole:
        if row["nr"] == len(rows) - job.get("lag", 4) + 2:  # the first after those that decided about the next trial
            break
        assert since < 5
        met = row["state"] == "finished" and ("constraints" not in about or row["objectives"]["cost"] >= 30)
        if met and (best is None or row["value"] > best):
            best, since = row["value"], 0
        else:
            since += best is not None and row["state"] != "failed"
    assert since == 5


def test_a_search_says_why_it_ended(tmp_path):
    runs = Imagined(tmp_path, 1, random.Random(0))
    job = SearchJob.model_validate({**study(SPACE, 40, epochs=EPOCHS), "patience": 5, "lag": 1})
    found, said = Study(job, runs, (heard := Heard()), alone(job, tmp_path)), heard.notes  # type: ignore[arg-type]
    trials = found.search()
    assert (found.about().planned, found.about().ended) == (len(trials), "stagnation")
    best = best_trial(trials, "max")
    assert best is not None
    assert said[-1] == f"no trial begins after {len(trials)}: trial {best.nr} was the best for 5 further ones"
    assert Study(job, runs, Silent(), alone(job, tmp_path)).search() == trials  # type: ignore[arg-type]


def test_no_trial_begins_when_the_time_is_over(tmp_path):
    folder = tmp_path / "late"
    folder.mkdir()
    runs = Imagined(folder, 1, random.Random(0))
    job = SearchJob.model_validate({**study(SPACE, 24, epochs=EPOCHS), "minutes": 1e-9})
    found = Study(job, runs, Silent(), alone(job, folder))  # type: ignore[arg-type]
    assert len(found.search()) == 1
    assert (found.about().planned, found.about().ended) == (1, "time")


def test_a_config_that_cannot_be_fails_its_trial_where_values_are_not_known_before(tmp_path):
    space = {"epochs": {"choice": [EPOCHS, 0]}, "optimizer.lr": {"log_uniform": [1e-3, 1e-2]}}
    rows = json.loads(search(tmp_path / "f", 2, 0, strategy="tpe", space=space)[0])
    bad = [row for row in rows if row["values"]["epochs"] == 0]
    assert bad
    assert all(row["state"] == "failed" and "epochs" in row["reason"] for row in bad)
    with pytest.raises(InputError, match="epochs"):
        search(tmp_path / "g", 2, 0, space=space)


def test_the_study_opens_in_optuna(tmp_path):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    rows = json.loads(search(tmp_path / "s", 2, 0, strategy="tpe", space=CONDITIONAL, pruning=PRUNING)[0])
    loaded = optuna.load_study(study_name="study", storage=JournalStorage(JournalFileBackend(str(tmp_path / "s/study.journal"))))
    assert [trial.number + 1 for trial in loaded.trials] == [row["nr"] for row in rows]
    states = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    assert [states[trial.state.name] for trial in loaded.trials] == [row["state"] for row in rows]
    assert loaded.best_value == max(row["value"] for row in rows if row["state"] == "finished")
    lr = [trial.params["optimizer.lr"] for trial in loaded.trials]
    assert lr == [row["values"]["optimizer.lr"] for row in rows]


def test_a_disk_that_refuses_the_journals_lock_is_told_as_the_disks_fault(tmp_path, monkeypatch):
    def refused(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "study.journal.lock")

    monkeypatch.setattr("optuna.storages.journal._file.os.rename", refused)
    with pytest.raises(PermissionError, match="Permission denied"):
        Journal(tmp_path, "study", {}, Metric(name="accuracy", mode="max"))


def test_a_journal_begins_without_the_locks_that_another_process_left(tmp_path):
    for name in ("study.journal.lock", "study.journal.lock0b1c.rename"):
        (tmp_path / name).touch()
    Journal(tmp_path, "study", {}, Metric(name="accuracy", mode="max"))
    assert [path.name for path in tmp_path.iterdir()] == ["study.journal"]


def test_random_draws_are_those_of_version_0_1(tmp_path):
    rows = json.loads(search(tmp_path / "r", 1, 0)[0])
    assert rows[4]["values"]["optimizer.lr"] == draw(SPACE["optimizer.lr"], 42, 5, "optimizer.lr")


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("lag", [1, 3, 12])
def test_trial_n_is_decided_by_just_those_up_to_n_less_the_lag(lag, workers, tmp_path, monkeypatch):
    noting = Noting()
    monkeypatch.setattr("mltrainer.search.study.strategy", lambda *_: noting)
    search(tmp_path, workers, 5, strategy="tpe", lag=lag, trials=12)
    assert noting.asked == {number: list(range(1, number - lag + 1)) for number in range(1, 13)}


def test_rungs_are_decided_by_just_the_trials_up_to_n_less_the_lag(tmp_path, monkeypatch):
    learned: list[int] = []
    seen: list[list[int]] = []

    class Noted(halving.Ladder):
        def learn(self, trial: Trial) -> None:
            learned.append(trial.nr)
            super().learn(trial)

        def limits(self, own: Any) -> Any:
            seen.append([*learned])
            return super().limits(own)

    monkeypatch.setattr(halving, "Ladder", Noted)
    search(tmp_path, 4, 5, pruning=PRUNING, lag=3)
    assert seen == [list(range(1, number - 3 + 1)) for number in range(1, 25)]


def test_as_many_trials_as_the_lag_are_begun_before_any_has_ended(tmp_path):
    runs = Imagined(tmp_path, 8, random.Random(1))
    at_once: list[int] = []
    whole = runs.wait

    def wait() -> list[tuple[int, Trained]]:
        at_once.append(len(runs.running))
        return whole()

    runs.wait = wait  # type: ignore[method-assign]
    search(tmp_path, 8, 1, runs, strategy="tpe", lag=4)
    assert (at_once[0], max(at_once)) == (4, 4)


def ended(*values: float, state: State = "finished", first: int = 1) -> list[Trial]:
    known: dict[str, Any] = {"values": {}, "seed": 0, "run": "r", "reason": None, "steps": 1, "wall_s": 1.0}
    return [Trial(nr=nr, value=value, state=state, **known) for nr, value in enumerate(values, first)]


@pytest.mark.parametrize(("mode", "values", "nr"), [("max", (0.5, 0.9, 0.9, 0.1), 2), ("min", (0.5, 0.1, 0.9, 0.1), 2)])
def test_of_equal_trials_the_earlier_is_the_best_whichever_ended_first(mode, values, nr):
    trials = ended(*values)
    assert [getattr(best_trial(rows, mode), "nr", None) for rows in (trials, trials[::-1])] == [nr, nr]


def test_a_trial_that_ended_early_or_failed_is_never_the_best():
    early = [*ended(0.9, state="pruned", first=2), *ended(math.nan, state="failed", first=3)]
    assert best_trial([*ended(0.5), *early], "max") == ended(0.5)[0]
    assert best_trial(early, "max") is None


@pytest.mark.slow
@pytest.mark.parametrize("folds", [0, 3])
def test_trials_record_the_further_metrics_that_were_asked_for(folds, tmp_path):
    changes = folded(folds) if folds else {}
    plain_table, _ = search(tmp_path / "plain", 2, 1, **changes)
    table, _ = search(tmp_path / "several", 3, 2, objectives={"loss": "min", "unheard": "max"}, **changes)
    rows = json.loads(table)
    finished = [row for row in rows if row["state"] == "finished"]
    assert finished
    assert all(row["objectives"] == {"loss": 1.0, "unheard": "nan"} for row in finished)
    assert all("objectives" not in row for row in rows if row["state"] != "finished")
    # Nothing else of a trial depends on them.
    assert [{key: row[key] for key in row if key != "objectives"} for row in rows] == json.loads(plain_table)
