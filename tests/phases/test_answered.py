"""What a person answered before planning, and what the test split lacks, from planning to the final report and the model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.configs import yaml
from mltrainer.workspace import Project, read_json
from tests.conftest import commit
from tests.projects import write_light_template

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("tools_here")]
SMELLED, COLD = "it is smelled before anyone eats", "it is that cold there"
PROJECT: dict[str, Any] = {
    "name": "fungi",
    "seed": 1,
    "task": {"kind": "tabular_multitask"},
    "data": {"source": "train.csv", "test": "test.csv", "targets": ["kind", "degrees"]},
    "split": {"validation": 0.25},
    "model": {"name": "mlp", "hidden": [16]},
    "metric": {"name": "accuracy_kind", "mode": "max"},
    "acceptance": {"accuracy_kind": ">= 0.9"},
    "budget": {"minutes": 5},
}


def write(path: Path, seed: int, kinds: int) -> None:
    """Write rows whose smell gives their kind, with -200 in a sixth of the degrees."""
    draw = np.random.default_rng(seed)
    smell, cap = draw.integers(0, kinds, 240), draw.normal(size=240).round(3)
    degrees = np.where(draw.random(240) < 1 / 6, -200, (12 + 3 * cap + draw.normal(size=240)).round(2))
    rows = [f"{'anm'[s]},{c},{('edible', 'poisonous', 'bitter')[s]},{d:g}" for s, c, d in zip(smell, cap, degrees, strict=True)]
    path.write_text("\n".join(["smell,cap,kind,degrees", *rows]) + "\n")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write(tmp_path / "train.csv", 0, 3)
    write(tmp_path / "test.csv", 1, 2)
    (tmp_path / "mltrainer.yaml").write_text(yaml.dump(PROJECT))
    write_light_template(tmp_path)
    return Project(tmp_path)


def test_answers_and_lacking_classes_stand_in_final_report_and_card(project, cli):
    stopped = cli("run", "--project", project.root, code=4, out="'smell' gives the target")
    assert "in the target, -200 is in" in stopped.out

    answers = {"leak_accepted": {"smell": SMELLED}, "sentinel_accepted": {"degrees": COLD}}
    project.file.write_text(yaml.dump({**PROJECT, "data": {**PROJECT["data"], **answers}}))
    commit(project.root, new=True)
    cli("phase", "run", "planning", "--project", project.root, "--set", "epochs=30", "--set", "batch_size=16", code=0)
    cli("run", "--project", project.root, code=0)

    final = project.phase_dir("finalization")
    assert read_json(final / "record.json")["evidence"]["lacking"]["test"] == ["bitter of kind"]
    for page in (final / "final_report.md", final / "final_model/README.md"):
        told = page.read_text("utf-8")
        smelled, cold = [line for line in told.splitlines() if line.startswith("- Planning's finding, ") and "accepted: " in line]
        assert "'smell' gives the target" in smelled
        assert smelled.endswith(f"because: {SMELLED}")
        assert cold.endswith(f"because: {COLD}")
        assert "**No test sample is of `bitter of kind`**" in told
