"""What a newer version would change of a planned project: shown before, and adopted where it is asked for."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

import mltrainer
from mltrainer.errors import InputError
from tests.conftest import Cli
from tests.projects import write_rings

KEPT = Path(__file__).parents[1] / "kept"
CONFIG = "phases/01_planning/training_config.yaml"


def kept(name: str, folder: Path) -> mltrainer.Project:
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return mltrainer.Project(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["0.1/digits", "0.2/digits"])
def test_an_older_project_is_told_what_this_version_changes_and_stays_as_it_is(name: str, tmp_path: Path, cli: Cli) -> None:
    kept(name, tmp_path)
    before = files(tmp_path / "phases")
    said = cli("upgrade", "--dry-run", "--json", "--project", tmp_path)
    found = json.loads(said.out)
    assert (said.code, found["other_bits"]) == (0, True)
    assert {"key": "rules", "now": 1, "then": 2} in found["changes"]
    assert "judged by the policy of mltrainer 0." in found["policies"]["planning"][0]
    shown = cli("upgrade", "--dry-run", "--project", tmp_path).out
    assert "other bits: every run gets another name" in shown
    assert "planning: judged by the policy" in shown
    assert files(tmp_path / "phases") == before


def test_what_a_person_changed_in_the_project_file_is_no_news_of_a_version(tmp_path: Path) -> None:
    project = kept("0.2/digits", tmp_path)
    file = tmp_path / "mltrainer.yaml"
    file.write_text(file.read_text().replace("seed: 42", "seed: 7"))
    assert "seed: 7" in file.read_text()
    assert "seed" not in project.upgrade().changes


def test_a_template_that_is_older_than_the_rules_takes_none_back(tmp_path: Path) -> None:
    project = kept("0.2/digits", tmp_path)
    shipped = (Path(__file__).parents[2] / "configs/baseline_template.yaml").read_text()
    (tmp_path / "configs").mkdir(exist_ok=True)
    (tmp_path / "configs/baseline_template.yaml").write_text(re.sub("^rules: .*\n", "", shipped, flags=re.MULTILINE))
    assert project.upgrade().changes["rules"] == (1, 2)
    config = tmp_path / CONFIG
    config.write_text(config.read_text() + "\nrules: 2\n")
    assert "rules" not in project.upgrade().changes


def test_json_goes_with_a_dry_run(tmp_path: Path, cli: Cli) -> None:
    kept("0.2/digits", tmp_path)
    said = cli("upgrade", "--json", "--project", tmp_path)
    assert (said.code, "--dry-run" in said.err, said.out) == (2, True, "")


def test_a_program_has_no_rules_to_adopt(tmp_path: Path) -> None:
    found = kept("0.2/script", tmp_path).upgrade()
    assert (found.adopted, found.other_bits) == ({}, False)
    assert "rules" not in found.changes


def test_a_project_without_a_plan_has_nothing_older(tmp_path: Path) -> None:
    write_rings(tmp_path)
    with pytest.raises(InputError, match="not planned yet") as caught:
        mltrainer.Project(tmp_path).upgrade()
    assert caught.value.mend == "mltrainer phase run planning"


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("content", [b'{"schema": 1', None], ids=["cut off", "missing"])
def test_a_plan_whose_record_is_not_sound_is_not_called_new(content: bytes | None, tmp_path: Path, cli: Cli) -> None:
    kept("0.2/digits", tmp_path)
    record = tmp_path / "phases/01_planning/record.json"
    record.unlink()
    if content is not None:
        record.write_bytes(content)
    said = cli("upgrade", "--dry-run", "--project", tmp_path)
    assert (said.code, said.out) == (1, "")
    assert "phases/01_planning: there is no sound record of planning" in said.err
    assert "next: mltrainer phase run planning" in said.err


@pytest.mark.slow
def test_an_upgrade_plans_anew_and_leaves_nothing_to_upgrade(tmp_path: Path, cli: Cli) -> None:
    write_rings(tmp_path, task={"use": "my_task:Rings", "options": {"n": 60}})
    small: tuple[Any, ...] = ("--set", "epochs=1", "--set", "batch_size=6", "--project", tmp_path)
    assert cli("phase", "run", "planning", "--set", "rules=1", *small).code == 0
    assert cli("upgrade", "--project", tmp_path).code == 0
    assert "rules: 2\n" in (tmp_path / CONFIG).read_text()
    assert (tmp_path / CONFIG).read_text().count("epochs: 1\n") == 1
    said = cli("upgrade", "--project", tmp_path)
    assert (said.code, said.out.startswith("nothing: this project was planned with")) == (0, True)
