"""An export job, from a run's checkpoint to a folder that can be deployed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mltrainer.checkpointing.format import save, snapshot
from mltrainer.checkpointing.weights import weights_sha256, weights_tree_sha256
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError
from mltrainer.exporters import job as exporting
from mltrainer.records.common import Export
from mltrainer.records.job import ExportJob
from mltrainer.records.openings import breaks, chained
from mltrainer.tasks.opening import open_task
from mltrainer.workspace import digest, read_json, sha256_file, write_json
from tests.refusals import refused

TEST = {
    "ledger": "phases/05_finalization/test_openings.json",
    "openings": [],
    "interval": {"level": 0.95, "resamples": 50, "numbers": 3e8},
}
CHECKPOINT = ".mltrainer/runs/a1b2c3d4e5f6/checkpoints/step-00000010"


def export_run(job: dict[str, Any]) -> dict[str, Any]:
    exports = exporting.export_run(ExportJob.model_validate(job), Path.cwd(), job["checkpoint"])
    return result_of(job, exports)


def rehearse(job: dict[str, Any]) -> dict[str, Any]:
    return result_of(job, exporting.rehearse(ExportJob.model_validate(job), Path.cwd()))


def result_of(job: dict[str, Any], exports: list[Export]) -> dict[str, Any]:
    found: dict[str, Any] = read_json(Path(job["folder"]) / "result.json")
    assert found["exports"] == [row.written() for row in exports]
    return found


def table(root: Path) -> dict[str, Any]:
    """Write a small table; return the config of a task on it."""
    lines = [f"{nr % 7},{'red' if nr % 3 else 'blue'},{'yes' if nr % 7 > 3 else 'no'}" for nr in range(80)]
    (root / "data.csv").write_text("\n".join(["size,colour,bought", *lines]) + "\n")
    return {
        "name": "shop",
        "task": {"kind": "tabular_classification"},
        "data": {"source": "data.csv", "target": "bought"},
        "model": {"name": "mlp", "hidden": [4]},
        "metric": {"name": "accuracy", "mode": "max"},
        "batch_size": 8,
    }


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    config = TrainingConfig.model_validate(table(tmp_path))
    task = open_task(config, tmp_path)
    torch.manual_seed(3)
    state = {"model": task.task.model().state_dict(), "step": 10}
    contract = {"data_sha256": task.data_sha256}
    save(tmp_path / CHECKPOINT, snapshot(state), {"step": 10, "epoch": 1, "contract": contract, "run": "a1b2c3d4e5f6"})
    files = [
        {"path": str(path.relative_to(tmp_path)), "sha256": sha256_file(path)}
        for path in sorted((tmp_path / CHECKPOINT).iterdir())
    ]
    checkpoint = {"path": CHECKPOINT, "files": files}
    write_json(tmp_path / ".mltrainer/runs/a1b2c3d4e5f6/result.json", {"checkpoints": [checkpoint]})
    return {
        "run": "a1b2c3d4e5f6",
        "run_folder": ".mltrainer/runs/a1b2c3d4e5f6",
        "checkpoint": CHECKPOINT,
        "config": config.model_dump(),
        "folder": ".mltrainer/exports/a1b2c3d4e5f6",
        "out": "phases/05_finalization/final_model",
        "formats": ["safetensors", "torch_export", "torchscript"],
        "samples": 10,
        "tolerance": 1e-4,
        "test": TEST,
        "threads": 1,
    }


@pytest.mark.slow
def test_a_checkpoint_becomes_a_folder_that_can_be_deployed(job):
    result = export_run(job)
    assert [(row["state"], row["agrees"], row["samples"]) for row in result["exports"]] == [("written", True, 10)] * 3
    assert result["inference"]["columns"][1]["categories"] == ["blue", "red"]
    names = {path.name for path in Path(job["out"]).iterdir()}
    assert names >= {"model.safetensors", "model.pt2", "model.pt", "inference.py", "inference.json", "config.yaml", "SHA256SUMS"}


@pytest.mark.slow
def test_the_manifest_binds_the_model_to_its_run(job):
    result = export_run(job)
    manifest = read_json(Path(job["out"]) / "manifest.json")
    weights = torch.export.load(Path(job["out"]) / "model.pt2").state_dict
    assert manifest["run"] == job["run"]
    assert manifest["weights_sha256"] == result["weights_sha256"] == weights_sha256(weights)
    assert manifest["weights_tree_sha256"] == result["weights_tree_sha256"] == weights_tree_sha256(weights)


@pytest.mark.slow
def test_an_edited_measurement_of_the_test_split_is_not_believed(job):
    first = export_run(job)["test"]
    assert first["samples"] == 8
    assert set(first["metrics"]) >= {"loss", "accuracy"}
    write_json(Path(job["run_folder"]) / "test.json", {"samples": 8, "metrics": {"accuracy": 0.125}})
    assert export_run(job)["test"] == first
    told = read_json(Path(job["run_folder"]) / "test.json")
    assert (told["samples"], told["metrics"]) == (8, first["metrics"])


def test_an_opening_is_written_down_with_the_weights_that_were_measured(job):
    result = export_run(job)
    (row,) = read_json(Path(TEST["ledger"]))["openings"]
    data = TrainingConfig.model_validate(job["config"])
    assert (row["nr"], row["run"], row["weights_sha256"]) == (1, job["run"], result["weights_sha256"])
    assert row["data_sha256"] == open_task(data, Path()).data_sha256


@pytest.mark.slow
def test_the_same_weights_are_measured_again_without_a_second_opening(job):
    export_run(job)
    before = read_json(Path(TEST["ledger"]))["openings"]
    other = {**job, "run": "ffffffffffff", "run_folder": ".mltrainer/runs/ffffffffffff", "test": {**TEST, "openings": before}}
    Path(TEST["ledger"]).unlink()
    assert export_run(other)["test"]["samples"] == 8
    assert not Path(TEST["ledger"]).exists()


def test_a_format_that_disagrees_leaves_the_test_split_sealed(job):
    result = export_run({**job, "tolerance": -1.0})
    assert result["test"]["samples"] == 0
    assert result["test"]["sealed"] == "safetensors, torch_export, torchscript cannot be delivered"
    assert not (Path(job["run_folder"]) / "test.json").exists()
    assert not Path(TEST["ledger"]).exists()


def test_without_a_test_split_nothing_is_measured(job):
    found = export_run({**job, "test": None})["test"]
    assert (found["samples"], found["metrics"], found["sealed"]) == (0, {}, "it was not asked for")
    assert not (Path(job["run_folder"]) / "test.json").exists()


@pytest.mark.slow
def test_exporting_again_gives_the_same_folder(job):
    light = {**job, "formats": ["safetensors", "torch_export"]}
    export_run(light)
    sums = (Path(job["out"]) / "SHA256SUMS").read_bytes()
    export_run(light)
    assert (Path(job["out"]) / "SHA256SUMS").read_bytes() == sums


def test_a_format_that_is_no_longer_asked_for_leaves_no_model_of_an_earlier_export(job):
    out = Path(job["out"])
    export_run({**job, "formats": ["safetensors", "torch_export"]})
    export_run({**job, "formats": ["safetensors"]})
    assert not (out / "model.pt2").exists()
    assert "model.pt2" not in (out / "SHA256SUMS").read_text()


def test_a_model_that_no_export_wrote_is_left_alone(job):
    foreign = Path(job["out"]) / "model.pt2"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_bytes(b"somebody's")
    for _ in range(2):
        export_run({**job, "formats": ["safetensors"]})
    assert foreign.read_bytes() == b"somebody's"


def test_a_checkpoint_other_than_the_recorded_one_is_not_exported(job):
    save(Path(CHECKPOINT), snapshot({"model": {}}), {"step": 10})
    with pytest.raises(GateError, match=r"state\.safetensors: expected sha256"):
        export_run(job)
    assert not Path(job["out"]).exists()


def test_other_data_is_refused(job):
    with open("data.csv", "a") as file:
        file.write("3,red,no\n")
    with pytest.raises(GateError, match="trained on"):
        export_run(job)


OWN = """
import torch
from torch import nn
import mltrainer

class Own(mltrainer.Task):
    def __init__(self, named=False, parts=False, told=None):
        self.named, self.parts, self.told = named, parts, told
    def inference(self):
        return {"unit": torch.ones(1) if self.told == "tensor" else "mm"}
    def evaluation(self, outputs, targets):
        return {"kind": 1 / 0} if self.told == "zero" else None
    def samples(self):
        return torch.arange(40.0)[:, None], torch.arange(40.0)[:, None]
    def model(self):
        return nn.Linear(1, 1)
    def forward(self, model, batch):
        x = batch[0] / 40
        if self.parts:
            return nn.functional.linear(x, model.weight, model.bias), batch[1]
        if self.named == "list":
            return model([x]), batch[1]
        return (model(input=x) if self.named else model(x)), batch[1]
    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)
"""


LISTED = """

class Listed(nn.Linear):
    def forward(self, parts):
        return super().forward(parts[0])
"""


def own(job: dict[str, Any], module: str, source: str = OWN, **options: Any) -> dict[str, Any]:
    """Return the job of a user's own task with a checkpoint of it."""
    Path(f"{module}.py").write_text(source)
    task = {"use": f"{module}:Own", "options": options}
    values = {"name": "own", "task": task, "metric": {"name": "loss", "mode": "min"}, "batch_size": 8}
    config = TrainingConfig.model_validate(values)
    save(Path(CHECKPOINT), snapshot({"model": torch.nn.Linear(1, 1).state_dict()}), {"step": 10})
    Path(job["run_folder"], "result.json").unlink()
    return {**job, "config": config.model_dump(), "formats": ["torch_export"]}


def test_what_a_task_of_ones_own_calls_its_model_with_is_compared(job):
    result = export_run(own(job, "own_positional"))
    assert result["exports"][0]["agrees"] is True
    assert result["inference"] == {"unit": "mm"}


def test_a_model_that_is_called_by_name_is_delivered(job):
    result = export_run(own(job, "own_named", named=True))
    assert result["exports"][0]["agrees"] is True
    assert read_json(Path(job["out"]) / "inference.json") == {"unit": "mm"}


def test_a_model_of_which_only_parts_are_called_is_refused_with_what_to_change(job):
    with refused("never calls the model itself", hint="model(...)"):
        export_run(own(job, "own_parts", parts=True))


# --- the rehearsal on an untrained model ----------------------------------------------------------


def rehearsed(job: dict[str, Any], module: str, source: str = OWN, **options: Any) -> dict[str, Any]:
    """Rehearse the export of a user's own task; nothing was trained."""
    return rehearse(
        {**own(job, module, source, **options), "checkpoint": None, "test": None, "formats": ["safetensors", "torchscript"]}
    )


def line_of(text: str) -> int:
    return next(nr for nr, line in enumerate(OWN.splitlines(), 1) if text in line)


def test_every_format_is_tried_on_an_untrained_model_and_nothing_is_left(job):
    found = rehearsed(job, "own_rehearsed")
    assert [(row["format"], row["agrees"]) for row in found["exports"]] == [("safetensors", True), ("torchscript", True)]
    assert (found["inference"], found["evaluation"], found["fault"]) == (True, False, None)
    assert not Path(job["out"]).exists()
    assert not (Path(job["run_folder"]) / "test.json").exists()


def test_a_call_that_cannot_be_exported_is_named_with_its_line_before_anything_is_trained(job):
    changed = OWN.replace("return nn.Linear(1, 1)", "return Listed(1, 1)") + LISTED
    fault = rehearsed(job, "own_rehearsed_listed", changed, named="list")["fault"]
    assert fault["where"] == f"own_rehearsed_listed.py:{line_of('model([x])')}"
    assert "found list" in fault["what"]
    assert "tensors" in fault["mend"]


@pytest.mark.parametrize(("told", "what"), [("tensor", "inference of your task"), ("zero", "evaluation of your task")])
def test_what_a_task_tells_only_at_the_end_is_asked_at_the_start(job, told, what):
    assert what in rehearsed(job, f"own_rehearsed_{told}", told=told)["fault"]["what"]


@pytest.mark.slow
def test_an_opening_names_the_rows_that_were_seen_in_a_chained_ledger(job):
    export_run({**job, "test": {**TEST, "salt": "pepper"}})
    ledger = read_json(Path(TEST["ledger"]))
    (row,) = ledger["openings"]
    rows = open_task(TrainingConfig.model_validate(job["config"]), Path()).test_rows("pepper")
    assert ledger["splits"] == {row["rows_sha256"]: rows}
    assert row["rows_sha256"] == digest(rows)
    assert breaks(ledger["openings"]) is None
    assert read_json(Path(job["run_folder"]) / "test.json")["rows"] == rows


def test_a_second_opening_follows_the_first_and_keeps_its_rows(job):
    before = {
        "openings": chained([{"run": "b" * 12, "purpose": "x", "data_sha256": "d", "weights_sha256": "w"}]),
        "splits": {"r": {}},
    }
    export_run({**job, "test": {**TEST, **before}})
    ledger = read_json(Path(TEST["ledger"]))
    assert ledger["openings"][0] == before["openings"][0]
    assert [row["nr"] for row in ledger["openings"]] == [1, 2]
    assert breaks(ledger["openings"]) is None
    assert set(ledger["splits"]) == {"r", ledger["openings"][1]["rows_sha256"]}


# --- sets and intervals ---------------------------------------------------------------------------


def with_doubt(job: dict[str, Any], **asked: Any) -> dict[str, Any]:
    config = {**job["config"], "conformal": {"coverage": 0.8, "score": None, **asked}}
    return {**job, "config": config, "formats": ["torch_export"]}


def asked_of(folder: Path, lines: list[str]) -> list[dict[str, Any]]:
    (folder.parent / "rows.csv").write_text("\n".join(["size,colour", *lines]) + "\n")
    command = [sys.executable, str(folder / "inference.py"), str(folder.parent / "rows.csv")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("score", ["lac", "aps"])
def test_the_delivered_model_answers_with_the_sets_whose_coverage_was_measured(job, score):
    result = export_run(with_doubt(job, score=score))
    doubt, coverage = result["conformal"], result["test"]["coverage"]
    assert (doubt["score"], doubt["samples"], doubt["rank"]) == (score, 16, 14)
    assert read_json(Path(job["out"]) / "inference.json")["conformal"] == doubt
    assert read_json(Path(job["run_folder"]) / "test.json")["coverage"] == coverage
    # The script's own answers to the rows of the test split: what was measured is what is delivered.
    task = open_task(TrainingConfig.model_validate(job["config"]), Path.cwd())
    lines = Path("data.csv").read_text().splitlines()[1:]
    rows = [lines[nr] for nr in task.open_test().ids]
    answers = asked_of(Path(job["out"]), [row.rpartition(",")[0] for row in rows])
    held = sum(row.rpartition(",")[2] in answer["set"] for row, answer in zip(rows, answers, strict=True))
    assert (held, len(rows)) == (coverage["covered"], coverage["samples"])
    assert sum(len(answer["set"]) for answer in answers) / len(rows) == pytest.approx(coverage["mean_size"])
    assert all(answer["set"][0] == answer["prediction"] for answer in answers)


@pytest.mark.slow
def test_without_the_key_nothing_is_said_of_sets(job):
    result = export_run({**job, "formats": ["torch_export"]})
    assert "conformal" not in result
    assert "coverage" not in result["test"]
    assert "conformal" not in read_json(Path(job["out"]) / "inference.json")
    assert "set" not in asked_of(Path(job["out"]), ["3,red"])[0]


@pytest.mark.slow
def test_the_test_split_takes_no_part_in_the_calibration(job):
    sealed = export_run({**with_doubt(job), "test": None})
    assert "coverage" not in sealed["test"]
    assert sealed["conformal"] == export_run(with_doubt(job))["conformal"]


def test_a_rehearsal_tells_of_too_few_validation_samples(job):
    again = {**job, "checkpoint": None, "formats": ["safetensors"]}
    assert rehearse({**again, "config": with_doubt(job)["config"]})["fault"] is None
    fault = rehearse({**again, "config": with_doubt(job, coverage=0.95)["config"]})["fault"]
    assert fault == {
        "what": "a coverage of 0.95 needs at least 19 validation samples, found 16",
        "where": "conformal.coverage",
        "mend": "raise split.validation, or ask for less coverage",
    }
