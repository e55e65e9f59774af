"""What is installed is complete: run from the checkout, and against the built wheel away from it (`make wheel-test`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mltrainer
from mltrainer import handbook

pytestmark = pytest.mark.wheel

PACKAGE = Path(mltrainer.__file__).resolve().parent
FROM_WHEEL = "MLTRAINER_TEST_WHEEL" in os.environ


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder."""
    script = Path(sys.executable).parent / "mltrainer"
    return subprocess.run([script, *arguments], cwd=cwd, capture_output=True, text=True, timeout=240)


def test_the_package_is_the_installed_one():
    assert PACKAGE.is_relative_to(sys.prefix) is FROM_WHEEL


def test_the_handbook_is_found_where_it_was_installed():
    assert handbook.shipped_folder() == (PACKAGE / "_handbook" if FROM_WHEEL else PACKAGE.parent)
    assert {path.split("/")[0] for path in handbook.page_paths()} == set(handbook.FOLDERS)


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_nothing_but_the_package_is_installed_at_the_top():
    from importlib.metadata import files

    installed = [str(path) for path in files("mltrainer") or []]
    stray = [path for path in installed if not path.startswith(("mltrainer", "../", "__editable__", "_editable_impl"))]
    assert not stray


@pytest.mark.slow
def test_help_is_shown_without_torch(tmp_path):
    code = "import sys\nfrom mltrainer.cli.main import run\nrun(['runs', '--help'])\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
    assert "planning" in command("phase", "run", "--help", cwd=tmp_path).stdout


@pytest.mark.slow
def test_a_project_is_planned_with_what_is_installed(tmp_path):
    assert command("init", "digits", "--example", "digits", cwd=tmp_path).returncode == 0
    planned = command("run", "--until", "planning", cwd=tmp_path / "digits")
    assert planned.returncode == 0, planned.stderr
    checked = json.loads(command("gate", "check", "planning", "--json", cwd=tmp_path / "digits").stdout)
    assert checked["holds"] is True
