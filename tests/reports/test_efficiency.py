"""What reports say of speed, memory and waiting for data: the measured numbers, side by side."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mltrainer.diagnostics.input_starvation import is_starved
from mltrainer.diagnostics.signals import Run
from mltrainer.reports import values
from mltrainer.reports.render import render
from mltrainer.reports.values import number
from tests.reports.records import baseline, gate, planning

THRESHOLDS = {"data_wait": 0.3, "wait_s": 0.5}


def manifest(**changes: Any) -> str:
    record = planning(**changes)
    return render(record, [], gate())["reproducibility_manifest.md"]


def test_each_option_stands_beside_the_same_training_without_it():
    row = {
        "key": "gradient_checkpointing",
        "value": ["^encoder"],
        "plain": [],
        "with": {"step_us": 1500.0, "peak_mb": 400.0},
        "without": {"step_us": 1000.0, "peak_mb": 800.0},
    }
    text = manifest(options=[row])
    assert "What each option brings, measured here" in text
    (line,) = [line for line in text.splitlines() if "gradient_checkpointing`:" in line]
    assert [cell.strip() for cell in line.split("|")[4:8:3]] == ["1.50", "0.500"]
    assert "What each option brings" not in manifest(options=[])


def test_the_loader_processes_are_told_with_what_was_measured():
    rows = [
        {"workers": 0, "samples_per_s": 100.0, "wait": 0.75},
        {"workers": 1, "samples_per_s": 310.0, "wait": 0.0},
        {"workers": 2, "error": "a process died"},
    ]
    text = manifest(loader={"workers": 1, "in_memory": False, "needed_per_s": 300.0, "reading_s": 90.0, "rows": rows})
    assert f"The steps take {number(300.0)} samples/s" in text
    assert "1 process will load them" in text
    assert "a process died" in text
    assert f"| 0 | {number(100.0)} | {values.share(0.75)} |" in text
    assert "in memory" in manifest(loader={"workers": 0, "in_memory": True, "rows": []})


@pytest.mark.parametrize(("share", "starved"), [(0.9, True), (0.02, False)])
def test_the_baseline_says_how_long_it_waited_for_data(share, starved):
    record = baseline()
    record["evidence"]["waiting"] = {"share": share, "limit": 0.3, "starved": starved}
    text = render(record, [], gate())["baseline_results.md"]
    assert f"The loop waited for data for {values.share(share)} of the time" in text
    assert ("loader.workers=auto" in text) == starved


def test_the_report_says_how_many_steps_were_computed_twice_and_which_gave_other_bits():
    record = baseline()
    assert "computed twice" not in render(record, [], gate())["baseline_results.md"]
    record["evidence"]["run"]["replay"] = {"every": 5, "compared": 40, "differed": []}
    text = render(record, [], gate())["baseline_results.md"]
    assert "| computed twice | a micro-batch of 40 steps; none gave other bits |" in text
    wrong = {"step": 60, "micro_batch": 1, "parameter": "head.weight", "parameters": 2, "loss": False}
    own, other = {"processes": [0, 0], "devices": ["cpu", "cpu"]}, {"processes": [1, 0], "devices": ["cuda:1 (A)", "cuda:0 (A)"]}
    record["evidence"]["run"]["replay"]["differed"] = [{**wrong, **own}, {**wrong, **other, "parameter": None, "loss": True}]
    text = render(record, [], gate())["baseline_results.md"]
    assert "**step 60 gave other bits** in the gradient of `head.weight`, in process 0 on cpu, and was taken again; " in text
    assert (
        "**step 60 gave other bits** in the loss, in process 1 on cuda:1 (A) or process 0 on cuda:0 (A), and was taken again |"
        in text
    )


def test_a_short_wait_is_not_starvation():
    rows = [{"data_wait": 0.9, "seconds": seconds} for seconds in (0.1, 0.1)]
    assert not is_starved(Run.of({"history": rows}), THRESHOLDS["data_wait"], THRESHOLDS["wait_s"])
    assert is_starved(
        Run.of({"history": [{**row, "seconds": 5.0} for row in rows]}), THRESHOLDS["data_wait"], THRESHOLDS["wait_s"]
    )
    assert math.isnan(Run.of({"history": []}).data_wait)


def test_a_report_says_how_fast_the_training_was_as_far_as_it_is_known():
    record = baseline()
    assert "| speed |" not in render(record, [], gate())["baseline_results.md"]
    record["evidence"]["run"]["speed"] = {"samples_per_s": 53_012.5, "flops_per_sample": 4e8, "peak_flops_per_s": 100e12}
    text = render(record, [], gate())["baseline_results.md"]
    assert f"| speed | 53,012 samples/s, 21.2 TFLOPS, {values.share(0.212)} of the peak rate (MFU) |" in text
    record["evidence"]["run"]["speed"] = {"samples_per_s": 800.0, "tokens_per_sample": 128, "flops_per_sample": None}
    assert "| speed | 800 samples/s, 102,400 tokens/s |" in render(record, [], gate())["baseline_results.md"]
