"""What commands print of plain values: every number where it belongs, nothing left out without a word."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.cli import gates
from mltrainer.cli.gates import artifact_rows
from mltrainer.cli.runs import _verdict
from mltrainer.runs.reproduce import Reproduced
from mltrainer.workspace import Project, sha256_bytes

ANOTHER_LOSS = {"step": 7, "what": "loss", "tensor": None, "expected": "3f800000", "found": "3f800001"}
REPRODUCTION: dict[str, Any] = {
    "run": "0123456789ab",
    "identical": False,
    "grade": "numerically equal",
    "reachable": "bitwise",
    "steps_compared": 20,
    "after_step": 0,
    "first_divergence": ANOTHER_LOSS,
    "loss_difference": 2e-7,
    "metric_difference": 0.0,
    "differences": [{"kind": "environment", "what": "numpy", "expected": "2.4.6", "found": "2.5.0"}],
    "cause": None,
    "error": None,
}


def test_a_reproduction_tells_which_bits_were_recorded_and_which_came_out():
    lines = _verdict(Reproduced.model_validate(REPRODUCTION), 1e-6).splitlines()
    assert lines[0] == "run 0123456789ab is numerically equal"
    assert "losses differ by at most 2.00e-07 of their size, the metric by 0; numerically equal means at most 1e-06" in lines[1]
    assert lines[3] == "  first different step: 7 (loss): expected 3f800000 (1), found 3f800001 (1.00000012)"
    assert lines[4] == "  environment differs: numpy: 2.4.6 -> 2.5.0"


@pytest.mark.parametrize(
    ("reasons", "shown"),
    [((), ""), (("a is missing",), "a is missing"), (("a", "b", "c"), "a (+2 more: mltrainer gate check -v)")],
)
def test_of_several_reasons_the_first_is_shown_and_the_others_are_counted(reasons, shown):
    assert gates._first(reasons) == shown


def test_a_hidden_file_is_no_artifact(tmp_path):
    folder = Project(tmp_path).phase_dir("baseline")
    for name in ("report.md", ".DS_Store", "sub/.hidden/a.md", "sub/b.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    found = {row["path"]: row["sha256"] for row in artifact_rows(Project(tmp_path), "baseline")}
    expected = {"phases/02_baseline/report.md": "report.md", "phases/02_baseline/sub/b.md": "sub/b.md"}
    assert found == {path: sha256_bytes(text.encode()) for path, text in expected.items()}
