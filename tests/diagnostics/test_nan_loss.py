from __future__ import annotations

import pytest

from mltrainer.diagnostics.nan_loss import find, line_fix
from mltrainer.diagnostics.rules import changes_to_try, diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.records.partial import partial
from mltrainer.records.run import Located


def test_a_run_stopped_by_nan_names_step_and_samples(broken):
    finding = find(Run.of(broken))
    assert finding.state == "fired"
    assert "step 27 (epoch 3)" in finding.reason
    assert finding.evidence["samples"] == [4, 9, 11]


def test_an_infinite_validation_loss_written_as_text_fires(healthy):
    healthy["history"][4]["validation"]["loss"] = "inf"
    finding = find(Run.of(healthy))
    assert finding.state == "fired"
    assert finding.reason == "At epoch 5 validation.loss was inf."


def test_a_metric_that_is_undefined_does_not_fire(healthy):
    healthy["history"][4]["validation"]["accuracy"] = "nan"
    assert find(Run.of(healthy)).state == "clear"


def test_a_healthy_run_is_clear(healthy):
    assert find(Run.of(healthy)).state == "clear"


def test_a_norm_that_no_step_had_is_not_counted_among_the_finite_ones(healthy):
    before = len(healthy["history"]) * 4
    healthy["history"][4]["grad_norm"] = dict.fromkeys(("min", "median", "max"))
    finding = find(Run.of(healthy))
    assert (finding.state, finding.reason.split()[1]) == ("clear", str(before - 1))


def test_a_run_without_any_record_cannot_be_judged():
    assert find(Run.of({})).state == "not_applicable"


def test_the_evidence_holds_few_of_many_samples(broken):
    broken["nonfinite"]["samples"] = list(range(5000))
    evidence = find(Run.of(broken)).evidence
    assert (len(evidence["samples"]), evidence["batch_samples"]) == (16, 5000)


SEEN = {"shape": [16, 6], "dtype": "float32", "lowest": -2.0, "largest": 3.0, "holds": "nan"}
OF_DATA = {**SEEN, "kind": "data", "tensor": "inputs", "index": [2, 3], "count": 1, "sample": 7, "replayed_from": 26}
OF_LOG = {**SEEN, "kind": "forward", "operation": "log", "module": "", "part": "loss", "line": "task.py:9", "replayed_from": 26}


def nan_loss(broken, located):
    broken["nonfinite"]["located"] = located
    return next(row for row in diagnose(Run.of(broken), None) if row.id == "nan_loss")


def test_where_it_arose_is_part_of_the_finding(broken):
    row = nan_loss(broken, OF_LOG)
    assert "First not finite: log in the task's loss (task.py:9): its output [16, 6] float32 holds nan." in row.reason
    assert (row.evidence["operation"], row.evidence["line"]) == ("log", "task.py:9")
    assert any("optimizer.lr" in one.set for one in row.suggestions)


def test_of_a_number_in_the_data_no_change_of_the_config_is_suggested(broken):
    row = nan_loss(broken, OF_DATA)
    assert "the data itself: inputs [16, 6] float32 holds nan (1 of 96 numbers), first in sample 7, place [3]" in row.reason
    assert [one.set for one in row.suggestions] == [{}]


ROOT = {**OF_LOG, "kind": "backward", "operation": "sqrt", "holds": "inf"}


def given(lowest, largest, dtype="float32"):
    return [{"shape": [16], "dtype": dtype, "lowest": lowest, "largest": largest, "holds": None}]


@pytest.mark.parametrize(
    ("located", "hint"),
    [
        ({**OF_LOG, "inputs": given(0.0, 1.0)}, "fix task.py:9, where log gave nan of finite numbers, then mltrainer run"),
        ({**OF_LOG, "inputs": given("-inf", 3.0)}, "fix task.py:9, where log gave nan of finite numbers, then mltrainer run"),
        (
            {**ROOT, "inputs": given(0.0, 0.0), "incoming": given(1.0, 1.0)},
            "fix task.py:9, where the derivative of sqrt gave inf of finite numbers, then mltrainer run",
        ),
        ({**ROOT, "inputs": given(0.0, 0.0), "incoming": given(1.0, 1e28)}, None),
        ({**OF_LOG, "inputs": given(-1e28, 1.0)}, None),
        ({**OF_LOG, "inputs": given(0.0, 1e4, "float16")}, None),
        ({**OF_LOG, "inputs": given(0.0, 1.0), "line": None}, None),
        (OF_DATA, None),
    ],
)
def test_a_line_is_to_be_mended_where_what_it_was_given_had_not_grown(located, hint):
    assert line_fix(partial(Located, located)) == hint


def test_the_line_to_mend_is_part_of_the_finding(broken):
    located = {**OF_LOG, "inputs": given(0.0, 1.0)}
    assert nan_loss(broken, located).evidence["mend"] == line_fix(partial(Located, located))
    assert "mend" not in nan_loss(broken, OF_DATA).evidence


CONFIG = {"optimizer": {"name": "adamw", "lr": 1e-3}, "clip": None, "schedule": {"name": "cosine", "warmup_epochs": 1}}
LOCATED = {"kind": "forward", "replayed_from": 20, "shape": [64, 8], "dtype": "float32", "holds": "inf", "module_kind": "Linear"}
OUTLIER = {"sample": 4711, "tensor": "inputs", "reach": 3e38, "usual": 1.5}


def test_the_sample_that_explains_it_is_named_and_no_rate_is_proposed(broken):
    broken["nonfinite"]["located"] = {**LOCATED, "outlier": OUTLIER}
    broken["nonfinite"]["recent"] = {"losses": [0.7, 900.0], "norms": [1.0, 4000.0]}
    rows = [row for row in diagnose(Run.of(broken), None) if row.state == "fired"]
    assert {"nan_loss", "exploding_gradients"} <= {row.id for row in rows}
    told = next(row for row in rows if row.id == "nan_loss")
    assert "Sample 4711 of that batch reaches 3e+38 in inputs, where half of the samples stay below 1.5" in told.reason
    assert changes_to_try(rows, CONFIG) == []
    broken["nonfinite"]["located"]["outlier"] = None
    changes = [one.set for one in changes_to_try(diagnose(Run.of(broken), None), CONFIG)]
    assert changes.count({"optimizer.lr": 1e-4}) == 1
