"""A run that its time budget stops: at an evaluation, with its checkpoint, to be reproduced, and gone on with in more time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.workspace import read_json
from tests.conftest import Cli, start_digits
from tests.projects import PROJECT
from tests.trainers.native.digits_runs import config, job, make, part_of, same, train
from tests.trainers.native.test_ranks import SETTING, bits, train_on

STOP = {"minutes": 1e-6, "action": "stop"}


def train_within(root: Path, budget: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Train for a time; as in a project, the budget is no part of the run's contract."""
    return part_of(root, {**job({}), "config": config({"budget": budget}).model_dump(), **more}, lambda _: False)


def test_a_budget_renames_no_run():
    assert config_digest(config({"budget": STOP})) == config_digest(config({}))


@pytest.mark.parametrize(
    "changes",
    [{"task": {"script": "python train.py"}, "data": None, "model": None}, {"split": {"folds": 2}}],
    ids=["program", "folds"],
)
def test_what_it_cannot_stop_is_refused(changes):
    with pytest.raises(ValidationError, match=r"budget\.action: stop"):
        TrainingConfig.model_validate({**PROJECT, **changes, "budget": STOP})


@pytest.mark.slow
def test_a_stopped_run_is_whole_up_to_an_evaluation_and_goes_on_with_the_bits_of_an_undisturbed_one(tmp_path):
    whole = train(make(tmp_path / "whole"))
    stopped = train_within(make(tmp_path / "run"), STOP)
    assert (stopped["state"], stopped["stop_reason"], stopped["steps"]) == ("interrupted", "budget", 6)
    assert [row["step"] for row in stopped["checkpoints"]] == [6]
    assert all(row["verified"] for row in stopped["checkpoints"])
    assert stopped["history"][-1]["step"] == 6
    again = train_within(tmp_path / "run", STOP)  # typed again within the same budget
    assert (again["steps"], again["stop_reason"], again["chain"]) == (6, "budget", stopped["chain"])
    ended = train_within(tmp_path / "run", {"minutes": 60, "action": "stop"})
    assert [(row["step"], row["cause"]) for row in ended["interruptions"]] == [(6, "budget")]
    assert same(ended, whole)


@pytest.mark.slow
def test_a_judged_budget_stops_nothing_and_neither_does_one_of_a_reproduction(tmp_path):
    assert train_within(make(tmp_path / "judged"), {"minutes": 1e-6})["stop_reason"] == "epochs"
    assert train_within(make(tmp_path / "again"), STOP, purpose="reproduction")["stop_reason"] == "epochs"


@pytest.mark.slow
def test_two_processes_stop_at_the_same_step(tmp_path):
    result = train_on(make(tmp_path), 2, budget=STOP)
    assert (result["stop_reason"], result["steps"], result["processes"]) == ("budget", 5, 2)
    one = train(make(tmp_path / "one"), **{**SETTING, "budget": STOP})
    assert bits(result, tmp_path) == bits(one, tmp_path / "one")


@pytest.mark.slow
@pytest.mark.long
def test_the_gate_says_so_and_the_run_is_reproduced_to_its_last_step_and_goes_on(tmp_path, cli: Cli):
    folder = tmp_path / "digits"
    start_digits(folder)
    at = ("--project", folder)
    cli("phase", "run", "planning", "--set", "budget.minutes=0.0001", "--set", "budget.action=stop", *at)
    cli("gate", "waive", "planning", "time_within_budget", "--reason", "as long as it takes", *at, code=0)
    said = cli("phase", "run", "baseline", *at, code=4)
    assert "--set budget.minutes=MINUTES" in said.out + said.err
    run = read_json(folder / "phases/02_baseline/record.json")["evidence"]["run"]
    assert (run["stop_reason"], run["steps"] < run["planned_steps"]) == ("budget", True)
    cli("reproduce", run["id"], *at, code=0, out="bit")
    cli("phase", "run", "baseline", "--set", "budget.minutes=60", *at, code=0)
    ended = read_json(folder / "phases/02_baseline/record.json")["evidence"]["run"]
    assert (ended["id"], ended["stop_reason"] != "budget") == (run["id"], True)
    assert [row["cause"] for row in ended["interruptions"]] == ["budget"]


@pytest.mark.slow
def test_finalization_does_not_open_the_test_split_for_a_training_that_was_stopped(digits, cli, tools_here):
    opened = digits.root / "phases/05_finalization/test_openings.json"
    first, command = read_json(opened), ("phase", "run", "finalization", "--project", digits.root, "--set", "optimizer.lr=0.004")
    said = cli(*command, "--set", "budget={minutes: 1.0e-6, action: stop}", code=4)
    assert "error: budget.minutes: the final training was stopped by its time budget after step 20 of " in said.err
    hint = "mltrainer phase run finalization --set optimizer.lr=0.004 --set budget.minutes=MINUTES goes on to its end"
    assert hint in said.err
    assert read_json(opened) == first
    cli(*command, "--set", "budget.minutes=60")
    (_, second) = read_json(opened)["openings"]
    ended = read_json(digits.runs_dir / second["run"] / "result.json")
    assert (ended["stop_reason"] != "budget", [row["cause"] for row in ended["interruptions"]]) == (True, ["budget"])
