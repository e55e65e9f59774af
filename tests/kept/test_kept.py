"""Projects that a release finished keep their verdicts: unpacked as from a clone, and judged by the records that they have."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.gates.gate import check_gates
from mltrainer.workspace import Project, pretty_json, seal
from tests.conftest import Cli
from tests.kept.__main__ import PROJECTS

HERE = Path(__file__).parent
KEPT = sorted(path.relative_to(HERE).as_posix().removesuffix(".tar.gz") for path in HERE.glob("*/*.tar.gz"))
FINAL = "phases/05_finalization"
SAID = ("name", "holds", "stale", "items")  # the notes say what is here, and depend on the machine


@pytest.fixture
def unpacked(tmp_path: Path) -> Callable[[str], Project]:
    def unpack(name: str) -> Project:
        with tarfile.open(HERE / f"{name}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        return Project(tmp_path)

    return unpack


def test_each_kind_of_project_is_kept() -> None:
    assert {name.partition("/")[2] for name in KEPT} == set(PROJECTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
def test_a_finished_project_keeps_its_verdicts(name: str, unpacked: Callable[[str], Project], cli: Cli) -> None:
    project, expected = unpacked(name), json.loads((HERE / f"{name}.json").read_bytes())
    assert not project.state_dir.exists()
    said = cli("gate", "check", "--json", "--project", project.root)
    assert said.code == 0, said.out
    for found, before in zip(said.json["phases"], expected["phases"], strict=True):
        assert {key: found[key] for key in SAID} == {key: before[key] for key in SAID}


def test_one_gate_that_does_not_hold_is_enough(unpacked: Callable[[str], Project], cli: Cli) -> None:
    project = unpacked("0.9/digits")
    (project.phase_dir("baseline") / "baseline_results.md").write_text("", "utf-8")
    said = cli("gate", "check", "--json", "--project", project.root)
    assert (said.code, said.json["holds"]) == (4, False)
    assert [phase["holds"] for phase in said.json["phases"]][:2] == [True, False]


def _weaker(record: dict[str, Any]) -> None:
    item = next(item for item in record["policy"]["items"] if item["id"] == "exports_agree")
    item["settings"]["tolerance"] = 1.0


def _of_another_page(record: dict[str, Any]) -> None:
    record["handbook"][f"{FINAL}/workflow.md"] = "0" * 64


def _of_another_version(record: dict[str, Any]) -> None:
    record["mltrainer"] = "0.0.9"


def _of_no_page(record: dict[str, Any]) -> None:
    record["handbook"] = {}


@pytest.mark.slow
@pytest.mark.parametrize("change", [_weaker, _of_another_page, _of_another_version, _of_no_page])
def test_a_record_of_another_policy_is_stale(change: Callable[[dict[str, Any]], None], unpacked: Any) -> None:
    project = unpacked("0.9/digits")
    assert not _final_reasons(project)
    path = project.root / FINAL / "record.json"
    record = json.loads(path.read_bytes())
    change(record)
    path.write_bytes(pretty_json(seal(record)))
    assert "mltrainer phase run finalization" in _final_reasons(project)


def test_a_page_of_the_projects_own_takes_the_place_of_the_shipped_one(unpacked: Any) -> None:
    project = unpacked("0.9/digits")
    page = project.root / FINAL / "workflow.md"
    page.write_text((handbook.shipped_folder() / FINAL / "workflow.md").read_text().replace("1.0e-4", "1.0e-5"))
    assert f"{FINAL}/workflow.md changed what it declares" in _final_reasons(project)


def _final_reasons(project: Project) -> str:
    return "\n".join(check_gates(project)[-1].stale)
