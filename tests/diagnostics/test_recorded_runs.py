"""The rules on real small trainings: every planted fault is found, and no healthy run is flagged."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from tests.diagnostics.conftest import RECORDED
from tests.diagnostics.recipes import load, measure

FAULTY = sorted(name for name, entry in RECORDED.items() if entry["must"])
HEALTHY = sorted(name for name, entry in RECORDED.items() if not entry["must"])
ON_CURVES = (  # the rules that need no more than curves and norms; of the others the labelled benchmark tells
    *("nan_loss", "overfitting", "exploding_gradients", "vanishing_gradients", "input_starvation", "convergence_stall"),
)
LABELLED = os.environ.get("MLTRAINER_LABELLED_RUNS", "")  # JSON lines of more labelled runs, see recipes.py


def fired(name: str) -> list[str]:
    return [row.id for row in diagnose(Run.of(RECORDED[name]["run"]), None) if row.state == "fired"]


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_found(name):
    assert RECORDED[name]["must"] in fired(name)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_flagged_by_no_rule(name):
    assert fired(name) == []


def test_every_rule_on_curves_has_two_planted_faults_and_three_healthy_runs_to_answer_for():
    faults = Counter(RECORDED[name]["must"] for name in FAULTY)
    assert {rule: count for rule in ON_CURVES if (count := faults[rule]) < 2} == {}
    assert len(HEALTHY) >= 3


@pytest.mark.parametrize("name", ["shuffled labels learned by heart", "few samples, many columns", "regression learned by heart"])
def test_what_was_learned_by_heart_is_no_stall(name):
    assert "convergence_stall" not in fired(name)


def test_a_nan_in_the_data_is_no_explosion():
    assert "exploding_gradients" not in fired("nan in the data")


@pytest.mark.skipif(not LABELLED, reason="MLTRAINER_LABELLED_RUNS names no file")
def test_more_labelled_runs_miss_nothing_and_flag_no_healthy_run():
    for path in LABELLED.split(os.pathsep):
        table = measure(load(Path(path)))
        assert {name: ids["missed"] + ids["healthy"] for name, ids in table.items() if ids["missed"] or ids["healthy"]} == {}
