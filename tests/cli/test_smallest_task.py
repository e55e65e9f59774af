"""The smallest task of the guide, taken from its page word for word."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mltrainer.configs import yaml
from mltrainer.configs.loading import validate
from mltrainer.configs.project import ProjectConfig

GUIDE = (Path(__file__).parents[2] / "docs/TASKS.md").read_text("utf-8")


def block(language: str) -> str:
    """Return the page's first block of a language."""
    return str(re.findall(rf"```{language}\n(.*?)```", GUIDE, flags=re.DOTALL)[0])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as a reader of the guide would type it."""
    (tmp_path / "my_project").mkdir()
    (tmp_path / "my_project/tasks.py").write_text(block("python"))
    (tmp_path / "mltrainer.yaml").write_text(block("yaml"))
    return tmp_path


def test_the_class_is_under_thirty_lines():
    _, _, body = block("python").partition("class ")
    assert len([line for line in body.splitlines() if line.strip()]) < 30


def test_the_project_file_is_valid():
    assert validate(ProjectConfig, yaml.parse(block("yaml"), "mltrainer.yaml")).task.use == "my_project.tasks:TwoMoons"


@pytest.mark.slow
@pytest.mark.long
def test_the_task_trains_to_its_criterion(project):
    command = [sys.executable, "-m", "mltrainer", "run", "--until", "baseline", "--project", str(project)]
    trained = subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, "NO_COLOR": "1"})
    assert trained.returncode == 0, trained.stderr
    record = json.loads((project / "phases/02_baseline/record.json").read_text())
    assert record["evidence"]["run"]["metrics"]["accuracy"] >= 0.95
