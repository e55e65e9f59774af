"""Walking small projects to their ends: what stops a walk is told with a way on, and following it goes on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.projects import TASK, evidence_of, write_rings

pytestmark = pytest.mark.usefixtures("tools_here")
QUICK = {"task": {"use": "my_task:Rings", "options": {"n": 160}}, "acceptance": {"accuracy": ">= 0.75"}}
# A final training that loses what the baseline had.
WORSE = {
    "epochs": 1,
    "optimizer": {"name": "adamw", "lr": 1e-9},
    "early_stopping": None,
    "export": {"formats": ["safetensors"], "samples": 8, "tolerance": None},
}
CHANGES = ("epochs=12", "batch_size=8", "optimizer.lr=0.02", "early_stopping=null")


def quick(folder: Path, source: str = TASK, **changes: Any) -> Project:
    return write_rings(folder, source, **{**QUICK, **changes})


def plan(cli: Cli, project: Project) -> None:
    settings = (part for change in CHANGES for part in ("--set", change))
    cli("phase", "run", "planning", *settings, "--project", project.root, code=0)


def typed(text: str) -> list[str]:
    """Return the arguments of the command that a text advises next."""
    line = next(line for line in text.splitlines() if line.startswith("next: mltrainer "))
    return shlex.split(line.removeprefix("next: mltrainer ").partition("; or ")[0])


@pytest.mark.slow
def test_a_final_model_that_misses_on_validation_leaves_the_test_split_sealed_and_the_advice_mends_it(tmp_path, cli):
    project = quick(tmp_path)
    (tmp_path / "configs/production_template.yaml").write_text(yaml.safe_dump(WORSE))
    plan(cli, project)
    said = cli("run", "--project", tmp_path, code=4, out="acceptance_met fails")
    assert "the final training has epochs 12 -> 1, optimizer.lr 0.02 -> 1e-09" in said.err
    sealed = evidence_of(project, "finalization")["test"]
    assert (sealed["samples"], sealed["openings"]) == (0, [])
    assert "accuracy on validation is" in sealed["sealed"]
    assert "still sealed" in (project.phase_dir("finalization") / "final_report.md").read_text()
    advised = typed(cli("status", "--project", tmp_path).out)
    assert advised[:3] == ["phase", "run", "finalization"]
    done = cli(*advised, "--project", tmp_path, code=0)
    assert "the final training has" not in done.err
    opened = evidence_of(project, "finalization")
    assert [row["run"] for row in opened["test"]["openings"]] == [opened["run"]["id"]]
    assert opened["acceptance"][0]["split"] == "test"
    assert opened["acceptance"][0]["value"] == opened["test"]["metrics"]["accuracy"]
    assert opened["run"]["id"] == evidence_of(project, "baseline")["run"]["id"]


# Splits of its own, of which the test split has the labels the wrong way round.
TURNED = (
    TASK.replace("def __init__(self, n):", "def __init__(self, n, seed):")
    .replace("default_rng(7)", "default_rng(seed)")
    .replace(
        "    def samples(self):\n        return Noisy(self.n)\n",
        "    def dataset(self, split):\n"
        "        found = Noisy(self.n if split == 'train' else self.n // 4, len(split))\n"
        "        found.y = 1 - found.y if split == 'test' else found.y\n"
        "        return found\n",
    )
)


@pytest.mark.slow
def test_after_a_miss_on_the_test_split_a_person_decides_and_nothing_is_searched(tmp_path, cli):
    project = quick(tmp_path, TURNED)
    plan(cli, project)
    said = cli("run", "--project", tmp_path, code=4)
    final = evidence_of(project, "finalization")
    assert final["run"]["metrics"]["accuracy"] >= 0.75 > final["test"]["metrics"]["accuracy"]
    assert "acceptance_met fails" in said.out
    assert "❌" in (project.phase_dir("finalization") / "final_report.md").read_text()
    cli("run", "--project", tmp_path, code=4, out="bring new data for a test split")
    assert not (project.state_dir / "studies").exists()
    assert evidence_of(project, "finalization")["test"]["openings"] == final["test"]["openings"]
    cli("gate", "waive", "finalization", "acceptance_met", "--reason", "The labels are known.", "--project", tmp_path, code=0)
    cli("gate", "check", "--project", tmp_path, code=0)


@pytest.mark.slow
def test_without_a_criterion_run_asks_in_place_of_searching(tmp_path, cli):
    project = quick(tmp_path, acceptance={})
    plan(cli, project)
    said = cli("run", "--project", tmp_path, code=4, out="stopped, because a person must decide")
    assert 'acceptance: {accuracy: ">= ..."}' in said.out
    assert "mltrainer phase run optimization" in said.out
    assert not (project.state_dir / "studies").exists()
    values = yaml.safe_load(project.file.read_text())
    project.file.write_text(yaml.safe_dump({**values, "acceptance": {"accuracy": ">= 0.1"}}))
    said = cli("run", "--project", tmp_path, code=0)


NAN = TASK.replace(
    "        return nn.functional.cross_entropy(outputs, targets)", "        return (outputs * 1e30).pow(9).mean()"
)


@pytest.mark.slow
def test_a_baseline_that_is_not_finite_leads_back_to_planning_with_page_and_change(tmp_path, cli):
    project = quick(tmp_path, NAN, acceptance={})
    cli("phase", "run", "planning", "--set", "epochs=1", "--project", tmp_path, code=0)
    cli("run", "--project", tmp_path, code=4)
    assert "mltrainer guide diagnostics/nan_loss" in str(cli("gate", "check", "baseline", "--json", "--project", tmp_path).json)
    advised = typed(cli("status", "--project", tmp_path).out)
    assert advised[:4] == ["phase", "run", "planning", "--set"]
    assert advised[4].startswith("optimizer.lr=")
    report = (project.phase_dir("baseline") / "baseline_results.md").read_text()
    assert "nan_loss" in report
    assert "A tenth of the learning rate" in report
    cli("run", "--project", tmp_path, code=4, out="stopped, because a person must decide")


@pytest.mark.slow
def test_a_line_that_divides_zero_by_zero_is_to_be_fixed_before_the_config(tmp_path, cli):
    line = "return (0 * outputs).mean() / (0 * outputs).mean()"
    source = TASK.replace("return nn.functional.cross_entropy(outputs, targets)", line)
    quick(tmp_path, source, acceptance={})
    cli("phase", "run", "planning", "--set", "epochs=1", "--project", tmp_path, code=0)
    cli("run", "--project", tmp_path, code=4)
    number = next(nr for nr, text in enumerate(source.splitlines(), 1) if line in text)
    hint = rf"fix \S+\.py:{number}, where div gave nan of finite numbers, then mltrainer run"
    assert re.search(
        rf"next: {hint}; or mltrainer phase run planning --set optimizer\.lr=", cli("status", "--project", tmp_path).out
    )
    assert re.search(rf"  {hint}\n  A tenth of the learning rate", cli("diagnose", "baseline", "--project", tmp_path).out)
