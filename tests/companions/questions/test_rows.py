"""`mltrainer rows`: the samples of a step are found again, with where they come from and how the model does on each."""

from __future__ import annotations

import base64
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mltrainer.companions.questions.measurements.rows import png
from mltrainer.companions.questions.rows import FoundRows, chosen_of, facts, page
from mltrainer.configs.pages import ORCHESTRATOR
from mltrainer.configs.project import TrainingConfig
from mltrainer.project.front import Project as Front
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.records.job import TrainingJob
from mltrainer.reports.values import number
from mltrainer.runs.launcher import tools_of
from mltrainer.workspace import Project
from tests.conftest import Cli

RUN = "0123456789ab"
EVIL = "<script>alert(1)</script>"
TASK = '''
import torch
from torch import nn
import mltrainer


class Own(mltrainer.Task):
    """Squares of noise; the brighter half is a class of its own. One training sample holds NaN where that is asked for."""

    def __init__(self, gone=False):
        self.gone = gone

    def dataset(self, split):
        if split == "test":
            return None
        x = torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(len(split)))
        y = (x.mean((1, 2, 3)) > 0.5).long()
        if self.gone and split == "train":
            x[7, 0, 2, 3] = float("nan")
        return x, y

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
'''
TABLE: dict[str, Any] = {
    "task": {"kind": "tabular_classification"},
    "data": {"source": "flowers.csv", "target": "kind"},
    "split": {"validation": 0.25, "test": 0.0},
    "model": {"name": "mlp", "hidden": [8]},
}
QUANTITIES = """
import torch
from torch import nn
import mltrainer


class Quantities(mltrainer.Task):
    '''A sum of inputs; the target of one training sample is far off where that is asked for.'''

    def __init__(self, broken=None):
        self.broken = broken

    def dataset(self, split):
        x = torch.randn(800, 4, generator=torch.Generator().manual_seed(len(split)))
        y = x.sum(1, keepdim=True)
        if self.broken is not None and split == "train":
            y[self.broken] = 300.0
        return x, y

    def model(self):
        return nn.Linear(4, 1)

    def loss(self, outputs, targets):
        return nn.functional.mse_loss(outputs, targets)
"""
PICTURES: dict[str, Any] = {"task": {"kind": "image_classification"}, "data": {"source": "digits.npz"}}
OWN: dict[str, Any] = {"task": {"use": "own_task:Own"}}


@pytest.fixture
def project(tmp_path: Path, tools_here: None) -> Project:
    """A project with a table and a task of its own, in which nothing has run."""
    (tmp_path / "mltrainer.yaml").write_text("name: flowers\n")
    (tmp_path / "own_task.py").write_text(TASK)
    draw = np.random.default_rng(3)
    notes = [EVIL if n % 9 == 4 else "plain" for n in range(80)]
    lines = [f"{draw.normal():.3f},{draw.normal():.3f},{notes[n]},{'ab'[n % 2]}" for n in range(80)]
    (tmp_path / "flowers.csv").write_text("\n".join(["width,height,note,kind", *lines]) + "\n")
    return Project(tmp_path)


def train(project: Project, most: int | None = None, **values: Any) -> dict[str, Any]:
    """Train a run as a phase does, to its end or for so many steps, and return its result."""
    base = {"name": "flowers", "metric": {"name": "loss", "mode": "min"}, "epochs": 3, "batch_size": 8, "early_stopping": None}
    config = TrainingConfig.model_validate({**base, **values})
    folder = project.relative(project.runs_dir / RUN)
    job = {"schema": 1, "run": RUN, "phase": "baseline", "purpose": "train", "folder": folder, "threads": 1}
    job |= {"max_steps": most} if most else {}
    contract = dict.fromkeys(("config_sha256", "code_sha256", "environment_sha256"), "0")
    asked = TrainingJob.model_validate({**job, "config": config.model_dump(), "contract": contract})
    with tools_of(project, lambda _event: None) as tools:
        return tools.run(ORCHESTRATOR, asked)


def rows(cli: Cli, project: Project, *arguments: str) -> Any:
    said = cli("rows", RUN, *arguments, "--json", "--project", project.root, code=0)
    return said.json


@pytest.mark.slow
def test_the_samples_of_a_step_are_those_that_the_run_recorded(project, cli):
    train(project, **TABLE)
    found = rows(cli, project, "--step", "9")
    assert (found["as_recorded"], found["epoch"], found["checkpoint"], len(found["rows"])) == (True, 2, "step 8", 8)
    typed = FoundRows.model_validate(found)
    told = facts(typed)
    assert "No checkpoint of step 9 is kept: this one is 1 step earlier than that, and its answers differ." in told
    later = facts(typed.model_copy(update={"checkpoint": "step 5609"}))
    assert any("this one is 5,600 steps later than that" in line for line in later)
    assert not any("No checkpoint" in line for line in facts(typed.model_copy(update={"checkpoint": "step 9"})))
    losses = [row["loss"] for row in found["rows"]]
    assert losses == sorted(losses, reverse=True)
    assert sum(losses) / 8 == pytest.approx(found["recorded_loss"], abs=0.1)
    lines = (project.root / "flowers.csv").read_text().splitlines()
    for row in found["rows"]:
        file, line = row["place"].split(":")
        cells = lines[int(line) - 1].split(",")
        assert (file, float(row["cells"]["width"]), row["label"]) == ("flowers.csv", float(cells[0]), cells[3])


@pytest.mark.slow
def test_of_a_step_the_hardest_are_shown_where_so_many_are_asked_for(project, cli):
    train(project, **TABLE)
    whole, few = rows(cli, project, "--step", "9"), rows(cli, project, "--step", "9", "--most", "3")
    assert (few["rows"], few["total"], whole["total"]) == (whole["rows"][:3], 8, 8)
    said = cli("rows", RUN, "--step", "9", "--most", "3", "--project", project.root)
    assert "step 9 (epoch 2): the 3 hardest of its 8 samples." in said.out


@pytest.mark.slow
def test_every_sample_is_in_one_step_of_an_epoch_and_the_steps_are_named(project, cli):
    result = train(project, **TABLE)
    found = rows(cli, project, "--epoch", "2", "--most", "100")
    assert len({row["sample"] for row in found["rows"]}) == found["total"] == result["train_samples"]
    named = {int(row["reason"].removeprefix("step ")) for row in found["rows"]}
    assert named == set(range(9, 17))
    (step,) = {row["reason"] for row in found["rows"] if row["sample"] == rows(cli, project, "--step", "9")["rows"][0]["sample"]}
    assert step == "step 9"


@pytest.mark.slow
def test_a_step_that_was_planned_and_never_taken_is_told_so(project, cli):
    train(project, most=10, **TABLE)
    assert rows(cli, project, "--step", "20")["because"] == "the run ended after step 10: step 20 was planned and never taken"
    assert rows(cli, project, "--step", "10")["because"] is None


@pytest.mark.slow
def test_a_step_that_was_left_out_is_told_so(project, cli):
    often = {"action": "rollback", "window": 8, "factor": 0.1, "before": 1, "after": 0, "most": 1000}
    spike = train(project, **TABLE, spikes=often)["skipped"][0]
    found = rows(cli, project, "--step", str(spike["first"]))
    told = f"the run left step {spike['first']} out: the loss or the gradient norm of step {spike['step']} was a spike"
    assert (found["because"], found["as_recorded"], found["recorded_loss"], found["total"]) == (told, None, None, 8)
    assert rows(cli, project, "--step", "1")["as_recorded"] is True


@pytest.mark.slow
def test_samples_that_are_not_those_that_were_recorded_are_told(project, cli):
    train(project, **TABLE)
    job = project.runs_dir / RUN / "job.json"
    job.write_text(job.read_text().replace('"batch_size": 8', '"batch_size": 4'))
    assert "these are NOT those" in cli("rows", RUN, "--step", "9", "--project", project.root).out


@pytest.mark.slow
def test_what_there_is_not_is_told(project, cli):
    train(project, **TABLE)
    cases = [
        (["--step", "400"], "the step of the run's plan: expected a number from 1 to 24, found 400"),
        (["--step", "400"], "next: --step 24 is the last one"),
        (["--epoch", "9"], "the epoch of the run's plan: expected a number from 1 to 3, found 9"),
        (["--hardest", "--checkpoint", "3"], "no checkpoint '3' of the run; there are "),
        (["--finding", "nan_loss"], "nan_loss did not fire"),
        (["--finding", "nosuch"], "there is no diagnostic 'nosuch'"),
        (["--hardest", "--out", "page.txt"], "one that ends in .html or .md, found '.txt'\n  next: --out page.html"),
    ]
    for arguments, told in cases:
        cli("rows", RUN, *arguments, "--project", project.root, code=1, err=told)
    cli("rows", RUN, "--project", project.root, code=2, err="exactly one of --step, --epoch, --finding, --hardest and")


@pytest.mark.slow
def test_the_hardest_samples_are_of_training_and_validation(project, cli):
    train(project, **TABLE)
    found = rows(cli, project, "--hardest", "--most", "80")
    assert (found["total"], {row["split"] for row in found["rows"]}) == (80, {"train", "validation"})
    few = Front(project.root).rows(RUN, hardest=True, most=3)
    assert few["rows"] == found["rows"][:3]
    other = rows(cli, project, "--hardest", "--most", "80", "--checkpoint", "last")
    assert (other["checkpoint"], other["rows"] != found["rows"]) == ("step 24", True)


@pytest.mark.slow
def test_a_failed_run_shows_the_batch_and_the_samples_that_are_not_finite(project, cli):
    result = train(project, **{**OWN, "task": {**OWN["task"], "options": {"gone": True}}})
    batch = rows(cli, project, "--finding", "nan_loss")
    assert {row["sample"] for row in batch["rows"]} == set(result["nonfinite"]["samples"])
    assert (batch["rows"][0]["sample"], batch["rows"][0]["loss"], batch["checkpoint"]) == (7, "nan", "the untrained model")
    assert f"its samples: mltrainer rows {RUN} --finding nan_loss\n" in cli("diagnose", RUN, "--project", project.root).out
    alone = rows(cli, project, "--finding", "nonfinite_data")
    assert [(row["sample"], row["place"], row["reason"]) for row in alone["rows"]] == [
        (7, "sample 7 of dataset('train')", "part 0: 1 numbers are not finite, the first at [0, 2, 3]")
    ]


@pytest.mark.slow
def test_the_sample_that_made_a_spike_is_shown_with_its_loss_in_that_step(project, cli):
    (project.root / "quantities.py").write_text(QUANTITIES)
    asked: dict[str, Any] = {"epochs": 1, "batch_size": 32, "task": {"use": "quantities:Quantities"}}
    train(project, **asked)
    broken = rows(cli, project, "--step", "15")["rows"][7]["sample"]
    shutil.rmtree(project.runs_dir / RUN)
    result = train(project, **{**asked, "task": {**asked["task"], "options": {"broken": broken}}})
    assert [spike["step"] for spike in result["signals"]["spikes"]] == [15]
    found = rows(cli, project, "--finding", "loss_spike")
    first, *others = found["rows"]
    assert (first["sample"], len(found["rows"]), ["then" in row for row in others].count(True)) == (broken, 32, 4)
    assert first["then"] / 32 == pytest.approx(found["recorded_loss"], rel=0.01)
    assert f" Sample {broken} made " in found["because"]
    told = cli("rows", RUN, "--step", "15", "--project", project.root).out
    assert f"loss {number(first['then'])} in that step" in told
    assert "in that step" not in cli("rows", RUN, "--step", "14", "--project", project.root).out


def planted(project: Project, share: float) -> set[int]:
    """Write the digits with a share of wrong labels, and return the rows of those."""
    digits, draw = load_digits(), np.random.default_rng(0)
    wrong = draw.choice(len(digits.target), int(share * len(digits.target)), replace=False)
    labels = digits.target.copy()
    labels[wrong] = (labels[wrong] + draw.integers(1, 10, len(wrong))) % 10
    np.savez(project.root / "digits.npz", x=(digits.images / 16).astype(np.float32), y=labels)
    return set(wrong.tolist())


@pytest.mark.slow
def test_the_samples_whose_labels_were_planted_wrong_lead_the_list(project, cli):
    wrong = planted(project, 0.05)
    split, model = {"validation": 0.2, "test": 0.0}, {"name": "mlp", "hidden": [64]}
    train(project, **{**TABLE, **PICTURES, "split": split, "model": model, "epochs": 8, "batch_size": 32})
    found = rows(cli, project, "--mislabelled", "--most", str(len(wrong)))
    right = [row["sample"] in wrong for row in found["rows"]]
    assert {row["split"] for row in found["rows"]} == {"train", "validation"}
    assert all(right[: len(wrong) // 4])
    assert sum(right) / len(wrong) > 0.85
    digits = load_digits().target
    told = [row["reason"].endswith(f"rather {digits[row['sample']]}") for row in found["rows"] if row["sample"] in wrong]
    assert sum(told) / len(told) > 0.85
    assert "margin is the mean over training" in cli("rows", RUN, "--mislabelled", "--project", project.root).out


@pytest.mark.slow
def test_without_margins_only_validation_is_judged(project, cli):
    train(project, **TABLE, signals=False)
    found = rows(cli, project, "--mislabelled")
    assert {row["split"] for row in found["rows"]} <= {"validation"}
    assert "recorded no margins" in found["notes"][0]


@pytest.mark.slow
def test_a_page_shows_pictures(project, cli):
    train(project, **OWN)
    at = project.root / "pages"
    for name in ("own.html", "own.md"):
        said = cli("rows", RUN, "--hardest", "--most", "2", "--out", at / name, "--project", project.root)
        assert (said.code, f"page: {at / name}\n" in said.err) == (0, True)
    html, text = (at / "own.html").read_text(), (at / "own.md").read_text()
    assert html.count("data:image/png;base64,iVBOR") == text.count(".png)") == len(list((at / "own_pictures").iterdir())) == 2


@pytest.mark.slow
def test_what_a_cell_holds_does_not_act_in_a_page(project, cli):
    train(project, **TABLE)
    found = rows(cli, project, "--hardest", "--most", "80")
    assert EVIL in str(found)
    shown = page(FoundRows.model_validate(found))
    assert "<script" not in shown
    assert "default-src 'none'" in shown
    assert "http" not in shown.replace("http-equiv", "")


def test_noise_in_quantities_is_shown_by_the_losses_and_in_labels_by_the_other_classes():
    row = Diagnosis.model_construct(id="label_noise", evidence={"metric": "accuracy"})
    assert chosen_of(row) == "mislabelled"
    assert chosen_of(row.model_copy(update={"evidence": {"metric": "r2"}})) == "hardest"


def test_a_picture_is_a_png_with_the_pixels_that_were_given():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    data = png(pixels)
    begins = data.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompress(data[begins:-16]), dtype=np.uint8).reshape(2, 10)
    assert (lines[:, 1:].reshape(pixels.shape) == pixels).all()
    assert base64.b64encode(data).startswith(b"iVBORw0KGgo")
