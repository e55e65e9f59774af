"""Cross-validation: each fold's run is evidence, and their mean is what the phases go by."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mltrainer.gates.statistics import over_folds
from mltrainer.records.baseline import FoldRow
from mltrainer.workspace import Project, pretty_json, read_json, seal
from tests.conftest import commit, shared, succeed
from tests.projects import evidence_of, write_light_template


def _fold(folder: Path) -> None:
    succeed("init", folder, "--example", "digits")
    write_light_template(folder)
    commit(folder)
    changes = ("epochs=12", "early_stopping=null", "split.folds=3", "model={name: mlp, hidden: [16]}")
    succeed("phase", "run", "planning", "--project", folder, *(part for change in changes for part in ("--set", change)))
    succeed("run", "--until", "diagnostics", "--project", folder)


@pytest.fixture(scope="session")
def folded_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "folded", _fold)


@pytest.fixture
def folded(folded_once: Path, tmp_path: Path) -> Project:
    shutil.copytree(folded_once, tmp_path / "folded", symlinks=True)
    return Project(tmp_path / "folded")


@pytest.mark.slow
def test_the_mean_over_the_folds_is_what_the_phases_go_by(folded_once):
    project = Project(folded_once)
    evidence = {phase: evidence_of(project, phase) for phase in ("planning", "baseline", "diagnostics")}
    found = evidence["baseline"]["folds"]
    results = [read_json(project.runs_dir / row["run"] / "result.json") for row in found["rows"]]
    values = [result["metrics"]["accuracy"] for result in results]
    assert [row["fold"] for row in found["rows"]] == [0, 1, 2]
    assert len(set(values)) > 1
    assert found["metrics"]["accuracy"] == pytest.approx(sum(values) / 3)
    assert {result["data_sha256"] for result in results} == {evidence["planning"]["data"]["sha256"]}
    assert len({json.dumps(result["measured_samples"]) for result in results}) <= 2
    assert evidence["diagnostics"]["metrics"] == found["metrics"]
    assert evidence["baseline"]["acceptance"][0]["value"] == found["metrics"]["accuracy"]
    assert evidence["baseline"]["acceptance"][0]["split"] == "validation, mean of 3 folds"
    report = (project.phase_dir("baseline") / "baseline_results.md").read_text()
    assert "### Over 3 folds" in report
    assert "**mean**" in report


def test_a_fold_that_is_told_otherwise_than_it_was_is_caught(folded, cli):
    path = folded.phase_dir("baseline") / "record.json"
    honest = path.read_bytes()

    def said_of(change: str) -> str:
        record = json.loads(honest)
        folds = record["evidence"]["folds"]
        if change == "value":
            folds["rows"][1]["metrics"]["accuracy"] = 1.0
            folds["metrics"], folds["spread"] = over_folds([FoldRow(**row) for row in folds["rows"]])
        elif change == "mean":
            folds["metrics"]["accuracy"] = 1.0
        elif change == "unfinished":
            folds["rows"][2]["state"] = "failed"
        elif change == "slow":
            folds["rows"][2]["wall_s"] = 60.0 * 1000
        elif change == "twice":
            folds["rows"][2] = folds["rows"][1]
            folds["metrics"], folds["spread"] = over_folds([FoldRow(**row) for row in folds["rows"]])
        else:
            record["inputs"] = [row for row in record["inputs"] if folds["rows"][1]["run"] not in row["path"]]
        path.write_bytes(pretty_json(seal(record)))
        said = cli("gate", "check", "baseline", "--project", folded.root)
        assert said.code in (2, 4)
        return said.out

    assert "differ on fold 1" in said_of("value")
    assert "has a mean over the folds that does not follow from them" in said_of("mean")
    assert "training_finished" in said_of("unfinished") or "fold 2" in said_of("unfinished")
    assert "within_time_budget" in said_of("slow")
    assert "finished" in said_of("twice")
    assert "is not bound to the result of fold 1" in said_of("unbound")


def test_an_interrupted_cross_validation_trains_no_fold_twice(folded, cli):
    rows = evidence_of(folded, "baseline")["folds"]["rows"]
    shutil.rmtree(folded.runs_dir / rows[2]["run"])
    said = cli("phase", "run", "baseline", "--project", folded.root, code=0)
    assert said.err.count("not trained again") + said.out.count("not trained again") == 2
    assert evidence_of(folded, "baseline")["folds"]["rows"][2]["run"] == rows[2]["run"]


@pytest.mark.slow
def test_folds_of_a_task_that_splits_its_samples_itself_are_refused(tmp_path, cli):
    succeed("init", tmp_path / "u", "--example", "digits")
    folder = tmp_path / "u"
    (folder / "my_task.py").write_text(
        "import torch\nfrom mltrainer.tasks.task import Task\n\n\nclass Own(Task):\n"
        "    def dataset(self, split):\n        return torch.utils.data.TensorDataset(torch.zeros(8, 2), torch.zeros(8))\n"
        "    def model(self):\n        return torch.nn.Linear(2, 1)\n"
        "    def loss(self, model, batch):\n        return model(batch[0]).mean()\n"
    )
    (folder / "mltrainer.yaml").write_text(
        "name: u\ntask: {use: 'my_task:Own'}\nmetric: {name: loss, mode: min}\nsplit: {folds: 3}\n"
    )
    commit(folder)
    said = cli("phase", "run", "planning", "--project", folder, code=1)
    assert "dataset(self, split) says itself which samples validate" in said.err
    assert "split.folds" in said.err
