import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from mltrainer.executors.local import Ended
from mltrainer.project import doctor
from mltrainer.project.doctor import examine
from mltrainer.records.planning import GpuDevice
from mltrainer.reproducibility import environment
from tests.conftest import commit, git

GPU = GpuDevice(name="NVIDIA H200", driver="580.1", cuda="13.0")


def missing(folder):
    return [row for row in examine(folder) if row.state == "missing"]


def rows_by_name(folder):
    return {row.what: row for row in examine(folder)}


@pytest.fixture
def without(monkeypatch):
    """Makes distributions look as if they were not installed."""

    def take_away(*names):
        real = metadata.version

        def version(name):
            if name in names:
                raise metadata.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(metadata, "version", version)

    return take_away


def test_every_capability_has_a_row_with_state_and_finding(tmp_path):
    rows = examine(tmp_path)
    names = {row.what for row in rows}
    assert {"Python", "PyTorch", "GPU", "git", "CPU", "memory", "disk", "determinism"} <= names
    assert not names & {extra for extra, _, _ in doctor.EXTRAS}
    assert all(row.found for row in rows)
    assert {row.state for row in rows} <= {"ok", "missing", "note"}


def test_on_a_machine_that_can_run_the_tests_nothing_is_missing(tmp_path):
    assert missing(tmp_path) == []


@pytest.mark.slow
def test_torch_is_not_imported():
    code = "import sys; from mltrainer.project.doctor import examine; examine(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_a_required_package_that_is_missing_says_how_to_get_it(tmp_path, without):
    without("torch", "safetensors")
    found = {row.what: row.get for row in missing(tmp_path)}
    assert found["safetensors"] == "pip install safetensors"
    assert found["PyTorch"] == "pip install torch"


def test_an_extra_that_is_missing_is_a_note_with_its_purpose(tmp_path, without):
    without("onnx")
    row = {row.what: row for row in doctor.extras()}["onnx"]
    assert (row.state, row.get) == ("note", "pip install 'mltrainer[onnx]'")
    assert "ONNX export" in row.found


def test_every_extra_is_told_by_doctor_and_by_the_readme():
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in extras.keys() - {"tables", "peers", "docs", "dev"}:  # it brings nothing; ours alone
        assert any(f"mltrainer[{extra}]" in get for _, _, get in doctor.EXTRAS), extra
        assert f"`{extra}`" in (root / "README.md").read_text(), extra


def test_the_list_of_requirements_is_known_without_an_installation(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", absent)
    assert {"torch", "numpy"} <= set(doctor._requirements())


def test_requirements_of_extras_are_not_required(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["torch<3,>=2", 'onnx>=1; extra == "onnx"'])
    assert doctor._requirements() == ["torch"]


def test_a_cpu_build_beside_a_gpu_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "gpus", lambda: [GPU])
    monkeypatch.setattr(doctor, "version_of", lambda name: "2.13.0+cpu")
    rows = rows_by_name(tmp_path)
    assert rows["PyTorch"].state == "note"
    assert rows["GPU"].found == "NVIDIA H200; driver 580.1, CUDA up to 13.0"
    assert "GPU operations" in rows["determinism"].found


def test_without_git_file_digests_stand_for_commits(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    row = rows_by_name(tmp_path)["git"]
    assert row.state == "note"
    assert row.found.startswith("git is not installed")


def test_a_repository_is_told_by_commit_and_state(tmp_path):
    (tmp_path / "a").write_text("")
    commit(tmp_path, new=True)
    (tmp_path / "a").write_text("changed")
    assert rows_by_name(tmp_path)["repository"].found.endswith(" on main, with uncommitted changes")


def test_a_repository_without_a_commit_is_told_to_commit_and_no_repository_to_start_one(tmp_path):
    assert rows_by_name(tmp_path)["repository"].get == "mltrainer init, or git init"
    git(tmp_path, "init")
    assert rows_by_name(tmp_path)["repository"].get == "git add and git commit"


@pytest.mark.parametrize(("memory", "state"), [(1024, "note"), (65536, "ok")])
def test_little_memory_is_noted(tmp_path, monkeypatch, memory, state):
    monkeypatch.setattr(environment, "memory_mb", lambda: memory)
    assert rows_by_name(tmp_path)["memory"].state == state


def test_a_full_disk_is_noted_and_a_broken_one_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 1 << 20})())
    assert rows_by_name(tmp_path)["disk"].state == "note"

    def broken(folder):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("shutil.disk_usage", broken)
    assert rows_by_name(tmp_path)["disk"].state == "missing"


def test_an_old_python_is_missing_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "PYTHON_FROM", (9, 0))
    row = rows_by_name(tmp_path)["Python"]
    assert (row.state, row.get) == ("missing", "install Python 9.0 or newer")


@pytest.mark.slow
def test_works_are_computed_twice():
    words = "computed twice, with the same bits: a product of matrices, a product in bf16, a convolution's gradient"
    assert doctor.gpu_trial("cpu") == doctor.Check("GPU trial", "ok", words)


@pytest.mark.slow
def test_a_device_that_does_not_exist_is_said_with_its_error():
    found = doctor.gpu_trial("nothing")
    assert found.state == "missing"
    assert found.found.startswith("failed: RuntimeError: ")


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (b"{}", "note", "PyTorch sees no GPU: nothing was tried"),
        (b'{"a": true, "b": false}', "missing", "computed twice, with other bits: b"),
        (b'{"a": true}', "ok", "computed twice, with the same bits: a"),
    ],
)
def test_the_trial_on_a_gpu_is_told(monkeypatch, answer, state, words):
    monkeypatch.setattr(doctor, "answered", lambda *_, **__: Ended(0, answer, b""))
    assert doctor.gpu_trial()[1:3] == (state, words)
