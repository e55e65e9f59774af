"""A table that nature determines: planning stops once, and goes on with the answer, which stands in its manifest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.bench_traps import answer, mltrainer

pytestmark = [pytest.mark.usefixtures("tools_here"), pytest.mark.slow]
REASON = "it is smelled before anyone eats"


def write(path: Path) -> None:
    draw = np.random.default_rng(0)
    smell, cap = draw.integers(0, 5, 400), draw.normal(size=400).round(3)
    rows = [f"{'nflpa'[s]},{c},{('edible', 'poisonous')[int(s > 2)]}" for s, c in zip(smell, cap, strict=True)]
    path.write_text("\n".join(["smell,cap,kind", *rows]) + "\n")


def test_planning_stops_at_a_leak_and_goes_on_once_it_is_answered(tmp_path: Path) -> None:
    write(tmp_path / "fungi.csv")
    root = tmp_path / "p"
    assert mltrainer("init", root, "--data", tmp_path / "fungi.csv", "--target", "kind").returncode == 0
    stopped = mltrainer("run", "--project", root)
    assert stopped.returncode != 0
    assert "'smell' gives the target" in stopped.stdout + stopped.stderr
    answer(root, {"data": {"leak_accepted": {"smell": REASON}}})
    mltrainer("phase", "run", "planning", "--project", root)
    manifest = (root / "phases/01_planning/reproducibility_manifest.md").read_text("utf-8")
    assert "| `data_valid` | ✅ pass |" in manifest
    assert f"because: {REASON}" in manifest
