"""What surrounds a trained model, asked on the command line: a page with figures, and no trace in the project."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.projects import write_rings


@pytest.fixture
def trained(tmp_path: Path, cli: Cli, tools_here: None) -> Project:
    """A project with a baseline."""
    project = write_rings(tmp_path / "rings")
    for phase in ("planning", "baseline"):
        settings = ["--set", "epochs=2"] if phase == "planning" else []
        cli("phase", "run", phase, "--project", project.root, *settings, code=0)
    return project


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_a_landscape_has_the_checkpoint_in_its_middle_and_leaves_no_trace(digits, cli):
    options = ("baseline", "--points", "5", "--samples", "64", "--project", digits.root)
    found = cli("landscape", "--json", *options).json
    assert found["state"]["changed"] == []
    assert [len(row) for row in found["plane"]["losses"]] == [5] * 5
    assert found["plane"]["losses"][2][2] == found["line"]["train"][4]
    assert found["samples"]["train"] == 64
    assert found["sharpness"]["largest"] > 0
    page = (digits.root / found["page"]).read_text()
    for name in ("line.svg", "plane.svg"):
        assert f"({name})" in page
        ElementTree.fromstring((digits.state_dir / "landscape" / name).read_text())
    cli("landscape", *options, out="largest eigenvalue of the Hessian")
    kept = json.loads((digits.state_dir / "landscape/result.json").read_bytes())
    assert {**kept, "state": 0} == {**found, "state": 0}
    cli("gate", "check", "baseline", "--project", digits.root, code=0)


@pytest.mark.usefixtures("tools_here")
def test_what_cannot_be_surrounded_is_refused(digits, cli):
    cli("landscape", "--points", "6", "--project", digits.root, code=1, err="expected an odd number from 5 on, found 6")
    for file in digits.state_dir.glob("runs/*/checkpoints/*/state.safetensors"):
        file.write_bytes(file.read_bytes()[:-4] + b"xxxx")
    cli("landscape", "--project", digits.root, code=4, err="state.safetensors")


@pytest.mark.slow
def test_learning_curves_are_extrapolated_from_trainings_on_parts_and_leave_no_trace(trained, cli):
    found = cli("extrapolate", "--seeds", "2", "--json", "--project", trained.root).json
    assert found["state"]["changed"] == []
    rows = found["data"]["rows"]
    whole = rows[-1]["samples"]
    assert [row["samples"] for row in rows[::2]] == [round(part * whole) for part in (0.125, 0.25, 0.5, 1)]
    assert len({row["seed"] for row in rows}) == 2
    assert found["epochs"]["reason"].startswith("2 evaluations are too few for a curve")
    page = (trained.root / found["page"]).read_text()
    assert "## More data" in page
    assert not list((trained.state_dir / "extrapolate").glob("part-*"))
    own = next(row for row in rows if row["part"] == 1.0)  # of the config's own seed: all of the data is the run again
    history = json.loads(next(trained.state_dir.glob("runs/*/result.json")).read_bytes())["history"]
    assert own["validation"] in [row["validation"] for row in history]
    cli("extrapolate", "--seeds", "0", "--project", trained.root, out="No estimate")
