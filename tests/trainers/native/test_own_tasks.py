"""Tasks of one's own that are no table of equal rows: the page's examples train, go on, and are exported."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.exporters import job as exporting
from mltrainer.records.job import ExportJob
from mltrainer.workspace import read_json, sha256_file
from tests.trainers.native.digits_runs import config, same, train

PAGE = (Path(__file__).parents[3] / "docs/TASKS.md").read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
TAGGING: dict[str, Any] = {
    "task": {"use": "tagging:Tagging"},
    "epochs": 2,
    "batch_size": 16,
    "split": {"validation": 0.2, "test": 0.1},
}


@pytest.fixture(autouse=True)
def fresh_modules() -> Iterator[None]:
    """Each project's modules are its own."""
    yield
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def export_run(job: dict[str, Any]) -> dict[str, Any]:
    exporting.export_run(ExportJob.model_validate(job), Path.cwd(), job["checkpoint"])
    return result_of(job)


def result_of(job: dict[str, Any]) -> dict[str, Any]:
    return dict(read_json(Path(job["folder"]) / "result.json"))


def rehearse(job: dict[str, Any]) -> dict[str, Any]:
    exporting.rehearse(ExportJob.model_validate(job), Path.cwd())
    return result_of(job)


def project(root: Path) -> Path:
    """Write the page's modules into a folder."""
    root.mkdir(parents=True, exist_ok=True)
    for name, code in FILES.items():
        (root / name).write_text(code)
        sys.modules.pop(name.removesuffix(".py"), None)
    return root


def export_job(root: Path, values: dict[str, Any], formats: list[str], **changes: Any) -> dict[str, Any]:
    """Return the export job of the run that `train` left in a project."""
    result = read_json(root / ".mltrainer/runs/run/result.json")
    interval = {"level": 0.95, "resamples": 20, "numbers": 3e8}
    return {
        "run": "run",
        "run_folder": ".mltrainer/runs/run",
        "checkpoint": next(row["path"] for row in result["checkpoints"] if "best" in row["roles"]),
        "config": config(values).model_dump(),
        "folder": ".mltrainer/exports/run",
        "out": "final_model",
        "formats": formats,
        "samples": 24,
        "tolerance": 1e-4,
        "test": {"ledger": "openings.json", "openings": [], "interval": interval},
        "threads": 1,
        **changes,
    }


@pytest.mark.slow
def test_padded_sequences_have_the_same_bits_wherever_a_run_stops_and_whoever_reads_them(tmp_path):
    whole = train(project(tmp_path / "whole"), **TAGGING)
    assert whole["metrics"]["accuracy"] > 0.5
    assert same(train(project(tmp_path / "parts"), stops=(8,), workers=(0, 2), **TAGGING), whole)


def predicted(folder: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """Return what a delivered model answers, asked by the script beside it."""
    capsys.readouterr()
    assert runpy.run_path(str(folder / "inference.py"))["main"]([str(file)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_a_model_of_named_inputs_of_any_length_is_delivered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(project(tmp_path))
    train(tmp_path, **{**TAGGING, "epochs": 1})
    result = export_run(export_job(tmp_path, TAGGING, ["torch_export"]))
    assert [(row["agrees"], row["reason"]) for row in result["exports"]] == [(True, None)]
    assert result["test"]["metrics"]["accuracy"] > 0.5
    assert "accumulated" in result["test"]["intervals"]["reason"]
    np.savez(tmp_path / "one.npz", tokens=np.array([[3, 4, 2, 9, 9, 1, 5, 8, 2, 6, 7]]), mask=np.ones((1, 11), np.float32))
    (answer,) = predicted(tmp_path / "final_model", tmp_path / "one.npz", capsys)
    assert len(answer["output"]) == 22


WALKING: dict[str, Any] = {"task": {"use": "walking:Walking"}, "epochs": 2, "batch_size": 16, "evaluate": {"every_n_steps": 4}}


@pytest.mark.slow
def test_a_stream_has_the_same_bits_wherever_a_run_stops_and_whoever_reads_it(tmp_path):
    whole = train(project(tmp_path / "whole"), **WALKING)
    assert whole["metrics"]["accuracy"] > 0.6
    assert same(train(project(tmp_path / "parts"), stops=(9,), workers=(2, 0), **WALKING), whole)


@pytest.mark.slow
def test_a_stream_without_end_has_as_many_samples_as_are_asked_for(tmp_path):
    project(tmp_path)
    source = FILES["walking.py"].replace("return self.count\n", "return NotImplemented if self.first == 0 else self.count\n")
    (tmp_path / "walking.py").write_text(source)
    task = {"use": "walking:Walking", "samples_per_epoch": 150}
    result = train(tmp_path, **{**WALKING, "task": task, "epochs": 1})
    assert result["train_samples"] == 150


SHOUTING: dict[str, Any] = {
    "task": {"use": "shouting:Shouting"},
    "metric": {"name": "loss", "mode": "min"},
    "epochs": 4,
    "split": {"validation": 0.2, "test": 0.1},
    "optimizer": {"name": "adamw", "lr": 0.1},
}


@pytest.mark.slow
def test_raw_text_is_predicted_by_the_module_that_is_delivered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(project(tmp_path / "project"))
    train(Path(), **SHOUTING)
    export_run(export_job(Path(), SHOUTING, ["torch_export"]))
    out = (tmp_path / "project/final_model").rename(tmp_path / "elsewhere")
    assert (out / "letters.py").read_bytes() == (tmp_path / "project/letters.py").read_bytes()
    assert "letters.py" in (out / "SHA256SUMS").read_text()
    assert read_json(out / "manifest.json")["preprocess"]["sha256"] == sha256_file(out / "letters.py")
    (tmp_path / "texts.txt").write_text("yes\naaaaaaaaaaaaahhh\n")
    assert [row["prediction"] for row in predicted(out, tmp_path / "texts.txt", capsys)] == ["calm", "shouting"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import shouting\n", "cannot be imported beside the delivered model: ModuleNotFoundError: No module"),
        ("def prepare(rows, spec): pass\n", "it has no function preprocess(rows, spec)"),
        (None, "is no file of the project"),
    ],
)
def test_a_module_that_cannot_travel_is_told_before_anything_is_trained(tmp_path, monkeypatch, code, told):
    monkeypatch.chdir(project(tmp_path))
    source = (tmp_path / "shouting.py").read_text()
    (tmp_path / "shouting.py").write_text(source.replace('"preprocess": "letters.py"', '"preprocess": "ours.py"'))
    if code is not None:
        (tmp_path / "ours.py").write_text(code)
    values = {"config": config(SHOUTING).model_dump(), "formats": ["safetensors"], "samples": 4, "tolerance": 1e-4}
    places = {"folder": ".mltrainer/exports/try", "out": ".mltrainer/exports/try/model", "run_folder": ""}
    fault = rehearse({**values, **places, "run": "try", "threads": 1, "checkpoint": None, "test": None})["fault"]
    assert told in fault["what"]
