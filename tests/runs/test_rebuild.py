"""A recorded environment is installed anew from its pins, once, or the message says what cannot be had."""

from __future__ import annotations

import platform
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import InputError
from mltrainer.executors.executor import Command
from mltrainer.records.partial import partial
from mltrainer.records.planning import Environment
from mltrainer.records.reading import read_record
from mltrainer.runs import rebuild as rebuilding
from mltrainer.runs import reproduce
from mltrainer.runs.rebuild import find_interpreter, rebuild
from mltrainer.workspace import Project

METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder: Path, version: str) -> None:
    """Write a package that holds one number."""
    info = f"tiny-{version}.dist-info"
    files = {"tiny.py": f"VERSION = '{version}'\n", f"{info}/METADATA": METADATA.format(version=version), f"{info}/WHEEL": WHEEL}
    with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))


def environment(version: str) -> Environment:
    row = {"name": "tiny", "version": version, "record_sha256": None, "editable": False}
    python = {"version": platform.python_version()}
    host = {"libc": "", "machine": ""}
    return partial(Environment, {"sha256": f"{version:0<12}", "python": python, "platform": host, "distributions": [row]})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on a machine whose only package index is a folder with tiny 1.0."""
    make_wheel(tmp_path, "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return Project(tmp_path)


@pytest.mark.slow
def test_an_environment_is_made_once_and_holds_what_was_recorded(project):
    told: list[dict[str, Any]] = []
    python = rebuild(project, environment("1.0"), told.append)
    command = [str(python), "-c", "import tiny; print(tiny.VERSION)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "1.0\n"
    assert rebuild(project, environment("1.0"), told.append) == python
    assert [event["text"].split()[0] for event in told] == ["installing", "the"]


@pytest.mark.slow
def test_a_package_that_can_no_longer_be_had_is_named(project):
    with pytest.raises(InputError, match=r"No matching distribution found for tiny==2\.0"):
        rebuild(project, environment("2.0"), lambda event: None)


def test_another_python_is_asked_for():
    with pytest.raises(InputError, match=r"recorded with Python 3\.3\.1, which is not installed"):
        find_interpreter("3.3.1")


def test_mltrainer_is_taken_from_where_it_was_installed_and_never_from_an_index(monkeypatch, tmp_path):
    class Installed:
        def __init__(self, text: str | None) -> None:
            self.text = text

        def read_text(self, _name: str) -> str | None:
            return self.text

    place = tmp_path / "a tree"
    place.mkdir()
    url = place.as_uri()
    for origin, arguments in (
        (f'{{"url": "{url}", "dir_info": {{"editable": true}}}}', ["--editable", str(place)]),
        (f'{{"url": "{url}", "archive_info": {{}}}}', [str(place)]),
    ):
        monkeypatch.setattr(rebuilding, "distribution", lambda _name, origin=origin: Installed(origin))
        assert rebuilding.own_source() == arguments
    for gone in (None, f'{{"url": "{url}/gone.whl"}}', '{"url": "https://host/mltrainer.whl"}'):
        monkeypatch.setattr(rebuilding, "distribution", lambda _name, gone=gone: Installed(gone))
        with pytest.raises(InputError, match="another package of that name"):
            rebuilding.own_source()


def test_a_reproduction_in_the_recorded_environment_is_that_environments_own(digits, monkeypatch):
    started: list[list[str]] = []

    def run(command: Command) -> int:
        started.append(list(command.arguments))
        return 5

    monkeypatch.setattr(reproduce, "rebuild", lambda *_: Path("/there/bin/python"))
    monkeypatch.setattr(reproduce, "run_command", run)
    name = read_record(digits, "baseline").evidence["run"]["id"]  # type: ignore[union-attr]
    assert reproduce.reproduce_elsewhere(digits, name, print, 5, as_json=True) == 5
    expected = ["/there/bin/python", "-P", "-m", "mltrainer", "reproduce", name, "--project", str(digits.root)]
    assert started == [[*expected, "--steps", "5", "--json"]]
