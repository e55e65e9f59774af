"""A program of a user's own that takes what the front door gives holds under mypy's strict rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from pathlib import Path

import mltrainer
from mltrainer.errors import MltrainerError
from mltrainer.gates.gate import Gate
from mltrainer.records.baseline import Baseline


def main() -> None:
    project = mltrainer.Project(Path("digits"))
    gates = project.check()
    named: Gate = project.gates()["baseline"]
    failing: list[str] = [item.id for gate in gates for item in gate.failing if not named.holds]
    measured: Baseline = project.records()["baseline"].trusted.evidence
    run = project.load_run("baseline")
    accuracy: float = run.metrics["accuracy"]
    same: bool | None = project.compare("baseline", "finalization").same_bits
    columns = [str(name) for name in run.frame(steps=True).columns]
    predictions = project.predict([{"a": 1.0}]).predictions
    weights = [tensor.shape for tensor in project.load_model().state_dict().values()]
    print(failing, measured.run.id, accuracy, same, columns, predictions, weights, project.report("main").markdown)


try:
    main()
except MltrainerError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_program_that_uses_what_the_guide_names_is_strictly_typed(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "own.py").write_text(PROGRAM)
    here = Path(__file__).parents[2]
    rules = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--follow-imports=silent"]
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *rules, "--ignore-missing-imports", tmp_path / "own.py"],
        cwd=here,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout
