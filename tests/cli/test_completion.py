"""What a shell completes after a tab: commands, phases, runs, config keys, items of gates, pages of the handbook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from mltrainer.cli import completion
from mltrainer.cli.app import cli, command
from mltrainer.configs import yaml
from mltrainer.configs.project import TrainingConfig
from mltrainer.workspace import PHASES, Project, write_atomic, write_json
from tests.projects import PROJECT, write_rings

RUN = "0123456789ab"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The rings, with one run."""
    project = write_rings(tmp_path)
    write_json(project.runs_dir / RUN / "job.json", {"run": RUN, "phase": "baseline"})
    return project


def context(project: Project, **given: Any) -> typer.Context:
    found = typer.Context(command("status"))
    found.params = {"folder": project.root, **given}
    return found


def completed(folder: Path, *words: str, shell: str = "bash") -> list[str]:
    """Return what a shell is told after these words, of which the last is not yet complete."""
    line = {"COMP_WORDS": " ".join(("mltrainer", *words)), "COMP_CWORD": str(len(words))}
    environment = {**os.environ, **line, "_MLTRAINER_COMPLETE": f"complete_{shell}"}
    done = subprocess.run([sys.executable, "-m", "mltrainer"], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.slow
def test_the_shell_is_told_commands_and_options():
    told = completed(Path(), "run")
    assert told == ["run", "runs"]
    assert completed(Path(), "status", "--js") == ["--json"]


def test_commands_are_completed_without_importing_any(monkeypatch):
    monkeypatch.setattr("mltrainer.cli.app.command", lambda name: pytest.fail(f"{name} was imported"))
    told = [item.value for item in cli.shell_complete(typer.Context(cli), "")]
    assert {"init", "run", "status", "guide"} <= set(told)


@pytest.mark.parametrize("line", ["phase run", "gate check", "gate waive", "run --until"])
def test_phases_are_completed(line):
    *names, last = line.split()
    node: Any = command(names[0] if names else last)
    node = node.commands[last] if hasattr(node, "commands") else node
    parameter = next(p for p in node.params if p.name in ("name", "phase", "until"))
    told = [item.value for item in parameter.shell_complete(typer.Context(node), "")]
    assert told == list(PHASES)


@pytest.mark.slow
def test_a_run_is_completed_by_its_phase_and_its_id(project):
    assert completion.runs(context(project), "") == [*PHASES[1:], RUN]
    assert completion.runs(context(project), "01") == [RUN]
    assert completed(project.root, "runs", "show", "01") == [RUN]


def test_a_key_of_the_config_is_completed_with_the_value_that_holds_now(project):
    assert completion.config_keys(context(project), "optimizer.l") == ["optimizer.lr=0.001"]
    told = completion.config_keys(context(project), "")
    assert {"epochs=20", "metric.name=accuracy", "seed=42"} <= set(told)
    planned = project.phase_dir("planning") / "training_config.yaml"
    planned.parent.mkdir(parents=True)
    planned.write_text("epochs: 7\nmodel: {hidden: [8, 9]}\n")
    assert completion.config_keys(context(project), "") == ["epochs=7", "model.hidden=[8,9]"]


@pytest.mark.slow
def test_a_file_that_cannot_be_read_offers_nothing_and_does_not_fail(project):
    project.file.write_text("a: [1\n")
    assert "epochs=20" in completion.config_keys(context(project), "")
    assert completed(project.root, "phase", "run", "planning", "--set", "epo") == ["epochs=20"]


def test_items_of_a_gate_and_pages_are_completed(project):
    assert completion.gate_items(context(project, phase="baseline"), "within") == ["within_time_budget"]
    assert completion.gate_items(context(project), "within") == []
    assert completion.pages("diagnostics/nan") == ["diagnostics/nan_loss"]


def test_components_that_can_be_taken_out_are_completed_before_the_keys(project):
    assert completion.swaps(context(project), "clip") == ["clip.norm=1.0"]  # nothing is planned yet
    planned = TrainingConfig.model_validate(PROJECT).model_dump()
    write_atomic(project.phase_dir("planning") / "training_config.yaml", yaml.dump(planned).encode())
    assert completion.swaps(context(project), "clip") == ["clip", "clip.norm=1.0", "clip.value=null", "clip.adaptive=null"]


def test_options_of_a_task_of_ones_own_are_completed_as_what_can_be_swapped(project):
    own = {**PROJECT, "task": {"use": "my_task:Rings", "options": {"width": 8}}, "model": None, "data": None}
    planned = TrainingConfig.model_validate(own).model_dump()
    write_atomic(project.phase_dir("planning") / "training_config.yaml", yaml.dump(planned).encode())
    assert "task.options.width" in completion.swaps(context(project), "task.options.")


def test_outside_a_project_nothing_is_offered(tmp_path):
    outside = context(Project(tmp_path))
    assert completion.runs(outside, "") == completion.config_keys(outside, "") == []


@pytest.mark.slow
def test_completing_imports_nothing_heavy(project):
    code = (
        "import sys, typer\n"
        "from mltrainer.cli import completion\n"
        "from mltrainer.cli.app import command\n"
        "ctx = typer.Context(command('runs'))\n"
        "ctx.params = {'phase': 'baseline'}\n"
        "completion.runs(ctx, ''), completion.config_keys(ctx, ''), completion.swaps(ctx, '')\n"
        "completion.gate_items(ctx, ''), completion.pages('')\n"
        "assert not {'torch', 'numpy', 'rich'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_script_for_a_shell_is_shown():
    environment = {**os.environ, "_MLTRAINER_COMPLETE": "source_bash"}
    done = subprocess.run([sys.executable, "-m", "mltrainer"], env=environment, capture_output=True, text=True)
    assert "complete_bash" in done.stdout
