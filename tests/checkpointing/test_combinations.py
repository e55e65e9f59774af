"""What follows from the metrics and weights of models that were combined, beside records and checkpoints that lie about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from mltrainer.checkpointing import combinations
from mltrainer.checkpointing.ensembles import average
from mltrainer.checkpointing.format import save, snapshot
from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.records.common import Cost, MetricChoice
from mltrainer.records.finalization import Addition, Combination, Member
from mltrainer.records.partial import partial
from mltrainer.records.run import Run

State = dict[str, torch.Tensor]
COST = Cost(parameters=6, one_ms=1.0, batch_ms=2.0, batch=4)
OWN = {"loss": 0.5, "accuracy": 0.8}


def run(ties: Literal["first", "loss"] = "first") -> Run:
    found = partial(Run, {"metrics": OWN})
    return found.model_copy(update={"metric": MetricChoice(name="accuracy", mode="max", ties=ties), "metrics": OWN})


def member(accuracy: float, used: bool = True, path: str = "", sha256: str = "") -> Member:
    metrics = {"loss": 0.5, "accuracy": accuracy}
    return Member(run="a", path=path, step=1, files=[], weights_sha256=sha256, metrics=metrics, used=used)


def made(members: list[Member], accuracy: float, **others: Any) -> Combination:
    given = {"of": "checkpoints", "how": "uniform", "path": "", "files": [], "weights_sha256": "", "rebuilt_sha256": ""}
    given |= {"members": members, "metrics": {"loss": 0.5, "accuracy": accuracy}, "delivered": False}
    return Combination(**{**given, "single_cost": COST, "cost": COST, **others})


def told(combination: Combination, ties: Literal["first", "loss"] = "first") -> str:
    return "; ".join(combinations.contradictions(combination, run(ties)))


def test_it_is_better_only_where_it_is_better_than_the_runs_own_and_than_every_member():
    assert combinations.is_better(made([member(0.8), member(0.7)], 0.81), run())
    assert not combinations.is_better(made([member(0.8), member(0.7)], 0.8), run())
    # A trial that is better alone: several models are no gain over it.
    assert not combinations.is_better(made([member(0.9), member(0.8)], 0.85), run())
    assert not combinations.is_better(made([member(0.7)], 0.75), run())


def test_equal_metrics_are_decided_by_the_loss_where_the_run_decides_so():
    lower = made([member(0.8)], 0.8, metrics={"loss": 0.4, "accuracy": 0.8})
    assert combinations.is_better(lower, run("loss"))
    assert not combinations.is_better(lower, run("first"))


GREEDY = {"how": "greedy", "metrics": {"loss": 0.5, "accuracy": 0.82}, "delivered": True}


def addition(number: int, accuracy: float, kept: bool) -> Addition:
    return Addition(member=number, metrics={"loss": 0.5, "accuracy": accuracy}, kept=kept)


def test_a_greedy_mean_keeps_what_makes_it_no_worse():
    members = [member(0.8), member(0.79, used=False), member(0.7), member(0.6)]
    additions = [addition(2, 0.795, kept=False), addition(3, 0.82, kept=True), addition(4, 0.82, kept=True)]
    assert told(made(members, 0.82, additions=additions, **GREEDY)) == ""
    without = [*members[:3], member(0.6, used=False)]
    assert "of members [1, 3]; by their validation metrics it is of [1, 3, 4]" in told(
        made(without, 0.82, additions=additions, **GREEDY)
    )
    other = {**GREEDY, "metrics": {"loss": 0.5, "accuracy": 0.9}}
    assert "not those of the last average" in told(made(members, 0.9, additions=additions, **other))


def test_an_ensemble_takes_in_only_what_makes_it_better():
    members, additions = (
        [member(0.8), member(0.7), member(0.6, used=False)],
        [addition(2, 0.82, kept=True), addition(3, 0.82, kept=False)],
    )
    ensemble = {**GREEDY, "how": "ensemble"}
    assert told(made(members, 0.82, additions=additions, **ensemble)) == ""
    assert "by their validation metrics it is of [1, 2]" in told(
        made([*members[:2], member(0.6)], 0.82, additions=additions, **ensemble)
    )


def test_other_orders_and_verdicts_are_told():
    assert "not in the order" in told(made([member(0.7), member(0.8)], 0.8))
    assert "no better than each single model on validation, and delivered is True" in told(
        made([member(0.8)], 0.8, delivered=True)
    )
    assert "better than each single model on validation, and delivered is False" in told(made([member(0.8)], 0.9))


# --- weights --------------------------------------------------------------------------------------


def state(value: float) -> State:
    generator = torch.Generator().manual_seed(int(value * 10))
    return {"w": torch.randn(2, 3, generator=generator) * value, "norm": torch.full((2,), value), "n": torch.tensor(7)}


def saved(root: Path, name: str, tensors: State) -> str:
    folder = root / name / "step-00000003"
    save(folder, snapshot({"model": tensors}), {"run": name, "epoch": 1, "metric": None, "metrics": {}, "contract": {}})
    return f"{name}/step-00000003"


@pytest.fixture
def members(tmp_path: Path) -> list[Member]:
    states = [state(value) for value in (1.1, 0.3, 7.7)]
    return [member(0.8, path=saved(tmp_path, f"m{nr}", one), sha256=weights_sha256(one)) for nr, one in enumerate(states)]


def mixed(root: Path, tensors: State, members: list[Member], **others: Any) -> str:
    return combinations.weights_fault(made(members, 0.8, path=saved(root, "mean", tensors), measured=["norm"], **others), root)


def test_a_mean_is_computed_again_to_the_bit(tmp_path, members):
    mean = average([state(value) for value in (1.1, 0.3, 7.7)])
    # Batch-norm statistics are measured anew, and are no mean.
    mean["norm"] += 1
    assert mixed(tmp_path, mean, members) == ""
    mean["w"][1, 2] = torch.nextafter(mean["w"][1, 2], torch.tensor(9.0))
    assert mixed(tmp_path, mean, members) == "w is not the mean of what its 3 members have"


def test_a_mean_of_other_members_is_told(tmp_path, members):
    mean = average([state(value) for value in (1.1, 0.3)])
    assert "w is not the mean" in mixed(tmp_path, mean, members)
    assert mixed(tmp_path, mean, [*members[:2], members[2].model_copy(update={"used": False})]) == ""


def test_an_ensembles_parts_are_its_members(tmp_path, members):
    whole = {f"members.{nr}.{name}": t for nr, value in enumerate((1.1, 0.3, 7.7)) for name, t in state(value).items()}
    assert mixed(tmp_path, whole, members, how="ensemble") == ""
    whole["members.1.w"][0, 0] += 1
    assert mixed(tmp_path, whole, members, how="ensemble") == "member 2 of the ensemble has other weights than its checkpoint"


def test_the_record_is_written_and_read_alike(members):
    one = made(members, 0.8)
    assert Combination.model_validate(json.loads(json.dumps(one.written()))) == one
