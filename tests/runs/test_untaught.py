"""The runs that show what a model reaches without its teacher: of the same samples and config but for teacher and seed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.components import swaps_of
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.records.baseline import Untaught
from mltrainer.records.run import RunResult
from mltrainer.runs import untaught as module
from mltrainer.search.space import reseeded
from mltrainer.workspace import Project, write_json
from tests.results import run_result
from tests.runs.test_references import config as without_strategies

COST = {"parameters": 6, "one_ms": 1.0, "batch_ms": 2.0, "batch": 4}
TAUGHT = {"teacher": "t", "metrics": {"loss": 0.1}, "cost": COST, "own_cost": COST, "untaught_sha256": "plain data"}


def config(**changes: Any) -> TrainingConfig:
    return without_strategies(**{"strategies": [{"name": "distillation", "teacher": {"weights": "t.pt"}}], **changes})


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function from other runs' results to those that are shown of a run of `config()`."""

    def shown(*others: RunResult, given: TrainingConfig | None = None, ablated: TrainingConfig | None = None) -> Untaught:
        for one in others:
            write_json(tmp_path / ".mltrainer/runs" / one.id / "job.json", {})
        by_id = {one.id: one for one in others}

        def sound(folder: Path, contract: Mapping[str, str]) -> RunResult | None:
            one = by_id[folder.name]
            return one if all(getattr(one, key) == value for key, value in contract.items()) else None

        monkeypatch.setattr(module, "sound_result", sound)
        given = given or config()
        told = module.untaught(Project(tmp_path), run_result(taught=TAUGHT), given, ablated or given)
        assert told is not None
        return told

    return shown


def other(seed: int, trained: TrainingConfig | None = None, **changes: Any) -> RunResult:
    trained = reseeded(config(strategies=[]), seed) if trained is None else trained
    told = {"id": f"{seed:012x}", "seed": seed, "config_sha256": config_digest(trained), "data_sha256": "plain data"}
    return run_result(**{**told, "metrics": {"accuracy": 0.9}, **changes})


def test_runs_without_the_teacher_are_shown_by_their_seeds(found):
    rows = found(other(7), other(5), other(42, config(strategies=[]))).runs
    assert [(row.seed, row.run, row.metrics) for row in rows] == [
        (seed, f"{seed:012x}", {"accuracy": 0.9}) for seed in (5, 7, 42)
    ]


@pytest.mark.parametrize(
    "one",
    [
        other(7, data_sha256="d"),
        other(7, code_sha256="another"),
        other(7, environment_sha256="another"),
        other(7, state="failed"),
        other(7, config(seed=7, strategies=[])),  # which splits by its own seed
        other(7, reseeded(config(), 7)),
        other(7, reseeded(config(strategies=[], epochs=3), 7)),
    ],
    ids=["other samples", "other code", "other packages", "failed", "other splits", "with the teacher", "another config"],
)
def test_a_run_that_differs_in_more_is_not(found, one):
    assert found(one).runs == []


def test_a_run_without_a_teacher_has_no_such_comparison(tmp_path):
    assert module.untaught(Project(tmp_path), run_result(), config(strategies=[]), config()) is None


@pytest.mark.parametrize(
    ("given", "ablated"),
    [
        (config(), config()),
        (config(epochs=60, checkpoint={"keep": 9}), config()),
        (config(strategies=[{"name": "curriculum", "epochs": 2}, *config().model_dump()["strategies"]]), config(clip=None)),
    ],
    ids=["a baseline's", "a final one of more epochs", "beside another strategy"],
)
def test_the_command_trains_what_was_missed(found, given, ablated):
    program, command, *swaps = shlex.split(found(given=given, ablated=ablated).command)
    (swap,) = swaps_of(ablated, swaps)
    trained = reseeded(swap.applied(ablated), 7)
    assert (program, command) == ("mltrainer", "ablate")
    assert [row.seed for row in found(other(7, trained), given=given).runs] == [7]
