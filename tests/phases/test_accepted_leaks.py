"""A table that nature determines, of which the test split lacks a class: its answer and that class stand in every report."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.bench_traps import answer, mltrainer

pytestmark = [pytest.mark.usefixtures("tools_here"), pytest.mark.slow]
REASON = "it is smelled before anyone eats"
ROWS = 400


def write(path: Path) -> None:
    draw = np.random.default_rng(0)
    smell, cap = draw.integers(0, 5, ROWS), draw.normal(size=ROWS).round(3)
    kind = np.array(["edible", "edible", "edible", "poisonous", "rare"])[smell]
    part = np.array(["train", "train", "validation", "test"])[np.arange(ROWS) % 4]
    rows = [f"{'nflpa'[s]},{c},{p},{k}" for s, c, p, k in zip(smell, cap, part, kind, strict=True) if (p, k) != ("test", "rare")]
    path.write_text("\n".join(["smell,cap,part,kind", *rows]) + "\n")


def test_an_accepted_leak_and_a_class_that_the_test_split_lacks_stand_in_the_reports(tmp_path: Path) -> None:
    write(tmp_path / "fungi.csv")
    root = tmp_path / "p"
    assert mltrainer("init", root, "--data", tmp_path / "fungi.csv", "--target", "kind").returncode == 0
    answer(root, {"split": {"column": "part"}, "acceptance": {"accuracy": ">= 0.5"}})
    for path in (root / "configs").glob("*_template.yaml"):
        path.write_text(re.sub(r"(?m)^epochs: \d+", "epochs: 4", path.read_text("utf-8")), "utf-8")
    stopped = mltrainer("run", "--project", root)
    assert stopped.returncode != 0
    assert "'smell' gives the target" in stopped.stdout + stopped.stderr
    answer(root, {"data": {"leak_accepted": {"smell": REASON}}})
    done = mltrainer("run", "--project", root)
    assert done.returncode == 0, done.stdout + done.stderr
    reports = {
        path.parent.name: path.read_text("utf-8") for path in (root / "phases").glob("0*/*.md") if path.name != "README.md"
    }
    card = (root / "phases/05_finalization/final_model/README.md").read_text("utf-8")
    assert f"because: {REASON}" in reports["01_planning"]
    assert "accepted" in mltrainer("gate", "check", "--project", root).stdout
    for text in (reports["05_finalization"], card):
        assert f"Column `smell` was accepted as known before the target (`data.leak_accepted`): {REASON}" in text
        assert "**No test sample is of `rare`**" in text
