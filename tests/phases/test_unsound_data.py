"""Data that has an error stops planning before anything is trained, with the record, the report and the exit code of planning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mltrainer.gates.gate import check_gates
from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.projects import TASK, evidence_of, write_rings

pytestmark = pytest.mark.usefixtures("tools_here")


def leaking_table(folder: Path, cli: Cli, *more: str) -> Project:
    draw = np.random.default_rng(0)
    price = draw.normal(size=(200, 1)).round(4)
    np.savetxt(folder / "t.csv", np.c_[draw.normal(size=(200, 3)), price / 1.19, price], delimiter=",", header="a,b,c,net,price")
    cli("init", folder / "p", "--data", folder / "t.csv", "--target", "price", *more, code=0)
    return Project(folder / "p")


def own_task_of_one_class(folder: Path, cli: Cli) -> Project:
    return write_rings(folder, TASK.replace("int(self.y[i])", "0"))


def boosted_table(folder: Path, cli: Cli) -> Project:
    return leaking_table(folder, cli, "--model", "boosting")


WITH_AN_ERROR = {
    "a leak": (leaking_table, "'net' is the target under another scale"),
    "a leak in the table of a program": (boosted_table, "in table.yaml, under data, write `ignore: [net]`"),
    "one class": (own_task_of_one_class, "training samples are 0: a loss that uses them learns nothing"),
}


@pytest.fixture(params=WITH_AN_ERROR)
def planned(request: pytest.FixtureRequest, tmp_path: Path, cli: Cli) -> tuple[Project, str, Any]:
    make, what = WITH_AN_ERROR[request.param]
    project = make(tmp_path, cli)
    return project, what, cli("phase", "run", "planning", "--project", project.root)


def test_an_error_of_the_data_stops_planning_before_anything_is_trained(planned):
    project, what, said = planned
    folder = project.phase_dir("planning")
    evidence = json.loads((folder / "record.json").read_bytes())["evidence"]
    manifest = (folder / "reproducibility_manifest.md").read_text("utf-8")
    assert said.code == 4
    assert what in said.out
    assert "not measured, as planning stopped before: " in said.out
    assert "probe_identical, " in said.out.partition("stopped before: ")[2]
    assert [found["severity"] for found in evidence["data"]["findings"] if what in found["what"]] == ["error"]
    assert "Nothing was trained: the data has an error" in manifest
    assert "❌ **The gate does not hold**: `data_valid`. Not measured: " in manifest
    assert not {path.name for path in (project.state_dir / "probe").iterdir()} - {"first"}
    assert not list((project.state_dir / "probe").rglob("chain.txt"))
    assert (folder / "training_config.yaml").is_file()


def test_the_record_of_a_planning_that_stopped_at_its_data_is_judged_as_any_other(planned):
    project, what, _said = planned
    gate = check_gates(project)[0]
    assert gate.first_failing.id == "data_valid"
    assert what in gate.first_failing.mend
    assert not gate.stale
    (project.root / (row := next(row.path for row in gate.content.inputs if row.role in ("data", "code")))).write_text("x = 1\n")
    assert any(row in reason for reason in check_gates(project)[0].stale)


@pytest.mark.slow
def test_targets_that_are_all_the_same_are_nothing_to_a_loss_that_looks_at_none(tmp_path, cli):
    alike = TASK.replace("int(self.y[i])", "0")
    changes = ("nn.functional.cross_entropy(outputs, targets)", "(outputs - 1).square().mean()")
    project = write_rings(tmp_path, alike.replace(*changes))
    said = cli("phase", "run", "planning", "--project", project.root)
    assert "the targets of all" not in said.out
    evidence = evidence_of(project, "planning")
    assert [found["what"] for found in evidence["data"]["findings"] if "targets" in found["what"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"no picture", b"\x89PNG\r\n\x1a\n torn"])
def test_a_damaged_picture_is_named_by_its_path(tmp_path, cli, damage):
    for number in range(40):
        path = tmp_path / "pics" / ("cat", "dog")[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), number, dtype=np.uint8)).save(path)
    (tmp_path / "pics/dog/07.png").write_bytes(damage)
    cli("init", tmp_path / "p", "--data", tmp_path / "pics", code=0)
    said = cli("phase", "run", "planning", "--project", tmp_path / "p")
    assert (said.code, "BytesIO" in said.err) == (1, False)
    assert (
        "1 of 40 files are not readable as images: ../pics/dog/07.png: UnidentifiedImageError: cannot identify image file"
        in said.err
    )


def test_a_target_of_a_folder_of_pictures_is_refused(tmp_path, cli):
    (tmp_path / "pics/cat").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(tmp_path / "pics/cat/1.png")
    said = cli("init", tmp_path / "p", "--data", tmp_path / "pics", "--target", "kind")
    assert (
        "--target kind names the column to predict, and this is a folder of pictures, whose classes are its folders" in said.err
    )
    assert (said.code, (tmp_path / "p").exists()) == (1, False)
