"""The speed of a run: measured, counted once after its last bit, and no part of what is reproduced."""

from __future__ import annotations

import statistics
from typing import Any, NoReturn

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mltrainer.records.run import Speed
from mltrainer.tools.program import Events
from mltrainer.trainers.native import speed
from mltrainer.trainers.native.recording import Timings
from mltrainer.trainers.native.speed import _counted_kernels
from tests.trainers.native.digits_runs import job, make, part_of, same, train


def test_recent_rates_are_those_of_the_steps_samples_and_times():
    timings = Timings()
    assert timings.rates() == (0.0, 0.0)
    timings.step_s.extend([0.5, 0.5, 1.0])
    timings.samples.extend([8, 8, 4])
    assert timings.rates() == (1.5, 10.0)


def test_rates_follow_from_what_was_measured_and_a_missing_one_is_not_known():
    found = Speed(samples_per_s=100.0, tokens_per_sample=128, flops_per_sample=2e9, peak_flops_per_s=1e12)
    assert (found.tokens_per_s, found.flops_per_s, found.utilization) == (12_800, 2e11, 0.2)
    unknown = Speed(samples_per_s=None, flops_per_sample=2e9, peak_flops_per_s=1e12)
    assert (unknown.tokens_per_s, unknown.flops_per_s, unknown.utilization) == (None, None, None)
    assert Speed(samples_per_s=100.0, flops_per_sample=2e9).utilization is None


@pytest.mark.slow
def test_operations_are_counted_once_and_neither_they_nor_a_model_that_refuses_it_change_a_bit(tmp_path, monkeypatch):
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(Events, "send", lambda _self, event, **values: sent.append({"event": event, **values}))
    counted = train(make(tmp_path / "counted"))
    # 64 -> 32 -> 10: both products, both gradients of the weights, and the gradient of the second layer's inputs.
    assert counted["speed"]["flops_per_sample"] == 2 * (2 * 64 * 32 + 3 * 32 * 10)
    assert counted["speed"]["samples_per_s"] == statistics.median(row["samples_per_s"] for row in counted["history"])
    assert (counted["speed"]["tokens_per_sample"], counted["speed"]["peak_flops_per_s"]) == (None, None)  # on a CPU
    assert {"samples_per_s", "steps_per_s"} <= set(next(one for one in sent if one["event"] == "progress"))

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("no dispatch mode")

    monkeypatch.setattr(speed, "forwarded", refuse)
    refused = train(make(tmp_path / "refused"))
    assert refused["speed"]["flops_per_sample"] is None
    assert refused["speed"]["samples_per_s"] > 0
    assert same(refused, counted)
    assert any("no dispatch mode" in event.get("text", "") for event in sent)


def test_attention_is_counted_on_a_cpu_too():
    tokens = torch.randn(1, 2, 8, 4, requires_grad=True)  # samples, heads, places, numbers
    with FlopCounterMode(display=False) as counted, _counted_kernels("cpu"):
        torch.nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).sum().backward()
    assert counted.get_total_flops() == 3 * 2 * (2 * 2 * 8 * 8 * 4)  # two products forward, twice as many backward


@pytest.mark.slow
def test_a_stopped_run_says_how_fast_it_was_and_counts_nothing(tmp_path):
    stopped = part_of(make(tmp_path), job({}), lambda step: step == 8)["speed"]
    assert stopped["samples_per_s"] > 0
    assert stopped["flops_per_sample"] is None
