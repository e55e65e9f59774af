"""The example projects: their files are valid, and what their READMEs say to type works as it stands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mltrainer.configs.project import ProjectConfig
from mltrainer.configs.templates import ProductionTemplate
from mltrainer.gates.gate import check_gates
from mltrainer.workspace import Project

EXAMPLES = Path(__file__).parents[1] / "examples"
PAIRS = {"distillation": ("teacher", "student"), "lora": ("base", "adapted")}
PROJECTS = [f"{name}/{project}" for name, pair in PAIRS.items() for project in pair]

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are part of the checkout, not of the wheel")


@pytest.mark.parametrize("project", PROJECTS)
def test_an_examples_files_are_valid(project: str) -> None:
    folder = EXAMPLES / project
    assert ProjectConfig.model_validate(yaml.safe_load((folder / "mltrainer.yaml").read_text("utf-8"))).name == folder.name
    ProductionTemplate.model_validate(yaml.safe_load((folder / "configs/production_template.yaml").read_text("utf-8")))


def test_each_example_is_named_where_examples_are_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert all(f"({name}/README.md)" in listed for name in PAIRS)
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == set(PAIRS)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAIRS)
def test_what_an_example_says_to_type_works(tmp_path: Path, name: str) -> None:
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    lines = (EXAMPLES / name / "README.md").read_text("utf-8").splitlines()
    typed = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    who = {f"GIT_{role}_{what}": "a@b.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-e", "-c", typed], cwd=tmp_path / name, env={**os.environ, **who, "PATH": path}, check=True)
    for project in PAIRS[name]:
        assert all(gate.holds for gate in check_gates(Project(tmp_path / name / project)))
