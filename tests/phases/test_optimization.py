"""Optimization: a search, a replay, a comparison over fresh seeds, and a config that is promoted only when it has won."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.phases import optimization
from mltrainer.phases.context import Context
from mltrainer.phases.finalization import final_config
from mltrainer.phases.optimization import known_comparisons
from mltrainer.records.reading import read_records
from mltrainer.runs.launcher import launch
from mltrainer.search.space import trial_values
from mltrainer.workspace import Project, read_json
from tests.conftest import commit, shared, succeed
from tests.projects import evidence_of, write_light_template
from tests.results import run_result

TEMPLATE: dict[str, Any] = {
    "strategy": "random",
    "trials": 3,
    "space": {
        "optimizer.lr": {"log_uniform": [1e-2, 3e-2]},
        "model.dropout": {"uniform": [0.0, 0.1]},
        "clip.norm": {"choice": [1.0]},
        "schedule.name": {"choice": ["constant"]},
    },
    "trial": {"epochs": 2, "early_stopping": None, "checkpoint": {"every_n_epochs": 10, "keep": 0}},
}
NO_GAIN = "space={optimizer.lr: {choice: [0.001]}}"  # the baseline's own value


def make_missed(folder: Path) -> None:
    """Make a project whose baseline misses its acceptance criterion, up to the diagnosis."""
    succeed("init", folder, "--example", "digits")
    project = Project(folder)
    values = yaml.safe_load(project.file.read_text())
    values |= {"acceptance": {"accuracy": ">= 0.999"}, "model": {"name": "mlp", "hidden": [32]}}
    project.file.write_text(yaml.safe_dump(values))
    write_light_template(folder)
    (folder / "configs/tuning_template.yaml").write_text(yaml.safe_dump(TEMPLATE))
    commit(folder)
    succeed("phase", "run", "planning", "--project", folder, "--set", "epochs=3", "--set", "early_stopping=null")
    succeed("run", "--until", "diagnostics", "--project", folder)


@pytest.fixture(scope="session")
def missed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "missed", make_missed)


@pytest.fixture
def missed(missed_once: Path, tmp_path: Path) -> Project:
    """A project whose baseline misses its acceptance criterion, before optimization."""
    return Project(Path(shutil.copytree(missed_once, tmp_path / "missed", symlinks=True)))


@pytest.fixture(scope="session")
def optimized(missed_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """That project after its optimization; not to be changed."""

    def make(folder: Path) -> None:
        shutil.copytree(missed_once, folder, symlinks=True)
        succeed("phase", "run", "optimization", "--project", folder)

    return Project(shared(tmp_path_factory, "optimized", make))


def results(project: Project) -> dict[str, dict[str, Any]]:
    return {path.parent.name: read_json(path) for path in project.runs_dir.glob("*/result.json")}


def chosen(project: Project) -> dict[str, Any]:
    return dict(yaml.safe_load((project.phase_dir("optimization") / "final_config.yaml").read_text()))


# --- a candidate that wins ------------------------------------------------------------------------


@pytest.mark.slow
def test_every_trial_is_a_real_run_with_the_values_that_its_number_gives(optimized):
    found = evidence_of(optimized, "optimization")
    runs = results(optimized)
    assert [trial["nr"] for trial in found["trials"]] == [1, 2, 3]
    for trial in found["trials"]:
        assert trial["values"] == trial_values(found["space"], found["seed"], trial["nr"])
        assert runs[trial["run"]]["metrics"]["accuracy"] == trial["value"]
        assert runs[trial["run"]]["epochs"] == 2


def test_the_best_trial_was_trained_again_to_the_same_bits(optimized):
    found = evidence_of(optimized, "optimization")
    best = max(found["trials"], key=lambda trial: trial["value"])
    assert found["best"] == best["nr"]
    assert found["replay"] == {"run": best["run"], "identical": True}
    again = read_json(optimized.state_dir / "reproductions" / best["run"] / "result.json")
    assert again["chain"] == results(optimized)[best["run"]]["chain"]


def test_the_comparison_has_fresh_seeds_and_the_same_splits(optimized):
    found = evidence_of(optimized, "optimization")["comparison"]
    assert len(set(found["seeds"])) == len(found["candidate"]) == len(found["baseline"]) == 5
    assert 42 not in found["seeds"]
    runs = [run for run in results(optimized).values() if run["seed"] in found["seeds"]]
    assert len(runs) == 10
    assert {run["data_sha256"] for run in runs} == {evidence_of(optimized, "planning")["data"]["sha256"]}
    assert found["worst_difference"] > 0


def test_both_sides_of_the_comparison_are_trained_as_planned_and_their_budget_is_told(optimized):
    found = evidence_of(optimized, "optimization")["comparison"]
    runs = [run for run in results(optimized).values() if run["seed"] in found["seeds"]]
    assert {run["epochs"] for run in runs} == {3}  # as planned, where a trial has two
    assert found["budget"]["baseline"] == {"epochs": 3, "steps": [60] * 5, "samples": [3 * 1260] * 5}
    assert found["budget"]["candidate"] == found["budget"]["baseline"]
    report = (optimized.phase_dir("optimization") / "tuning_results.md").read_text()
    assert "| candidate | 3 | 300 | 18,900 |" in report
    assert "both were trained as planned" in report


def test_the_first_comparison_of_a_plan_is_counted_and_told(optimized, cli):
    found = evidence_of(optimized, "optimization")["comparison"]
    assert (found["number"], found["earlier"]) == (1, [])
    known = known_comparisons(optimized, None)
    assert [row.candidate_sha256 for row in known] == [found["candidate_sha256"]]
    item = cli("gate", "check", "optimization", "--json", "--project", optimized.root).json["phases"][-1]["items"][2]
    shown = {key: item["evidence"][key] for key in ("comparison", "level", "p_value", "budget")}
    trained = {"epochs": 3, "steps": 300, "samples": 18900}
    assert shown == {"comparison": 1, "level": 1 / 32, "p_value": 1 / 32, "budget": {"baseline": trained, "candidate": trained}}


def test_the_forecast_stands_beside_what_the_search_took(optimized):
    found = evidence_of(optimized, "optimization")
    assert found["forecast"]["search_s"] > 0 < found["comparison_s"]
    assert "were forecast)" in (optimized.phase_dir("optimization") / "tuning_results.md").read_text()


def test_the_winner_is_promoted_and_keeps_the_planned_budget(optimized):
    found = evidence_of(optimized, "optimization")
    planned = evidence_of(optimized, "planning")["config"]
    best = found["trials"][found["best"] - 1]["values"]
    assert found["promoted"] == "candidate"
    assert chosen(optimized) == found["config"]
    assert found["config"]["epochs"] == planned["epochs"] == 3
    assert found["config"]["optimizer"] == {**planned["optimizer"], "lr": best["optimizer.lr"]}


def test_the_gate_holds_and_the_report_tells_the_search(optimized, cli):
    cli("gate", "check", "optimization", "--project", optimized.root, code=0)
    report = (optimized.phase_dir("optimization") / "tuning_results.md").read_text()
    assert "promoted: **candidate**" in report
    assert "random search, seed 42: 3 trials of 3 planned (3 finished)" in report
    assert "| `epochs` | 3 | 2 |" in report


def test_the_phases_name_stands_for_its_best_trial(optimized, cli):
    shown = cli("runs", "show", "optimization", "--json", "--project", optimized.root).json
    assert shown["id"] == evidence_of(optimized, "optimization")["replay"]["run"]
    phases = cli("status", "--json", "--project", optimized.root).json["phases"]
    assert phases[3]["run"] == shown["id"]


@pytest.mark.slow
@pytest.mark.parametrize("assignment", ["trials=-1", "trials=3"])
def test_a_change_of_a_search_that_is_skipped_is_refused(digits, cli, assignment):
    said = cli("phase", "run", "optimization", "--set", assignment, "--project", digits.root, code=1)
    assert "optimization is skipped, because the baseline meets every acceptance criterion" in said.err
    assert "next: mltrainer phase run optimization, or ask for more in mltrainer.yaml" in said.err
    cli("gate", "check", "--project", digits.root, code=0)


# --- searches that are repeated ---


def counted_in(project: Project) -> list[int]:
    return sorted(row.number for row in known_comparisons(project, None))


def test_a_comparison_is_known_from_git_when_the_records_and_the_state_are_gone(optimized, tmp_path):
    project = Project(Path(shutil.copytree(optimized.root, tmp_path / "cleaned", symlinks=True)))
    commit(project.root)
    shutil.rmtree(project.state_dir)
    shutil.rmtree(project.phase_dir("optimization"))
    assert counted_in(project) == [1]
    shutil.rmtree(project.root / ".git")
    assert counted_in(project) == []


SPACES: list[tuple[str, dict[str, Any], int, tuple[str, int, int | None], str | None]] = [
    ("tpe", {"batch_size": {"choice": [16, 32, 64]}}, 20, ("grid", 3, 3), "the space has 3 points: 3 trials, each of them once"),
    ("tpe", {"epochs": {"integer": [1, 3]}}, 3, ("grid", 3, 3), None),
    ("tpe", {"batch_size": {"choice": [16, 32, 64]}}, 2, ("tpe", 2, None), None),
    ("random", {"optimizer.lr": {"uniform": [0.1, 0.2]}}, 20, ("random", 20, None), None),
    ("random", {"epochs": {"integer": [1, 30]}}, 50, ("random", 50, None), None),  # a grid has five of its points
    (
        "grid",
        {"batch_size": {"choice": [16, 32, 64]}, "epochs": {"integer": [1, 30]}},
        4,
        ("grid", 4, 15),
        "4 are tried, 11 left",
    ),
    ("grid", {"optimizer.lr": {"uniform": [0.1, 0.2]}}, 20, ("grid", 5, 5), "the space has 5 points"),
]


@pytest.mark.parametrize(("strategy", "space", "trials", "expected", "note"), SPACES)
def test_a_space_of_few_points_is_gone_through_once_and_what_is_left_out_is_said(strategy, space, trials, expected, note):
    told: list[str] = []
    ctx: Any = SimpleNamespace(note=told.append)
    assert optimization._extent(ctx, strategy, trials, space, {}) == expected
    assert (note in told[0]) if note else not told


# --- what it will take ----------------------------------------------------------------------------

RATES = {"optimizer.lr": {"uniform": [0.1, 0.2]}}
BATCHES = {"batch_size": {"choice": [16, 32, 64]}}


def expected(space: dict[str, Any], epochs: int = 10, ran: int = 20, planned: int = 20) -> tuple[float, float]:
    """Return what a trial and a run of the comparison will take after a baseline of 40 s, 30 of them in its steps of 64."""
    run = run_result(wall_s=40.0, epochs=ran, batch_size=64, time_s={"train": 30.0})
    config = SimpleNamespace(epochs=planned)
    baseline = SimpleNamespace(evidence=SimpleNamespace(run=run, folds=None))
    ctx: Any = SimpleNamespace(baseline=baseline, task=SimpleNamespace(is_opaque=False))
    ctx.planned_config = lambda: config
    of_trials: Any = SimpleNamespace(epochs=epochs, batch_size=64)
    found = optimization._expected(ctx, of_trials, space)
    return found["run_s"], found["planned_s"]


def test_a_forecast_counts_the_steps_that_small_batches_and_other_lengths_take():
    assert expected(RATES) == (20.0, 40.0)
    assert expected(BATCHES)[0] == pytest.approx(5 + 15 * (4 + 2 + 1) / 3)
    assert expected({"batch_size": {"choice": [128]}})[0] == pytest.approx(5 + 15 / 2)
    assert expected({"epochs": {"choice": [10, 30]}})[0] == pytest.approx(40)
    assert expected(RATES, ran=10) == (40.0, 80.0)  # a baseline that ended early says less of a run that may not


# --- a search without a gain ----------------------------------------------------------------------


@pytest.mark.slow
def test_without_a_gain_the_baseline_stays_and_a_person_may_waive_it(missed, cli):
    project = ("--project", missed.root)
    said = cli("phase", "run", "optimization", "--set", "trials=1", "--set", NO_GAIN, *project, code=4)
    assert "improvement_validated fails" in said.out
    planned = evidence_of(missed, "planning")["config"]
    assert evidence_of(missed, "optimization")["promoted"] == "baseline"
    assert chosen(missed) == planned
    cli("phase", "run", "finalization", *project, code=4)
    cli("gate", "waive", "optimization", "improvement_validated", "--reason", "good enough for a demo", *project, code=0)
    assert "good enough for a demo" in (missed.phase_dir("optimization") / "tuning_results.md").read_text()
    assert cli("status", "--json", *project).json["next"] == "mltrainer phase run finalization"
    assert finalized(missed)["optimizer"] == planned["optimizer"]


def finalized(project: Project) -> dict[str, Any]:
    """Return the config that finalization would train, under an empty production template."""
    earlier = read_records(project)
    ctx = Context(project, phase_page("finalization", None), earlier, None, None, (), lambda event: None, launch)
    return final_config(ctx, {}).model_dump()


def test_finalization_trains_what_was_promoted(optimized):
    assert finalized(optimized) == TrainingConfig.model_validate(evidence_of(optimized, "optimization")["config"]).model_dump()


# --- interruption ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_after_ctrl_c_the_same_command_goes_on_with_the_trials_that_are_left(missed, cli):
    arguments = ["phase", "run", "optimization", "--set", "trials=6", "--project", str(missed.root)]
    before = set(results(missed))
    process = subprocess.Popen([sys.executable, "-m", "mltrainer", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while process.poll() is None and len(set(results(missed)) - before) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors.decode()
    assert "type the same command again to go on" in errors.decode()
    assert not (missed.phase_dir("optimization") / "record.json").exists()
    paths = [missed.runs_dir / name / "result.json" for name, run in results(missed).items() if run["state"] == "finished"]
    kept = {path: path.stat().st_mtime_ns for path in paths}
    cli(*arguments, code=0)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [trial["state"] for trial in evidence_of(missed, "optimization")["trials"]] == ["finished"] * 6


# --- a search that learns, and ends trials early --------------------------------------------------


@pytest.mark.slow
def test_trials_that_end_at_a_rung_are_told_and_repeat_and_the_gate_holds(missed, cli, real_tools):
    pruned_at_one = ["--set", "pruning={name: successive_halving, eta: 2, first: 1}", "--set", "lag=2"]
    root = ["--project", str(missed.root)]
    cli("phase", "run", "optimization", "--set", "strategy=tpe", "--set", "trials=8", *pruned_at_one, *root, code=0)
    found = evidence_of(missed, "optimization")
    assert (found["strategy"], found["lag"], found["rungs"]) == ("tpe", 2, [1])
    pruned = [trial for trial in found["trials"] if trial["state"] == "pruned"]
    assert pruned
    assert all(trial["pruned_at"] == 1 and len(trial["curve"]) == 1 for trial in pruned)
    assert found["replay"]["identical"]
    assert found["best"] not in [trial["nr"] for trial in pruned]
    said = cli("reproduce", pruned[0]["run"], *root)
    assert (said.code, "identical" in said.out or "bitwise" in said.out) == (0, True), said.out
    journal = next(missed.state_dir.glob("studies/*/study.journal"))
    assert journal.stat().st_size > 0


# --- mistakes -------------------------------------------------------------------------------------

MISTAKES = {
    "trials=0": "key trials: Input should be greater than or equal to 1",
    "space={}": "key space: Dictionary should have at least 1 item",
    "space.optimizer.rate={choice: [1]}": "'optimizer.rate' is no key of a training config",
    "space.optimizer.lr={uniform: [2.0, 1.0]}": "the low end 2.0 must be below the high end 1.0",
    "space={optimizer.momentum: {uniform: [0.1, 0.9]}}": "nothing to search, because the config has no such key: optimizer",
    "trial.epoch=3": "did you mean 'epochs'",
    "pruning={first: 0.5}": "the first rung is at 0.5 of an epoch, and trials are measured at the ends of epochs alone",
    "storage=postgresql://me:hunter22@host/x": "key storage: it contains a password",
    "constraints={speed: '<= 5'}": "key constraints: there is no metric 'speed' that a trial records",
    "objectives={accuracy: max}": "key objectives: there is no further metric 'accuracy' that a trial records",
    "trial.processes=3": "key trial.processes: 3 processes cannot share the sum of a step",
    "trial.processes=2": "key trial.processes: 2 processes share the micro-batches of a step, and accumulate: 1 gives fewer",
    "trial.clip={norm: -1.0}": "key trial.clip.norm: Input should be greater than 0",
}


@pytest.mark.parametrize("assignment", MISTAKES)
def test_a_mistake_in_the_search_is_named_before_anything_runs(missed, cli, assignment):
    said = cli("phase", "run", "optimization", "--set", assignment, "--project", missed.root, code=1, err=MISTAKES[assignment])
    assert "hunter22" not in said.out + said.err
    assert not (missed.state_dir / "studies").exists()


@pytest.mark.parametrize("number", [2, 3])
def test_a_number_of_processes_for_the_command_is_that_of_each_trial(missed, cli, number):
    asked = ["phase", "run", "optimization", "--processes", number, "--project", missed.root]
    cli(*asked, code=1, err=MISTAKES[f"trial.processes={number}"])


def test_what_the_rest_of_the_config_does_not_go_with_is_not_searched():
    given = {"name": "x", "seed": 1, "task": {"kind": "text_classification"}, "data": {"source": "x", "target": "y"}}
    model = {"name": "transformer", "width": 60, "heads": 3}
    config = TrainingConfig.model_validate({**given, "model": model, "metric": {"name": "loss", "mode": "min"}})
    told: list[str] = []
    ctx: Any = SimpleNamespace(note=told.append)
    space = {"model.width": {"choice": [32, 60, 96]}, "model.heads": {"choice": [7]}, "optimizer.lr": {"choice": [0.1, -1]}}
    assert optimization._space(ctx, space, config) == {"model.width": {"choice": [60, 96]}, "optimizer.lr": space["optimizer.lr"]}
    assert [note.partition(": ")[2] for note in told] == ["model.width of 32", "model.heads of 7"]


def test_rates_are_not_searched_for_an_own_optimizer_and_the_reason_is_told():
    given = {"name": "x", "seed": 1, "task": {"use": "my_task:Rings"}, "optimizer": {"name": "own"}, "schedule": {"name": "own"}}
    config = TrainingConfig.model_validate({**given, "metric": {"name": "loss", "mode": "min"}})
    told: list[str] = []
    ctx: Any = SimpleNamespace(note=told.append, assignments=())
    rates, epochs = {"optimizer.lr": {"choice": [1e-3, 1e-2]}}, {"batch_size": {"choice": [16, 32]}}
    assert optimization._space(ctx, {**rates, **epochs, "optimizer.momentum": {"choice": [0.1]}}, config) == epochs
    why = (
        "because it is a factor of the task's own rate here, and its range is one of rates; one of factors is "
        "{log_uniform: [0.1, 10.0]}: optimizer.lr"
    )
    assert told == [f"not searched, {why}", "not searched, because the config has no such key: optimizer.momentum"]
    with pytest.raises(InputError) as refused:
        optimization._space(ctx, rates, config)
    assert refused.value.message == f"nothing to search, {why}"


@pytest.mark.slow
def test_a_trial_that_does_not_fit_is_named_before_any_is_trained(missed, cli):
    before = results(missed)
    wrong, inapplicable = "space.optimizer.lr={choice: [-1.0]}", "space.optimizer.momentum={uniform: [0.1, 0.9]}"
    said = cli("phase", "run", "optimization", "--set", wrong, "--set", inapplicable, "--project", missed.root, code=1)
    assert "trial 1, key optimizer.lr: Input should be greater than 0; found -1.0" in said.err
    assert "not searched, because the config has no such key: optimizer.momentum" in said.err
    assert results(missed) == before


@pytest.mark.slow
def test_a_result_copied_from_another_run_is_not_counted(optimized, tmp_path, cli):
    project = Project(Path(shutil.copytree(optimized.root, tmp_path / "copied", symlinks=True)))
    before = evidence_of(project, "optimization")
    first, second = (project.runs_dir / trial["run"] / "result.json" for trial in before["trials"][:2])
    shutil.copy(first, second)
    cli("phase", "run", "optimization", "--project", project.root, code=0)
    assert (project.runs_dir / f"{second.parent.name}.damaged-1").is_dir()
    assert [trial["value"] for trial in evidence_of(project, "optimization")["trials"]] == [
        trial["value"] for trial in before["trials"]
    ]
