"""The baseline of a finished project."""

from __future__ import annotations

from pathlib import Path

from mltrainer.workspace import Project, read_json


def test_it_stands_beside_plain_models_on_its_own_rows_with_the_test_split_sealed(digits_once: Path) -> None:
    project = Project(digits_once)
    splits = read_json(project.phase_dir("planning") / "record.json")["evidence"]["data"]["splits"]
    evidence = read_json(project.phase_dir("baseline") / "record.json")["evidence"]
    found = evidence["references"]
    assert found["reason"] is None
    assert (found["train_samples"], found["samples"]) == (splits["train"]["samples"], splits["validation"]["samples"])
    assert found["network"]["metrics"]["accuracy"] == evidence["run"]["metrics"]["accuracy"]
    assert [row["name"] for row in found["rows"]] == ["constant", "linear", "neighbours"]
    assert found["rows"][0]["verdict"] == "ahead"
    assert all(row["interval"][0] <= row["metrics"]["accuracy"] <= row["interval"][1] for row in found["rows"])
    report = (project.phase_dir("baseline") / "baseline_results.md").read_text()
    assert "5 nearest neighbours" in report


def test_the_final_model_is_compared_with_the_same_fits(digits_once: Path) -> None:
    project = Project(digits_once)
    both = [
        read_json(project.phase_dir(phase) / "record.json")["evidence"]["references"] for phase in ("baseline", "finalization")
    ]
    fits = [[(row["name"], row["seconds"], row["metrics"]) for row in found["rows"]] for found in both]
    assert fits[0] == fits[1]
    assert "5 nearest neighbours" in (project.phase_dir("finalization") / "final_report.md").read_text()
