"""A report says what changed against its committed version, and a phase that is run again without a change keeps its bytes."""

from __future__ import annotations

import copy
from typing import Any

from mltrainer.reports.changes import since
from mltrainer.reports.render import REPORTS, render
from tests.reports import records


def later(found: dict[str, Any]) -> dict[str, Any]:
    now = copy.deepcopy(found)
    now["evidence"]["run"]["metrics"]["accuracy"] = 0.97
    now["evidence"]["run"]["data_sha256"] = "f" * 64
    return now


def test_metrics_and_digests_that_differ_are_told_with_both_values():
    before = records.baseline()
    found = since(later(before), before, "commit 4f1c2b3a4f1c")
    assert found is not None
    accuracy = before["evidence"]["run"]["metrics"]["accuracy"]
    assert found["metrics"] == [{"key": "validation accuracy", "before": accuracy, "after": 0.97}]
    assert [row["key"] for row in found["settings"]] == ["data digest"]
    text = render({**later(before), "since": found}, [], records.gate())[REPORTS["baseline"]]
    assert "Against the version of commit 4f1c2b3a4f1c:" in text
    assert "| validation accuracy | 0.960 | 0.970 |" in text


def test_metrics_of_the_training_split_are_not_called_those_of_validation():
    before, now = records.baseline(), records.baseline()
    before["evidence"]["run"]["metrics"]["train_accuracy"] = 0.9
    now["evidence"]["run"]["metrics"]["train_accuracy"] = 0.8
    assert since(now, before, "here")["metrics"] == [{"key": "training accuracy", "before": 0.9, "after": 0.8}]


def test_config_keys_of_a_plan_that_differ_are_told():
    before, now = records.planning(), records.planning()
    now["evidence"]["config"] = {**now["evidence"]["config"], "epochs": 30}
    found = since(now, before, "here")
    assert found["settings"] == [{"key": "epochs", "before": 21, "after": 30}]


def test_the_same_evidence_keeps_what_the_earlier_record_said():
    told = {"of": "commit 1", "metrics": [], "settings": [{"key": "epochs", "before": 1, "after": 2}]}
    before = {**records.baseline(), "since": told}
    assert since(records.baseline(), before, "commit 2") == told


def test_the_first_report_has_nothing_to_compare_with():
    assert since(records.baseline(), None, "nothing") is None
    assert "What changed" not in render(records.baseline(), [], records.gate())[REPORTS["baseline"]]


def test_a_criterion_that_was_changed_stands_above_everything_else():
    before, now = records.planning(), records.planning()
    config = before["evidence"]["config"]
    now["evidence"]["config"] = {**config, "acceptance": {"accuracy": ">= 0.05"}, "seed": config["seed"] + 1, "epochs": 30}
    found = render({**now, "since": since(now, before, "commit 4f1c")}, [], records.gate())[REPORTS["planning"]]
    banner, rest = found.partition("## ")[0], found.partition("## ")[2]
    assert "**What the project is judged by has changed** since the version of commit 4f1c." in banner
    assert f"`acceptance.accuracy`: {config['acceptance']['accuracy']} before, >= 0.05 now" in banner
    assert "`seed`" in banner
    assert "`mltrainer report --against 4f1c` says which numbers were known by then." in banner
    assert "epochs" in rest
    assert "`epochs`" not in banner
