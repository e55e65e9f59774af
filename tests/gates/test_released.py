"""What a version released as policy is written down once and never changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.configs.pages import phase_page
from mltrainer.errors import InputError
from mltrainer.gates import released
from mltrainer.workspace import PHASES, sha256_file

NEVER_CHANGES = {
    "0.1.0": "b68d1918c80245aeb351dcf85e3f067c9c5f313ecdcd360c09acb0aa3c48f3f4",
    "0.2.0": "2cff205981dbaa48ec2d0b4985352c9b09537635ea324c98dcee895b44a5c6b2",
}


def test_what_a_version_released_never_changes() -> None:
    assert {path.stem: sha256_file(path) for path in released.FOLDER.glob("*.json")} == NEVER_CHANGES


def test_an_unknown_version_released_nothing() -> None:
    assert released.release("../0.1.0") is None


def test_a_release_keeps_its_policy_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "FOLDER", tmp_path)
    monkeypatch.setattr("mltrainer.__version__", "7.0.0")
    path = released.keep()
    assert path == released.keep()
    kept = released.release("7.0.0")
    assert kept is not None
    assert {phase: phase_page(phase, None).model_dump() for phase in PHASES} == kept.policies
    path.write_text("{}")
    with pytest.raises(InputError, match="released with another policy"):
        released.keep()
