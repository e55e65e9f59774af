"""A project that forgets rows: it goes on from a checkpoint before them, its old model is marked, and all that check agree."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import load_training
from mltrainer.runs.find import find_run
from mltrainer.tasks.opening import open_task
from mltrainer.trainers.native.data.addresses import plan_for
from mltrainer.workspace import SUPERSEDED_FILE, Project
from tests.conftest import shared, succeed
from tests.projects import evidence_of, write_rings

pytestmark = pytest.mark.slow
TASK = '''
import torch
from torch import nn
import mltrainer


class Rings(mltrainer.Task):
    """A table of one's own, whose numbers are taken as they are."""

    targets = "classes"

    def samples(self):
        x = torch.randn(300, 4, generator=torch.Generator().manual_seed(3))
        return x, (x[:, 0] + x[:, 1] > 0).long()

    def model(self):
        return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
'''
SETS = (
    "--set",
    "optimizer.lr=0.01",
    "--set",
    "batch_size=16",
    "--set",
    "checkpoint.segments=40",
)  # a checkpoint every 7 steps of the 14 of an epoch


def _finish(folder: Path) -> None:
    project = write_rings(folder, TASK, task={"use": "my_task:Rings"})
    succeed("phase", "run", "planning", *SETS, "--project", project.root)
    succeed("run", "--project", project.root)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared(tmp_path_factory, "forgets", _finish)


@pytest.fixture
def rings(finished: Path, tmp_path: Path, tools_here: None) -> Project:
    return Project(Path(shutil.copytree(finished, tmp_path / "rings")))


def later_rows(project: Project) -> list[int]:
    """Return training samples that were seen after the eighth step, and that no evaluation measures."""
    path = project.phase_dir("planning") / "training_config.yaml"
    config = load_training(path, path.name)
    opened = open_task(config, project.root)
    train = opened.split("train")
    order = train.ids[train.order(config.seed, 0)[:]].tolist()
    measured = {*train.ids[train.spread(len(opened.split("validation")))].tolist()}
    assert plan_for(config, train).steps_per_epoch == 14
    return [row for row in order[8 * 16 :] if row not in measured]


def test_it_goes_on_before_the_rows_and_everything_that_checks_agrees(rings, cli):
    old = find_run(rings, "baseline")
    rows = random.Random(1).sample(later_rows(rings), 3)
    (rings.root / "rows.txt").write_text("".join(f"{row}\n" for row in rows))
    said = cli("forget", "--rows", rings.root / "rows.txt", "--project", rings.root, "--json")
    answer = json.loads(said.out)
    baseline = answer["runs"][0]
    assert (answer["forgotten"], baseline["phase"], baseline["begun_by"]) == (3, "baseline", old)
    assert baseline["steps_kept"] == 7 < baseline["steps"]
    assert baseline["seconds_kept"] > 0
    assert f"forget: {answer['file']}" in rings.file.read_text()
    assert (rings.root / answer["file"]).read_text().split() == [str(row) for row in sorted(rows)]
    run = evidence_of(rings, "baseline")["run"]
    assert run["interruptions"] == [{"step": baseline["steps_kept"], "cause": f"begun by run {old}", "run": old}]
    assert run["forgotten"] == 3
    cli("gate", "check", "baseline", "--project", rings.root, code=0)
    # From step 0 in a fresh process, and segment by segment from the checkpoints that the other run made.
    cli("reproduce", "baseline", "--project", rings.root, code=0)
    cli("reproduce", "baseline", "--segments", "100%", "--project", rings.root, code=0)
    told = cli("runs", "show", "baseline", "--project", rings.root, code=0).out
    assert f"step {baseline['steps_kept']}: begun by run {old}" in told


def test_the_old_model_is_marked_until_another_one_is_delivered(rings, cli):
    model = rings.phase_dir("finalization") / "final_model"
    card = (model / "README.md").read_text()
    (rings.root / "rows.txt").write_text(f"{later_rows(rings)[0]}\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mltrainer.phases.training.train", _stops)
        patched.setattr("mltrainer.phases.baseline.train", _stops)
        cli("forget", "--rows", rings.root / "rows.txt", "--project", rings.root, code=130)
    assert (model / SUPERSEDED_FILE).is_file()
    marked = (model / "README.md").read_text()
    assert "**Superseded**" in marked
    assert marked.startswith("---\n") is card.startswith("---\n")
    said = cli("gate", "check", "--project", rings.root, code=4)
    assert "final_model: superseded, because it was trained on rows that were forgotten since" in said.out
    said = cli("forget", "--rows", rings.root / "rows.txt", "--project", rings.root)
    assert not (model / SUPERSEDED_FILE).exists()
    assert "**Superseded**" not in (model / "README.md").read_text()
    # Typed again, it changes nothing: this model never saw the row.
    cli("forget", "--rows", rings.root / "rows.txt", "--project", rings.root, code=4)
    assert not (model / SUPERSEDED_FILE).exists()
    # A second look at the test rows is a person's decision, here as everywhere.
    assert (said.code, "test_opened_once fails" in said.out) == (4, True)
    assert "7 of " in said.out


def test_the_old_model_is_marked_where_the_plan_without_the_rows_does_not_hold(rings, cli):
    path = rings.phase_dir("planning") / "training_config.yaml"
    train = open_task(load_training(path, path.name), rings.root).split("train")
    gone = train.ids[train.tensors[1].numpy() == 1].tolist()
    (rings.root / "rows.txt").write_text("".join(f"{row}\n" for row in gone))
    said = cli("forget", "--rows", rings.root / "rows.txt", "--project", rings.root, code=4)
    assert "the targets of all" in said.out
    assert (rings.phase_dir("finalization") / "final_model" / SUPERSEDED_FILE).is_file()


def _stops(*_arguments: Any, **_names: Any) -> Any:
    from mltrainer.errors import StoppedError

    raise StoppedError("interrupted", exit_code=130, hint="type the same command again")


@pytest.mark.parametrize(
    ("text", "why"),
    [("99999\n", "no sample has the number 99999"), ("x\n", "rows.txt:1: expected one number"), ("", "found none")],
)
def test_what_is_no_training_sample_leaves_the_project_as_it_was(rings, cli, text, why):
    before = rings.file.read_bytes()
    (rings.root / "rows.txt").write_text(text)
    cli("forget", "--rows", rings.root / "rows.txt", "--project", rings.root, code=1, err=why)
    assert rings.file.read_bytes() == before
    assert not [*(rings.root / "forgotten").glob("*")]
    cli("gate", "check", "--project", rings.root, code=0)
