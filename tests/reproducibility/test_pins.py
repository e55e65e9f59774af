import copy
import platform
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from mltrainer.records.partial import partial
from mltrainer.records.planning import Environment
from mltrainer.reproducibility.environment import capture
from mltrainer.reproducibility.pins import builds, requirements, requirements_file


@pytest.fixture(scope="module")
def captured():
    return capture(1).model_dump()


@pytest.fixture
def other(captured):
    return copy.deepcopy(captured)


def test_requirements_pin_what_was_installed(captured, other):
    next(row for row in other["distributions"] if row["name"] == "torch")["version"] = "2.13.0+cpu"
    lines = requirements(partial(Environment, other)).splitlines()
    assert lines[0].startswith(f"# Python {platform.python_version()}, ")
    assert f"numpy=={metadata.version('numpy')}" in lines
    assert not any(line.startswith("torch==") for line in lines)
    assert builds(partial(Environment, other)) == {"torch==2.13.0+cpu": "https://download.pytorch.org/whl/cpu"}


def test_requirements_name_what_they_cannot_pin(other):
    other["distributions"] = [
        {"name": "own", "version": "1.0", "record_sha256": None, "editable": True},
        {"name": "broken", "version": "", "record_sha256": None, "editable": False},
    ]
    assert all(line.startswith("#") for line in requirements(partial(Environment, other)).splitlines())


@pytest.mark.slow
def test_requirements_are_read_by_pip(captured, tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text(requirements(partial(Environment, captured)))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", "--quiet", "-r", str(file)]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 0


def pins(text):
    """The pins of a requirements file, as pip reads them; its options are none."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return {str(Requirement(line)) for line in lines if line and not line.startswith("--extra-index-url https://")}


def test_the_file_for_a_person_has_every_package_that_pip_can_install(captured):
    installed = {row["name"]: row for row in captured["distributions"]}
    expected = {f"{name}=={row['version']}" for name, row in installed.items() if not row["editable"] and row["version"]}
    expected = {pin for pin in expected if not pin.startswith("mltrainer==")}  # the index's package of that name is another
    found = pins(requirements_file(partial(Environment, captured)))
    assert found == {pin for pin in expected if pin.partition("==")[0] not in ("pip", "wheel", "uv")}


def test_the_file_for_a_person_tells_what_to_do_with_what_pip_cannot_install(other):
    versions = {
        "torch": "2.13.0+cpu",
        "own": "1.0",
        "patched": "1.2+mine",
        "odd": "unknown",
        "pip": "24.0",
        "good": "1!2.0rc1.post2",
        "MLtrainer": "0.9.0",
    }
    other["distributions"] = [
        {"name": name, "version": version, "record_sha256": None, "editable": name == "own"} for name, version in versions.items()
    ]
    text = requirements_file(partial(Environment, other))
    assert pins(text) == {"torch==2.13.0+cpu", "good==1!2.0rc1.post2"}
    assert "--extra-index-url https://download.pytorch.org/whl/cpu\n" in text
    assert "# own 1.0 was an editable installation: install its source at the recorded commit" in text
    assert "# patched 1.2+mine was built locally" in text
    assert "# MLtrainer 0.9.0: install it from its own source or wheel; the index has another package of that name" in text
    assert "# odd unknown was built locally" in text
    assert "pip==" not in text
