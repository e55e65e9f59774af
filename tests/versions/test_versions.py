"""What is installed by whom: the lists with hashes fit pyproject.toml and constraints.txt, and the Containerfile with them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.versions import __main__ as versions
from tests.versions import bounds
from tests.versions.hashes import CPU, CUDA, is_of_torch
from tests.versions.resolving import SilentIndexError, project

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+)==([^\s;]+)")
NAME = re.compile(r"[A-Za-z0-9._-]+")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    return {plain(name): version for name, version in PIN.findall((ROOT / file).read_text("utf-8"))}


def parts(file: str) -> list[str]:
    return [part for part in re.split(r"(?m)^(?=\S)", (ROOT / file).read_text("utf-8")) if PIN.match(part)]


# --- lists with hashes ----------------------------------------------------------------------------


@pytest.mark.parametrize("file", [CUDA, CPU])
def test_each_requirement_has_a_hash_and_the_version_that_is_tested(file):
    tested = pins("constraints.txt")
    assert [part for part in parts(file) if "--hash=sha256:" not in part] == []
    assert {name: version for name, version in pins(file).items() if tested.get(name, version) != version} == {}


def test_all_that_the_package_needs_is_listed():
    needed = {plain(NAME.match(one)[0]) for one in [*project()["dependencies"], *project()["optional-dependencies"]["onnx"]]}
    assert needed <= set(pins(CUDA))
    assert needed - set(pins(CPU)) == {"torch"}


def test_beside_the_cpu_build_nothing_of_cuda_is_installed():
    assert [part for part in parts(CPU) if is_of_torch(part)] == []
    assert set(pins(CUDA)) - set(pins(CPU)) == {name for name in pins(CUDA) if is_of_torch(f"{name}==1")}


# --- bounds ---------------------------------------------------------------------------------------


def test_bounds_that_cannot_be_installed_are_named(monkeypatch, capsys):
    refused = subprocess.CompletedProcess([], 1, "", "no version of optuna")
    monkeypatch.setattr(bounds, "resolved", lambda *_: refused)
    assert bounds.main() == 1
    assert "the lowest versions with the extras onnx" in (said := capsys.readouterr().out)
    assert "no version of optuna" in said


def test_without_an_index_it_is_said_that_bounds_were_not_tried(monkeypatch, capsys):
    def silent(*_: str) -> None:
        raise SilentIndexError("the package index does not answer")

    monkeypatch.setattr(bounds, "resolved", silent)
    assert bounds.main() == 0
    assert "not tried: the package index does not answer" in capsys.readouterr().out


# --- other versions -------------------------------------------------------------------------------


def test_the_newest_pytorch_is_installed_without_its_bounds_alone():
    assert "torch" in versions.requirements(is_newest=True)
    assert [one for one in versions.requirements(is_newest=False) if one.startswith("torch")] != ["torch"]
    assert not re.search(r"(?m)^torch==", versions.constraints(is_newest=True))
    assert "torchjd==" in versions.constraints(is_newest=True)


def test_a_python_that_is_not_here_is_said_to_be_untried(monkeypatch):
    monkeypatch.setattr(versions, "interpreter", lambda _: None)
    assert versions.walk(versions.Row("3.99")) == ("3.99", "pinned", "not tried: no such Python on this machine")


def test_the_page_has_a_row_for_each_version():
    page = versions.PAGE.read_text("utf-8")
    table = page.split(versions.BEGIN)[1].split(versions.END)[0]
    for row in versions.ROWS:
        assert f"\n| {row.python}" in table
    assert versions.written(page, []).startswith(page.split(versions.BEGIN)[0])


# --- containers and publishing --------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = "\n".join(line for line in (ROOT / "Containerfile").read_text("utf-8").splitlines() if not line.startswith("#"))
    return [tuple(line.split(maxsplit=1)) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def test_each_step_of_the_containerfile_calls_what_there_is():
    found = instructions()
    assert found[0][0] == "FROM"
    assert {name for name, _ in found} <= {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT"}
    made = {"/opt/mltrainer/bin/pip", "/opt/mltrainer/bin/mltrainer"}
    for _, text in (one for one in found if one[0] == "RUN"):
        assert subprocess.run(["sh", "-n", "-c", text]).returncode == 0
        for command in re.split(r"&&|\|\|", text):
            program = shlex.split(command)[0]
            assert program in made or shutil.which(program), program
    assert made <= {word for name, text in found if name == "RUN" for word in text.split()}


def test_the_containerfile_installs_both_lists_with_their_digests():
    lists = [text for name, text in instructions() if name == "RUN" and "--requirement" in text]
    assert len(lists) == 1
    assert "--require-hashes" in lists[0]
    for build in ("cuda", "cpu"):
        assert (ROOT / lists[0].split("--requirement ")[1].strip('"').replace("$BUILD", build)).is_file()
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["name"], pins("constraints.txt")["torch"]
    assert any(f"torch=={pinned[1]}" in text for _, text in instructions())


def test_only_the_publishing_job_may_sign_and_no_secret_is_read():
    text = (ROOT / ".github/workflows/publish.yml").read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert "secrets." not in text
    assert jobs["build"]["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["steps"][-1]["with"] == {"attestations": True}
    assert not [step for step in jobs["publish"]["steps"] if "run" in step]
