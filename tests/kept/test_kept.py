"""Projects that a release finished keep their verdicts: unpacked as from a clone, and judged by the records that they have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.kept.__main__ import PROJECTS
from tests.projects import kept

HERE = Path(__file__).parent
KEPT = sorted(path.relative_to(HERE).as_posix().removesuffix(".tar.gz") for path in HERE.glob("*/*.tar.gz"))
FINAL = "phases/05_finalization"
SAID = ("name", "holds", "stale", "items")  # the notes say what is here, and depend on the machine


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[str], Project]:
    return lambda name: kept(name, tmp_path)


def test_each_kind_of_project_is_kept() -> None:
    assert {name.partition("/")[2] for name in KEPT} == set(PROJECTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_a_finished_project_keeps_its_verdicts(name: str, unpacked: Callable[[str], Project], cli: Cli) -> None:
    project, expected = unpacked(name), json.loads((HERE / f"{name}.json").read_bytes())
    assert not project.state_dir.exists()
    said = cli("gate", "check", "--json", "--project", project.root, code=0)
    for found, before in zip(said.json["phases"], expected["phases"], strict=True):
        assert {key: found[key] for key in SAID} == {key: before[key] for key in SAID}
