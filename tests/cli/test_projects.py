"""`gate check --projects`: many projects in one process, each judged as by itself, whatever is wrong with the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mltrainer.gates.projects
from mltrainer.cli.projects import Pace, line
from mltrainer.gates.projects import Checked
from mltrainer.workspace import PHASES
from tests.conftest import Cli
from tests.projects import as_cloned


@pytest.fixture
def many(digits_once: Path, tmp_path: Path) -> list[Path]:
    """Finished projects, of which the last was edited in its second record."""
    found = [as_cloned(digits_once, tmp_path / str(nr)).root for nr in range(4)]
    record = found[-1] / "phases/02_baseline/record.json"
    record.write_text(record.read_text().replace("0.9", "0.8", 1))
    return found


def rows(cli: Cli, *arguments: str | Path) -> tuple[int, list[dict[str, object]]]:
    said = cli("gate", "check", "--json", "--projects", *arguments)
    return said.code, said.json["projects"]


@pytest.mark.slow
def test_each_project_is_judged_as_by_itself(many, cli):
    code, found = rows(cli, *many)
    assert code == 4
    for folder, row in zip(many, found, strict=True):
        alone = cli("gate", "check", "--json", "--project", folder)
        assert row["project"] == str(folder)
        assert (row["exit_code"], row["holds"]) == (alone.code, alone.json["holds"])
        assert row["holding"] == [phase["name"] for phase in alone.json["phases"] if phase["holds"]]
    assert [row["closed"] for row in found] == [None, None, None, "baseline"]
    assert "was edited" in str(found[-1]["why"])
    assert rows(cli, *many[:-1])[0] == 0


@pytest.mark.slow
def test_a_project_has_a_line_with_what_holds_and_the_first_that_does_not(many, cli):
    said = cli("gate", "check", "--projects", *many)
    *lines, last = said.out.splitlines()
    assert [line.split()[0] for line in lines] == ["holds", "holds", "holds", "closed"]
    assert lines[0].endswith(", ".join(PHASES))
    assert "planning; the gate of baseline is stale: phases/02_baseline/record.json was edited" in lines[-1]
    assert last == "4 projects: 3 hold, 1 does not"


def test_verdicts_that_are_read_from_a_record_are_counted():
    found = Checked(Path("p"), ("planning", "baseline"), not_recomputed=2)
    assert line(found, 4) == "holds   p     planning, baseline; 2 verdicts by its own checks, not recomputed"


@pytest.mark.slow
def test_a_phase_that_is_named_is_the_one_that_is_asked_for(many, cli):
    said = cli("gate", "check", "planning", "--projects", *many, "--json", code=0)
    assert [row["holding"] for row in said.json["projects"]] == [["planning"]] * 4


def test_what_cannot_be_checked_is_a_row_and_stops_nothing(many, tmp_path, cli, monkeypatch):
    derive = mltrainer.gates.projects.derive
    piped, linked, faulty, last = many
    for folder, name in ((piped, "01_planning"), (linked, "03_diagnostics")):
        (folder / f"phases/{name}/record.json").unlink()
    os.mkfifo(piped / "phases/01_planning/record.json")
    (linked / "phases/03_diagnostics/record.json").symlink_to("/etc/passwd")

    def broken(project, demand_files):
        if project.root == faulty:
            raise RecursionError("too deep")
        return derive(project, demand_files=demand_files)

    monkeypatch.setattr(mltrainer.gates.projects, "derive", broken)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".mltrainer").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    below = last / "phases"  # a folder of a project, which is none itself
    code, found = rows(cli, piped, linked, faulty, tmp_path / "empty", tmp_path / "file", tmp_path / "none", below, last)
    assert [row["exit_code"] for row in found] == [1, 1, 3, 1, 1, 1, 1, 4]
    assert "is a pipe" in str(found[0]["why"])
    assert "link out of the project" in str(found[1]["why"])
    assert "RecursionError: too deep" in str(found[2]["why"])
    assert "Traceback" in (tmp_path / ".mltrainer/mltrainer-fault.txt").read_text()
    assert all("no mltrainer.yaml in it" in str(row["why"]) for row in found[3:7])
    assert code == 3
    assert rows(cli, tmp_path / "none", last)[0] == 1  # no answer is worse than one that is no


def test_what_is_about_one_project_is_refused_with_many(many, cli):
    for other in (["--custom-checks"], ["--project", many[0]]):
        cli("gate", "check", "--projects", *many, *other, code=2, err="is about one project")
    cli("gate", "check", "--projects", code=2)


@pytest.mark.slow
def test_nothing_heavy_is_imported(many):
    program = (
        "import sys; from mltrainer.cli.main import run; "
        "code = run(['gate', 'check', '--json', '--projects', *sys.argv[1:]]); "
        "assert not {'torch', 'numpy', 'rich', 'scipy'} & set(sys.modules); sys.exit(code)"
    )
    said = subprocess.run([sys.executable, "-c", program, *map(str, many)], capture_output=True, check=False)
    assert (said.returncode, said.stderr) == (4, b"")
    assert len(json.loads(said.stdout)["projects"]) == 4


def test_many_projects_are_reported_with_rate_and_time_left(capsys):
    seconds = 0.0
    with Pace(100, now=lambda: seconds) as pace:
        for done in range(1, 101):
            seconds = done / 4
            pace.at(done)
    assert capsys.readouterr().err.splitlines() == [
        "projects 40/100  4 a second  15 s left",
        "projects 80/100  4 a second  5 s left",
    ]
