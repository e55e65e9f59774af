"""A task of another distribution, which a config names in place of a class of the project."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.tasks.user_code import make_task
from mltrainer.workspace import Project
from tests.plugins.installing import install, use, write_metadata
from tests.projects import recorded, write_rings


@pytest.fixture
def rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    site = install(tmp_path / "site", "mltrainer-rings")
    use(monkeypatch, site)
    yield site
    sys.modules.pop("mltrainer_rings", None)


def project(folder: Path, use_: str, **options: object) -> Project:
    folder.mkdir(exist_ok=True)
    found = write_rings(folder, task={"use": use_, "options": options})
    (folder / "my_task.py").unlink()
    return found


def test_it_is_made_from_its_options(tmp_path, rings):
    assert load_project(project(tmp_path / "project", "rings", n=30).file).task.use == "rings"
    assert len(make_task("rings", {"n": 30}, tmp_path).samples()) == 30
    with pytest.raises(InputError, match=r"no option 'm' of Rings"):
        make_task("rings", {"m": 30}, tmp_path)


def test_a_name_that_nobody_has_is_refused_with_those_that_there_are(tmp_path, rings):
    with pytest.raises(InputError, match=r"mltrainer.yaml:\d+.*no installed task has that name \(installed: rings\)"):
        load_project(project(tmp_path / "project", "ring").file)


def test_one_that_is_no_task_is_refused(tmp_path, rings):
    write_metadata(rings, "other", "mltrainer.tasks", {"other": "mltrainer_rings:nn"})
    with pytest.raises(InputError, match=r"other of other 1.0 is no class of mltrainer.Task"):
        make_task("other", {}, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("real_tools")
def test_it_is_trained_and_its_code_is_bound(cli, tmp_path, rings):
    found = project(tmp_path / "project", "rings")
    cli("phase", "run", "planning", "--set", "epochs=2", "--project", found.root, code=0)
    cli("phase", "run", "baseline", "--project", found.root, code=0)
    planned = recorded(found, "planning")
    assert [row["path"] for row in planned["source"]["files"]] == ["site-packages/mltrainer_rings.py"]
    cli("gate", "check", "-v", "--project", found.root, code=0)
    (rings / "mltrainer_rings.py").write_text((rings / "mltrainer_rings.py").read_text("utf-8") + "# another\n", "utf-8")
    cli("gate", "check", "-v", "--project", found.root, code=4, out="site-packages/mltrainer_rings.py (plugin) changed")
