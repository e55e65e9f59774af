"""`mltrainer run --dry-run`: which phases would run and why, where a walk would stop; and that it writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.workspace import PHASES
from tests.cli.conftest import contents


def whole(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


def test_before_the_first_phase_all_would_run_one_behind_the_other(begun, cli):
    before = whole(begun.root)
    found = cli("run", "--dry-run", "--json", "--project", begun.root, code=0).json
    assert set(found) == {"would_run", "stop", "next", "next_phase", "next_why"}
    assert [row["name"] for row in found["would_run"]] == list(PHASES)
    assert all(set(row) == {"name", "state", "why", "reasons"} for row in found["would_run"])
    assert found["would_run"][0]["why"] == "planning has not run yet"
    assert found["would_run"][1]["why"] == "if the gate of planning holds"
    assert (found["stop"], found["next"]) == (None, "mltrainer phase run planning")
    assert whole(begun.root) == before


def test_until_is_the_last_that_would_run(begun, cli):
    found = cli("run", "--dry-run", "--until", "baseline", "--json", "--project", begun.root, code=0).json
    assert [row["name"] for row in found["would_run"]] == ["planning", "baseline"]


@pytest.mark.parametrize(
    ("until", "stops"), [((), True), (("--until", "diagnostics"), False), (("--until", "optimization"), False)]
)
def test_without_a_criterion_it_would_stop_before_the_search_unless_that_is_asked_for(begun, cli, until, stops):
    text = begun.file.read_text()
    begun.file.write_text(text.replace("acceptance: {accuracy: '>= 0.95'}\n", ""))
    assert begun.file.read_text() != text
    found = cli("run", "--dry-run", "--json", *until, "--project", begun.root, code=0).json
    assert (found["stop"] is not None) == stops
    if stops:
        assert found["stop"]["phase"] == "optimization"
        assert [row["name"] for row in found["would_run"]] == ["planning", "baseline", "diagnostics"]


def test_a_project_file_that_is_not_valid_is_a_mistake(begun, cli):
    begun.file.write_text("name: digits\nnonsense: 1\n")
    cli("run", "--dry-run", "--project", begun.root, code=1, err="unknown key 'nonsense'")


@pytest.mark.slow
def test_of_a_finished_project_what_changed_is_said_and_nothing_is_written(digits, cli):
    cli("run", "--dry-run", "--project", digits.root, code=0, out="nothing would run; all five gates hold")
    digits.file.write_text(digits.file.read_text().replace("seed: 42", "seed: 43"))
    before = contents(digits.root), whole(digits.root)
    said = cli("run", "--dry-run", "--json", "--project", digits.root, code=0)
    assert [row["state"] for row in said.json["would_run"]] == ["stale"] * 5
    assert "mltrainer.yaml (project) changed" in said.json["would_run"][0]["why"]
    assert (contents(digits.root), whole(digits.root)) == before
