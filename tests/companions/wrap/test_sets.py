"""Sets of two and three names, gone through in several ways: under the hash seeds that are taken their order differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mltrainer.reproducibility.hash_seeds import hash_seeds
from mltrainer.reproducibility.short_strings import named
from tests.benchmarks.wrap.sets import CLEAN, FAULTY, GIVEN, rows, source


def outcomes(folder: Path, text: str) -> set[str]:
    """Return what a program makes of its names under each hash seed that is taken for it."""
    program = folder / "train.py"
    program.write_text(text + "print(out)\n")
    found = set()
    for seed in hash_seeds(named([program], [folder / "rows.csv"])).seeds:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-S", program], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("names", GIVEN, ids=" ".join)
@pytest.mark.parametrize("from_data", [False, True], ids=["in the program", "in its data"])
def test_every_way_through_a_set_shows_under_the_seeds_and_look_alikes_do_not(tmp_path, names, from_data):
    (tmp_path / "rows.csv").write_text(rows(names))
    found = {way: len(outcomes(tmp_path, source(names, way, from_data=from_data))) > 1 for way in (*FAULTY, *CLEAN)}
    assert found == {way: way in FAULTY for way in found}
